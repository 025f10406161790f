"""When every op of a step really ran: host clock on the CPU, events of the stream on CUDA.

torch wraps each action in ``record_function("PP:<action>")``, a global of its schedules module,
which is replaced here; the range of an action includes the wait for its input. Inside it,
:func:`reporting` calls when the input is there. An op ends with its range: the loss is part of the
last stage's forward. Of an overlapped cell, one member begins where the one before it ends.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

from pipesat.core.errors import BadInput
from pipesat.runtime.meters import HostClock

Around: TypeAlias = Callable[[str], AbstractContextManager[Any]]
"""Called with an action in torch's letters (``0F3``); entered before it is computed."""


def reporting(base: Any, around: Around) -> Any:
    """Derive a stage class whose every action is computed inside ``around(action)``.

    torch has waited for the action's input by then. The loss of the last stage's forward, and
    handing over to a stage on the same rank, come after it.
    """

    class ReportingStage(base):
        def forward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            with around(f"{self.stage_index}F{chunk}"):
                output = super().forward_one_chunk(chunk, *args, **kwargs)
                self.shapes = _same_shapes(self, chunk, output)
            return output

        def backward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            letter = "B" if kwargs.get("full_backward", True) else "I"
            with around(f"{self.stage_index}{letter}{chunk}"):
                return super().backward_one_chunk(chunk, *args, **kwargs)

        def backward_weight_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            with around(f"{self.stage_index}W{chunk}"):
                return super().backward_weight_one_chunk(chunk, *args, **kwargs)

    return ReportingStage


def _same_shapes(stage: Any, microbatch: int, output: Any) -> list[Any]:
    """Return the output's shapes if they are those of the outputs before.

    torch receives into buffers that were made for the first microbatch, and would fill a part of
    one without a word.
    """
    tensors = output if isinstance(output, tuple | list) else [output]
    shapes = [tuple(getattr(tensor, "shape", ())) for tensor in tensors]
    expected: list[Any] = getattr(stage, "shapes", shapes)
    if shapes != expected:
        raise BadInput(
            f"stage {stage.stage_index} returns shapes {shapes} for microbatch {microbatch}, "
            f"expected {expected} as before: all microbatches need the same"
        )
    return shapes


_PREFIX = "PP:"


class Recorder:
    """The actions of one rank in one step after the other.

    With ``counts_cores``, also how long their thread was on a core: torch computes on the CPU,
    backwards included, in the thread that asks for it.
    """

    def __init__(self, clock: HostClock, *, counts_cores: bool) -> None:
        self.clock = clock
        self.counts_cores = counts_cores
        self.restart()

    def restart(self) -> None:
        """Forget what was recorded and begin a step."""
        self.clock.begin()
        self.ops: list[list[Any]] = []  # action, waiting since, start, end
        self.on_core: list[int | None] = []  # per op, ns of its thread
        self.transfers: list[tuple[str, Any, Any]] = []
        self.waiting_since: Any = None
        self.running = False

    def begin(self, action: str) -> None:
        """Note that an action's input is there and it is about to be computed."""
        now = self.clock.mark()
        if self.running:  # the member before it of an overlapped cell
            self._end(now)
        self.ops.append([action, self.waiting_since, now, None])
        self.running = True
        self.core_time = time.thread_time_ns()

    def _end(self, now: Any) -> None:
        self.ops[-1][3] = now
        self.on_core.append(time.thread_time_ns() - self.core_time if self.counts_cores else None)
        self.waiting_since, self.running = now, False

    def range(self, name: str) -> AbstractContextManager[Any]:
        """Stand in for torch's ``record_function``."""
        return self._action(name) if name.startswith(_PREFIX) else nullcontext()

    @contextmanager
    def _action(self, name: str) -> Iterator[None]:
        entered = self.waiting_since = self.clock.mark()
        yield
        now = self.clock.mark()
        if self.running:
            self._end(now)
        elif self.clock.calls_block and ("SEND" in name or "RECV" in name):
            self.transfers.append((name.removeprefix(_PREFIX), entered, now))

    def document(self) -> dict[str, list[list[Any]]]:
        """Return what ran, in ns.

        ``ops`` as ``[op, since, start, end, on a core]``, ``transfers`` as ``[name, start, end]``.
        """
        at = self.clock.nanoseconds
        return {
            "ops": [
                [name, *map(at, stamps), core]
                for (name, *stamps), core in zip(self.ops, self.on_core, strict=True)
            ],
            "transfers": [[name, at(start), at(end)] for name, start, end in self.transfers],
        }


def listen(recorder: Recorder) -> None:
    """Make torch's pipeline runtime tell a recorder of every action, in this process."""
    schedules = importlib.import_module("torch.distributed.pipelining.schedules")
    schedules.record_function = recorder.range  # type: ignore[attr-defined]
