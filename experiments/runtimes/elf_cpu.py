"""Run orders in ELF's own pipeline on CPU ranks: losses, gradients and memory.

``python elf_cpu.py FILE...``: FILE is an order for ELF. Needs elf-pipeline 0.1.0, and torch. ELF's
engine wants CUDA for streams, for counters of memory and for the loss's device: these stand in
here (``without_cuda``), and sends are kept until they are over, as gloo needs. All else is ELF's:
its blocks, its communication, its layers whose W is put off, its recomputation. Every stage is a
layer norm, two products and a GELU, in float64. Gradients are compared with one process. ``held``
is the most bytes of tensors alive beside those there before the step, and the same without modes.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn

from pipesat.measure.processes.meters import HostMeter
from tests.support.runtime_stand_ins import loaded

SAMPLES, TOKENS, WIDTH = 2, 16, 8


class Stream:
    """Nothing runs beside anything else on a CPU."""

    def wait_stream(self, other: Stream) -> None: ...


def without_cuda() -> None:
    """Let ELF's engine do without CUDA."""
    cuda: Any = torch.cuda
    cuda.Stream = cuda.current_stream = Stream
    cuda.stream = lambda _: nullcontext()
    cuda.memory_allocated = cuda.max_memory_allocated = lambda: 0
    tensor, isend, sent = torch.tensor, dist.isend, list[Any]()

    def send(*args: Any, **named: Any) -> Any:
        sent.append((args, isend(*args, **named)))
        return sent[-1][1]

    def made(*args: Any, device: Any = None, **named: Any) -> Any:
        return tensor(*args, device="cpu" if device == "cuda" else device, **named)

    torch.tensor, dist.isend = made, send


def stage(number: int) -> nn.Module:
    """One stage, the same in every process."""
    torch.manual_seed(number)
    wide = 4 * WIDTH
    layers = nn.Linear(WIDTH, wide), nn.GELU(), nn.Linear(wide, WIDTH)
    return nn.Sequential(nn.LayerNorm(WIDTH), *layers)


def rank_of(rank: int, file: str) -> None:
    """Run a step as one rank, with its modes and without; the last stage's prints the row."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    torch.set_default_dtype(torch.float64)
    order = loaded(Path(file))
    placement, m = order.ORDER["placement"], order.ORDER["microbatches"]
    dist.init_process_group("gloo", rank=rank, world_size=len(order.ORDER["rows"]))
    without_cuda()
    torch.manual_seed(99)
    inputs = torch.randn(m * SAMPLES, TOKENS, WIDTH)
    target = torch.randn_like(inputs)
    whole = nn.Sequential(*map(stage, range(len(placement))))
    expected = nn.functional.mse_loss(whole(inputs), target)
    expected.backward()  # type: ignore[no-untyped-call]
    worst, peaks, loss_error = 0.0, [], 0.0
    for kept in (False, True):
        if kept:
            order.ORDER.pop("modes", None)
        peak, loss, parts = step(order, rank, inputs, target)
        peaks.append(peak)
        for number, part in parts.items():
            for mine, theirs in zip(part.parameters(), whole[number].parameters(), strict=True):
                difference: Any = mine.grad - theirs.grad  # type: ignore[operator]
                worst = max(worst, float(difference.abs().max()))
        if loss is not None:
            loss_error = max(loss_error, abs(float(loss) - float(expected)))
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, (worst, loss_error, peaks))
    if rank == placement[-1]:
        errors = max(one[1] for one in found), max(one[0] for one in found)
        held = ", ".join(f"{one / other:.2f}" for *_, (one, other) in found)
        print(f"| {Path(file).stem} | {errors[0]:.1e} | {errors[1]:.1e} | {held} |")


def step(order: ModuleType, rank: int, inputs: Any, target: Any) -> tuple[int, Any, Any]:
    """Run one step in ELF; return the most that was alive, the loss, and the stages."""
    from elf.zb_utils import replace_layer_with_layer_dw  # type: ignore[import-not-found]

    placement = order.ORDER["placement"]
    parts = {number: stage(number) for number, home in enumerate(placement) if home == rank}
    for part in parts.values():
        replace_layer_with_layer_dw(part)
    pipe = order.Pipeline([*parts.values()])
    meter = HostMeter()
    meter.start()
    with meter.computing():
        _, loss = pipe(inputs, target, nn.functional.mse_loss, split_size=SAMPLES)
    dist.barrier()
    peak = meter.peak - meter.at_start
    meter.stop()
    return peak, loss, parts


def main() -> None:
    print("| order | losses differ by | gradients differ by | held, of the same without modes |")
    print("|---|---|---|---|")
    for file in sys.argv[1:]:
        ranks = len(loaded_ranks(file))
        processes.spawn(rank_of, (file,), nprocs=ranks)  # type: ignore[no-untyped-call]


def loaded_ranks(file: str) -> list[str]:
    """Return a file's rows."""
    from pipesat.runtimes.programs import order_in

    return order_in(Path(file).read_text(), file).rows


if __name__ == "__main__":
    main()
