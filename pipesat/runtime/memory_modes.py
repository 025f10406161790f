"""Stages that recompute or offload exactly the microbatches that a schedule lists.

In a training script, beside torch's CSV::

    modes = MemoryModes.read("out/schedule.modes.csv")
    Stage = modes.stage_class(PipelineStage)  # for all stages of the rank, instead of torch's

*Recompute*: the whole stage runs under ``torch.utils.checkpoint``; its input and output stay.
*Offload*: what autograd saves goes out and comes back by :mod:`~pipesat.runtime.offload`, on
:mod:`~pipesat.runtime.copy_channels`. An op that takes memory waits for the copies out that had
ended before it in the schedule, a copy back starts no earlier than it does there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from pipesat.core.errors import BadInput
from pipesat.export.torch.modes import ModeRow, read_mode_rows
from pipesat.export.torch.tokens import parse_cell
from pipesat.runtime.copy_channels import ChannelCopy, CopyChannels
from pipesat.runtime.offload import OnStorage, Trip
from pipesat.runtime.stages import Around

_FORWARD = "forward_maybe_with_nosync"


class MemoryModes:
    """The modes of one rank's stages, over its steps.

    Parameters
    ----------
    rows
        Lines of the file; those of other ranks' stages play no part.
    on_storage
        Told of every storage that a copy back makes (a meter).
    await_input
        Called with an op's text before it starts: waits for inputs that torch knows nothing of.
    around_copy
        Entered around a copy, in its channel's thread, with its text.
    """

    def __init__(
        self,
        rows: Sequence[ModeRow],
        on_storage: OnStorage = lambda _: None,
        *,
        await_input: Callable[[str], object] = lambda _: None,
        around_copy: Around = lambda _: nullcontext(),
    ) -> None:
        self.rows = {(row.stage, row.microbatch): row for row in rows}
        self.on_storage = on_storage
        self.await_input = await_input
        self.around_copy = around_copy
        self.within_cell = False
        self.stages: dict[int, Any] = {}
        self.trips: dict[tuple[int, int], Trip] = {}
        self.channels: CopyChannels | None = None

    @classmethod
    def read(cls, path: str | Path) -> MemoryModes:
        """Read the file that ``pipesat export --to torch`` writes beside the order.

        Raises
        ------
        BadInput
            If it is no such file.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"cannot be read: {error}", source=str(path)) from None
        return cls(read_mode_rows(text, str(path)))

    def stage_class(self, base: Any) -> Any:
        """Derive a stage class from torch's whose microbatches run in their modes.

        It is torch's own where everything is kept.

        Raises
        ------
        BadInput
            If this torch runs a stage's module in a method of another name.
        """
        if not self.rows:
            return base
        if not hasattr(base, _FORWARD):
            raise BadInput(
                f"torch {torch.__version__} has no {base.__name__}.{_FORWARD}, which memory modes "
                "need. They were tested with torch 2.13"
            )
        modes = self

        class StageWithModes(base):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                modes.stages[self.stage_index] = self
                self.microbatch_now = -1

            def forward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
                with modes.running(f"{self.stage_index}F{chunk}"):
                    self.microbatch_now = chunk
                    try:
                        return super().forward_one_chunk(chunk, *args, **kwargs)
                    finally:
                        self.microbatch_now = -1

            def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
                plain = super().forward_maybe_with_nosync
                row = modes.rows.get((self.stage_index, self.microbatch_now))
                if row is None or not torch.is_grad_enabled():
                    return plain(*args, **kwargs)
                if not row.offloads:
                    return checkpoint(plain, *args, use_reentrant=False, **kwargs)
                return modes.offloading(row, self.submod, plain, args, kwargs)

            def backward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
                letter = "B" if kwargs.get("full_backward", True) else "I"
                with modes.running(f"{self.stage_index}{letter}{chunk}"):
                    return super().backward_one_chunk(chunk, *args, **kwargs)

            def backward_weight_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
                with modes.running(f"{self.stage_index}W{chunk}"):
                    return super().backward_weight_one_chunk(chunk, *args, **kwargs)

        return StageWithModes

    def offloading(
        self, row: ModeRow, module: Any, forward: Any, args: Sequence[Any], kwargs: Any
    ) -> Any:
        """Run a forward whose saved tensors will be copied out."""
        there = [*module.parameters(), *module.buffers(), *_tensors_in([args, kwargs])]
        staying = frozenset(tensor.untyped_storage().data_ptr() for tensor in there)
        trip = Trip(f"stage {row.stage}, microbatch {row.microbatch}", staying)
        self.trips[row.stage, row.microbatch] = trip
        with saved_tensors_hooks(trip.pack, trip.unpack):
            output = forward(*args, **kwargs)
        trip.keep(_tensors_in(output))
        return output

    @contextmanager
    def running_cell(self, cell: str) -> Iterator[None]:
        """Around an overlapped cell, whose members start and end together."""
        with self.running(cell):
            self.within_cell = True
            yield
            self.within_cell = False

    @contextmanager
    def running(self, text: str) -> Iterator[None]:
        """Around an op: wait for what it must wait for, and say that it starts and has ended."""
        own = [row for row in self.rows.values() if row.stage in self.stages and row.offloads]
        if not own or self.within_cell:
            yield
            return
        actions = {str(action): action for action in parse_cell(text) or ()}
        if self.channels is None or not self.channels.happened.isdisjoint(
            f">{name}" for name in actions
        ):
            self._begin_step(own)
        channels = self.channels
        assert channels is not None  # noqa: S101
        before = [f"{row.stage}O{row.microbatch}" for row in own if row.out_before in actions]
        before += [
            f"{a.stage}L{a.microbatch}"
            for a in actions.values()
            if a.letter != "F" and (a.stage, a.microbatch) in self.trips
        ]
        self.await_input(text)
        channels.await_all(before, text)
        for name in actions:
            channels.note(f">{name}")
        yield
        for name, (stage, letter, microbatch) in actions.items():
            if letter in ("B", "W"):
                self.trips.pop((stage, microbatch), None)
            channels.note(name)

    def _begin_step(self, own: Sequence[ModeRow]) -> None:
        if self.channels is not None:
            self.channels.finish()
        outs = {row.out_turn: self._out(row) for row in own}
        backs = {row.load_turn: self._back(row) for row in own}
        shared = not outs.keys() & backs.keys()
        rows = [outs | backs] if shared else [outs, backs]
        self.channels = CopyChannels([[row[turn] for turn in sorted(row)] for row in rows])

    def _out(self, row: ModeRow) -> ChannelCopy:
        key = f"{row.stage}O{row.microbatch}"

        def run() -> None:
            with self.around_copy(key):
                self.trips[row.stage, row.microbatch].out()

        return ChannelCopy(key, (f"{row.stage}F{row.microbatch}",), run)

    def _back(self, row: ModeRow) -> ChannelCopy:
        key = f"{row.stage}L{row.microbatch}"

        def run() -> None:
            with self.around_copy(key):
                self.trips[row.stage, row.microbatch].back(self.on_storage)

        started = (f">{row.load_with}",) if row.load_with else ()
        after = (f"{row.stage}O{row.microbatch}", *started, *row.load_after)
        return ChannelCopy(key, after, run)


def _tensors_in(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors_in(part)
    elif isinstance(value, dict):
        yield from _tensors_in(list(value.values()))
