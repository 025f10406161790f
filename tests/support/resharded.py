"""One of two ranks whose stages FSDP reshards: the gradients of its parameters after a step.

Per case of :data:`CASES` and parameter, the sum of the gradient's squares, or ``None`` without one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from pipesat.measure.processes.connection import connected, local_rank

ORDERS = {
    "in turn": "0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1I1,1W1\n",
    "I after I": "0F0,0F1,0B0,0B1\n1F0,1F1,1I0,1I1,1W0,1W1\n",
    "whole": "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n",
}
CASES = {  # whether FSDP reshards after forwards, whether a chunked loss reshards norm and head
    f"{order}, {name}": (csv, *flags)
    for order, csv in ORDERS.items()
    for name, flags in {"kept": (0, 0), "resharded": (1, 0), "chunked": (0, 1)}.items()
}


class Stage(nn.Module):
    """A block; on the last stage, a norm after it, and a head that a chunked loss runs itself."""

    def __init__(self, last: bool, *, chunked: bool) -> None:
        super().__init__()
        self.block = nn.Linear(8, 8)
        self.norm, self.head = (nn.RMSNorm(8), nn.Linear(8, 8)) if last else (None, None)
        self.chunked = chunked

    def forward(self, x: Any) -> Any:
        x = torch.tanh(self.block(x))
        if self.norm is not None:
            x = self.norm(x)
        return x if self.head is None or self.chunked else self.head(x)


class Bridge(torch.autograd.Function):
    """A loss whose gradient is known: what a chunked loss hands to the pipeline."""

    @staticmethod
    def forward(context: Any, hidden: Any, gradient: Any, loss: Any) -> Any:
        context.save_for_backward(gradient)
        return loss.detach()

    @staticmethod
    def backward(context: Any, *_: Any) -> Any:
        return context.saved_tensors[0], None, None


def chunked_loss(head: Any, hidden: Any, target: Any) -> Any:
    """Run the head and a backward chunk by chunk; then its group of weights is resharded."""
    head.unshard()
    total, gradients = hidden.new_zeros(()), []
    for chunk, wanted in zip(hidden.detach().chunk(2), target.chunk(2), strict=True):
        chunk.requires_grad_()
        loss = (head(chunk) - wanted).square().mean()
        loss.backward()
        total = total + loss.detach()
        gradients.append(chunk.grad)
    head.reshard()
    return Bridge.apply(hidden, torch.cat(gradients), total)


def gradients(
    rank: int, csv: str, resharded: int, chunked: int, folder: Path
) -> dict[str, float | None]:
    """Run one step and return the sums of squares."""
    torch.manual_seed(rank)
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("pp", "dp"))
    stage = Stage(rank == 1, chunked=bool(chunked))
    options: dict[str, Any] = {"mesh": mesh["dp"], "reshard_after_forward": bool(resharded)}
    fully_shard(stage.block, **options)
    if rank == 1:
        fully_shard([stage.norm, stage.head], **options)
    fully_shard(stage, **options)
    on = PipelineStage(stage, rank, 2, torch.device("cpu"), group=mesh.get_group("pp"))

    def loss_of(output: Any, target: Any) -> Any:
        if chunked:
            return chunked_loss(stage.head, output, target)
        return sum(
            (one - other).square().mean()
            for one, other in zip(output.chunk(2), target.chunk(2), strict=True)
        )

    runtime = _PipelineScheduleRuntime([on], 2, loss_fn=loss_of, scale_grads=False)
    path = folder / f"{rank}.csv"
    path.write_text(csv)
    runtime._load_csv(str(path))
    x, target = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0))
    runtime.step(*([x] if rank == 0 else []), target=target if rank else None)
    return {
        name: None if p.grad is None else float(p.grad.full_tensor().square().sum())
        for name, p in stage.named_parameters()
    }


def run_as_rank(folder: Path, rank: int) -> dict[str, dict[str, float | None]]:
    """Run all cases as one of two ranks."""
    with connected(300, **local_rank(folder, rank, 2)):
        return {name: gradients(rank, *case, folder) for name, case in CASES.items()}
