"""Stages that recompute or offload exactly the microbatches that a schedule lists.

In a training script, beside torch's CSV::

    modes = MemoryModes.read("out/schedule.modes.json")
    Stage = modes.stage_class(PipelineStage)  # for all stages of the rank, instead of torch's

*Recompute*: the whole stage runs under ``torch.utils.checkpoint``; its input and output stay.
*Offload*: what autograd saves goes to the host by torch's ``save_on_cpu``, all but parameters,
buffers and the stage's input. Each tensor is copied as it is saved and as it is needed, within the
ops, which take longer for it: in the schedule copies run beside them. On a CPU, where all is in the
host's memory, nothing is copied. On one GPU it held less than predicted, and took longer.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from pipesat.core.errors import require
from pipesat.core.strict_json import LARGEST_ORDER, read_text
from pipesat.core.torch_releases import TESTED
from pipesat.layers.profile.costs_file import samples_document
from pipesat.measure.processes.stage_costs import Subject
from pipesat.runtimes.torch.companions import ModeRow, read_mode_rows

_FORWARD = "forward_maybe_with_nosync"


class MemoryModes:
    """The modes of one rank's stages; ``rows`` of other ranks' stages play no part."""

    def __init__(self, rows: Sequence[ModeRow]) -> None:
        self.rows = {(row.stage, row.microbatch): row for row in rows}

    @classmethod
    def read(cls, path: str | Path) -> MemoryModes:
        """Read the file that ``pipesat export --to torch`` writes beside the order."""
        return cls(read_mode_rows(read_text(Path(path), LARGEST_ORDER), str(path)))

    def stage_class(self, base: Any) -> Any:
        """Derive a stage class from torch's whose microbatches run in their modes.

        It is torch's own where everything is kept.
        """
        if not self.rows:
            return base
        require(
            hasattr(base, _FORWARD),
            f"torch {torch.__version__} has no {base.__name__}.{_FORWARD}, which memory modes "
            f"need. They were tested with torch {TESTED}",
        )
        modes = self

        class StageWithModes(base):
            microbatch_now = -1

            def forward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
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
                with offloading([*storages_of([self.submod, args, kwargs])]):
                    return plain(*args, **kwargs)

        return StageWithModes


def offloading(staying: Sequence[int]) -> saved_tensors_hooks:
    """Send what autograd saves to the host, but for these storages, and back when it is needed."""
    trip = save_on_cpu(pin_memory=torch.cuda.is_available())

    def pack(tensor: Any) -> Any:
        return tensor if tensor.untyped_storage().data_ptr() in staying else trip.pack_hook(tensor)

    def unpack(packed: Any) -> Any:
        return packed if isinstance(packed, torch.Tensor) else trip.unpack_hook(packed)

    return saved_tensors_hooks(pack, unpack)


def storages_of(value: Any) -> Iterator[int]:
    """Yield the data pointers of all tensors in modules, lists and dictionaries."""
    if isinstance(value, torch.nn.Module):
        value = [*value.parameters(), *value.buffers()]
    if isinstance(value, torch.Tensor):
        yield value.untyped_storage().data_ptr()
    elif isinstance(value, tuple | list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from storages_of(part)


_PROBE = 64 << 20  # bytes copied to measure a bandwidth


class Checkpointed(nn.Module):
    """A module that keeps only its input, and runs again when its backward comes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> Any:
        """Run the module."""
        return checkpoint(self.module, x, use_reentrant=False)


def measure_modes(subject: Subject, *, samples: int, warmup: int) -> dict[str, Any]:
    """Measure a stage in both modes; return what a profile's ``Costs`` have of them.

    Nothing where no parameter is trained: then there is no backward to wait for.
    """
    if not subject.trains:
        return {}
    offload, gradients = _offload(subject), _gradients(subject)
    again = replace(subject, module=Checkpointed(subject.module))
    times = [again.timed(again.whole)["BW"] for _ in range(warmup + samples)][warmup:]
    f, b, _ = again.metered(again.whole).values()
    again.forget_gradients()
    held = max(f.change, 0)
    return {
        "recompute": {
            "BW": samples_document(times),
            "held_after_F": held,
            "peak_in_backward": max(held + b.peak, held),
            "gradients": gradients,
        },
        "offload": offload,
    }


def _offload(subject: Subject) -> dict[str, int]:
    """Add up what autograd saves and is not there anyway: each storage once, the output not."""
    staying = {*storages_of([subject.module, subject.x])}
    saved: dict[int, int] = {}

    def note(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    gc.collect()
    with subject.meter.op() as f, saved_tensors_hooks(note, lambda tensor: tensor):
        _, output, root = subject.forward()
    staying |= {*storages_of(output)}
    copied = sum(size for place, size in saved.items() if place not in staying)
    del output, root
    subject.loss = None
    return {"bytes": copied, "held": max(f.change - copied, 0)}


def _gradients(subject: Subject) -> int | None:
    """Add up the outputs of linear and convolution layers: W needs a gradient of each."""
    sizes = list[int]()
    hooks = [
        part.register_forward_hook(lambda *called: sizes.append(called[-1].nbytes))
        for part in subject.module.modules()
        if isinstance(part, nn.Linear | nn.Conv1d)
    ]
    subject.forward()
    subject.loss = None
    for hook in hooks:
        hook.remove()
    return sum(sizes) or None


def copy_times(device: str, samples: int) -> dict[str, Any] | None:
    """Measure copies between a GPU and pinned host memory; ``None`` where there is no GPU."""
    if device != "cuda":
        return None
    host = torch.empty(_PROBE, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(_PROBE, dtype=torch.uint8, device=device)
    out = [_copy_time(host, there) for _ in range(samples + 1)][1:]
    back = [_copy_time(there, host) for _ in range(samples + 1)][1:]
    return {"bytes": _PROBE, "out": samples_document(out), "back": samples_document(back)}


def _copy_time(target: Any, source: Any) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    target.copy_(source, non_blocking=True)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1000
