"""Run orders in OLMo-core's own schedule and stages on CPU ranks: losses and gradients.

``python olmo_cpu.py FILE...``: FILE is an order for OLMo-core, ``loop`` or ``v`` its own schedule
of two ranks and four microbatches. Needs ai2-olmo-core 3.0.0 and what it imports. Its schedule
wants CUDA for a device, a stream and a warm-up sum: these stand in here. All else is OLMo-core's:
slots, sends, receives, stages. Every stage is a product with an 8 x 8 matrix and a tanh, in
float64. Losses and gradients are compared with one process.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn

from pipesat.runtimes.programs import order_in
from tests.support.runtime_stand_ins import loaded

WIDTH, TOKENS = 8, 4
OWN = {"loop": [0, 1, 0, 1], "v": [0, 1, 1, 0]}


class Part(nn.Module):
    """One stage; the last one's output is its loss, as OLMo-core's language model head has it."""

    def __init__(self, number: int, last: bool) -> None:
        super().__init__()
        torch.manual_seed(number)
        self.d_model, self.last = WIDTH, last
        self.product = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Any, labels: Any = None) -> Any:
        """Run the stage."""
        from olmo_core.nn.lm_head import LMOutputWithLoss  # type: ignore[import-not-found]

        y = torch.tanh(self.product(x))
        if not self.last:
            return y
        loss = (y - labels).square().sum()
        return LMOutputWithLoss(None, loss, loss, None)


def without_cuda(olmo: Any) -> None:
    """Let OLMo-core's schedule do without CUDA."""
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value]

    class Offloader:
        def __init__(self, target_device: Any) -> None: ...

        def get_offload_context(self, **_: Any) -> Any:
            return nullcontext()

    olmo.GPUActivationOffloader = Offloader


def rank_of(rank: int, file: str) -> None:
    """Run a step as one rank; the last stage's prints the row."""
    from olmo_core.train.train_module.transformer.pipeline import (  # type: ignore[import-not-found]
        pipeline_schedule as olmo,
    )
    from olmo_core.train.train_module.transformer.pipeline.pipeline_stage import (  # type: ignore[import-not-found]
        CustomPipelineStage,
    )

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29541")
    torch.set_default_dtype(torch.float64)
    placement, m = OWN.get(file, []), 4
    if file not in OWN:
        order = loaded(Path(file)).ORDER
        placement, m = order["placement"], order["microbatches"]
    ranks, count = max(placement) + 1, len(placement)
    without_cuda(olmo)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    group, cpu = dist.group.WORLD, torch.device("cpu")
    parts = {n: Part(n, n == count - 1) for n, home in enumerate(placement) if home == rank}
    stages = [CustomPipelineStage(part, n, count, cpu, group) for n, part in parts.items()]
    for stage in stages:
        stage.p2p_dtype = torch.float64
    base = olmo.CustomScheduleInterleaved1F1B
    if placement != [*range(ranks), *range(ranks)]:
        base = olmo.CustomSchedule1F1BV
    schedule = base(stages, m)
    torch.manual_seed(99)
    inputs, labels = torch.randn(m, TOKENS, WIDTH), torch.randn(m, TOKENS, WIDTH)
    schedule.prepare_step(global_batch_size=m, seqlen=TOKENS)
    own = {"labels": labels} if count - 1 in parts else {}
    outputs = schedule.step(*([inputs] if 0 in parts else []), **own)
    whole = nn.Sequential(*(Part(number, False) for number in range(count)))
    expected = (whole(inputs) - labels).square().sum()
    expected.backward()
    worst = 0.0
    for number, part in parts.items():
        theirs = whole[number].product.weight.grad
        worst = max(worst, float((part.product.weight.grad - theirs).abs().max()))
    found: list[Any] = [None] * ranks
    dist.all_gather_object(found, worst)
    if rank == placement[-1]:
        losses = sum(float(output.loss) for output in outputs[-1])
        slots = len(schedule.pipeline_order[0])
        error = abs(losses - float(expected))
        source, name = schedule.pipeline_order_source, Path(file).stem
        print(f"| {name} | {source} | {slots} | {error:.1e} | {max(found):.1e} |")


def main() -> None:
    print("| order | its source there | slots | losses differ by | gradients differ by |")
    print("|---|---|---|---|---|")
    for file in sys.argv[1:]:
        ranks = 2 if file in OWN else len(order_in(Path(file).read_text(), file).rows)
        processes.spawn(rank_of, (file,), nprocs=ranks)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
