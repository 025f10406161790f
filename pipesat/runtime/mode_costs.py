"""Measuring one stage in memory modes: recomputed as a whole, or with what it saves copied out.

Both as :mod:`~pipesat.runtime.memory_modes` runs them.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from pipesat.profile.costs_file import samples_document
from pipesat.runtime.clock_and_memory_meters import Meter, OpClock
from pipesat.runtime.memory_modes import storages_of
from pipesat.runtime.stage_costs import Backward, Subject, run_whole, time_whole

_PROBE = 64 << 20  # bytes copied to measure a bandwidth


class Checkpointed(nn.Module):
    """A module that keeps only its input, and runs again when its backward comes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> Any:
        """Run the module."""
        return checkpoint(self.module, x, use_reentrant=False)


def measure_modes(
    subject: Subject, backward: Backward, clock: OpClock, meter: Meter, *, samples: int, warmup: int
) -> dict[str, Any]:
    """Measure a stage in both modes; return what a profile's ``Costs`` have of them.

    Nothing where no parameter is trained: then there is no backward to wait for.
    """
    _, output, root = subject.forward()
    if subject.loss_of is None and subject.output_gradient is None:
        subject.output_gradient = torch.randn_like(output)
    trains = root.requires_grad
    del output, root
    if not trains:
        return {}
    offload = _offload(subject, meter)
    again = replace(subject, module=Checkpointed(subject.module))
    again.output_gradient = subject.output_gradient
    times = [time_whole(again, backward, clock) for _ in range(warmup + samples)][warmup:]
    gc.collect()
    with meter.op() as f:
        x, _, root = again.forward()
    with meter.op() as b:
        run_whole(again, backward, x, root)
    for parameter in subject.parameters:
        parameter.grad = None
    held = max(f.change, 0)
    return {
        "recompute": {
            "BW": samples_document(times),
            "held_after_F": held,
            "peak_in_backward": max(held + b.peak, held),
        },
        "offload": offload,
    }


def _offload(subject: Subject, meter: Meter) -> dict[str, int]:
    """Add up what autograd saves and is not there anyway: each storage once, the output not."""
    staying = {*storages_of([subject.module, subject.x])}
    saved: dict[int, int] = {}

    def note(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    gc.collect()
    with meter.op() as f, saved_tensors_hooks(note, lambda tensor: tensor):
        _, output, root = subject.forward()
    staying |= {*storages_of(output)}
    copied = sum(size for place, size in saved.items() if place not in staying)
    del output, root
    return {"bytes": copied, "held": max(f.change - copied, 0)}


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
