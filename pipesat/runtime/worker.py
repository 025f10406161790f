"""One rank: its stages in torch's pipeline runtime, connected to the others by gloo."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

from pipesat.runtime.model import build_stage, loss_of, whole_batch
from pipesat.runtime.plan import (
    Plan,
    answer_file,
    gradient_name,
    loss_name,
    order_file,
    progress_file,
    rank_name,
    read_plans,
)
from pipesat.runtime.torch_api import TorchApi


def run_rank(api: TorchApi, folder: Path, rank: int, timeout: float) -> None:
    """Run every plan as rank ``rank``; ``timeout`` in seconds also bounds each communication."""
    torch.set_num_threads(1)
    plans = list(read_plans(folder))
    ranks = len(plans[0].rows)
    distributed.init_process_group(
        "gloo",
        store=distributed.FileStore(str(folder / "rendezvous"), ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=timeout),
    )
    for number, plan in enumerate(plans):
        order = order_file(folder, number)
        with progress_file(folder, rank_name(rank), number).open("w", buffering=1) as progress:
            answer = run_plan(api, plan, rank, order, lambda text: print(text, file=progress))
        np.savez(answer_file(folder, rank_name(rank), number), **answer)
        distributed.barrier()  # no rank leaves while another still listens to it
    distributed.destroy_process_group()


def run_plan(
    api: TorchApi, plan: Plan, rank: int, order: Path, record: Callable[[str], object]
) -> dict[str, Any]:
    """Run one training step in the order of a CSV file.

    Returns the gradients of the rank's parameters and, on the last stage's rank, the losses. The
    loss scales gradients, not the runtime, which would scale old ones or a shared weight's twice.
    """
    stage_class = recording(api.stage, record)
    device = torch.device("cpu")
    modules = {stage: build_stage(stage, plan.stages) for stage in plan.stages_on[rank]}
    stages = [
        stage_class(submodule=m, stage_index=s, num_stages=plan.stages, device=device)
        for s, m in modules.items()
    ]
    runtime = api.runtime(
        stages,
        plan.microbatches,
        loss_fn=lambda output, target: loss_of(output, target) / plan.microbatches,
        scale_grads=False,
    )
    runtime._load_csv(str(order))
    tokens, targets = whole_batch(plan.microbatches)
    losses: list[Any] = []
    runtime.step(
        *([tokens] if 0 in modules else []),
        target=targets if plan.stages - 1 in modules else None,
        losses=losses,
        return_outputs=False,
    )
    answer = {
        loss_name(i): loss.detach().numpy() * plan.microbatches for i, loss in enumerate(losses)
    }
    return answer | {
        gradient_name(stage, name): parameter.grad.numpy()
        for stage, module in modules.items()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def recording(base: Any, record: Callable[[str], object]) -> Any:
    """Derive a stage class that tells ``record`` every action that it is made to compute."""

    class RecordedStage(base):
        def forward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            record(f"{self.stage_index}F{chunk}")
            return super().forward_one_chunk(chunk, *args, **kwargs)

        def backward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            record(f"{self.stage_index}{'B' if kwargs.get('full_backward', True) else 'I'}{chunk}")
            return super().backward_one_chunk(chunk, *args, **kwargs)

        def backward_weight_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            record(f"{self.stage_index}W{chunk}")
            return super().backward_weight_one_chunk(chunk, *args, **kwargs)

    return RecordedStage
