"""Train with d9d's own executor in exported orders, on gloo ranks: losses and gradients compared.

``python experiments/runtimes/d9d_cpu.py D9D``: the folder that has the package, as pip installs it
with ``--target``. Its stages, executor, program cache and communication run as they are. What needs
a cluster or a GPU stands in: the context (a mesh of the ranks) and the device of receive buffers.
Every case is one run of two steps of other numbers of microbatches. Prints rows of a table.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from functools import partial, reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, sys.argv[1])

import torch
from torch import distributed, multiprocessing
from torch.distributed.device_mesh import init_device_mesh

from pipesat.compare.exports import export
from pipesat.compare.hand_written import baseline
from pipesat.problem.problem_file import parse_problem
from tests.support.runtime_stand_ins import loaded

WIDTH = 8
CASES = {
    "1f1b": ("chain", "1f1b", False),
    "zb-h1": ("chain", "zb-h1", False),
    "interleaved-1f1b": ("loop", "interleaved-1f1b", False),
    "zb-v": ("vee", "zb-v", False),
    "1f1b, lengths differ": ("chain", "1f1b", True),
    "zb-h1, lengths differ": ("chain", "zb-h1", True),
    "zb-v, lengths differ": ("vee", "zb-v", True),
}
PLACES = {"chain": [0, 1, 2], "loop": [0, 1, 2, 0, 1, 2], "vee": [0, 1, 2, 2, 1, 0]}
RANKS = 3


class Stage(torch.nn.Module):
    """A matrix, and what d9d asks of a module: the shape that crosses its edges."""

    def __init__(self, number: int) -> None:
        super().__init__()
        torch.manual_seed(number)
        self.linear = torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, inputs: Any, shared: Any) -> Any:
        del shared
        return torch.tanh(self.linear(inputs))

    def stage_transfer_spec(self, pipeline_input: Any, boundary: Any) -> Any:
        from d9d.core.types import TensorSpec  # type: ignore[import-not-found]

        del boundary
        return TensorSpec(shape=tuple(pipeline_input.shape), dtype=pipeline_input.dtype)


def batch(microbatches: int, differ: bool) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(100 + microbatches)
    rows = [1 + (3 * number % 4) if differ else 2 for number in range(microbatches)]
    return tuple(torch.randn(count, WIDTH, dtype=torch.float64) for count in rows)


def problem_of(place: str, microbatches: int, differ: bool) -> Any:
    lengths = [1 + (3 * number % 4) for number in range(microbatches)]
    listed = [
        {"name": f"{n}", "count": 1, "time": [x, 1], "held": [x, 1]} for n, x in enumerate(lengths)
    ]
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": listed if differ else microbatches,
            **({"order": "free"} if differ else {}),
            "devices": [{}] * RANKS,
            "stages": [{"device": d, "F": 4, "B": 5, "W": 3} for d in PLACES[place]],
        }
    )


def loss_of(output: torch.Tensor, number: int) -> torch.Tensor:
    return (number + 1) * output.square().sum()


def of_rank(rank: int, folder: str, differ: bool) -> None:
    torch.set_num_threads(1)
    store = distributed.FileStore(f"{folder}/store", RANKS)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    from d9d.pipelining.factory import factory  # type: ignore[import-not-found]
    from d9d.pipelining.infra.stage import communications  # type: ignore[import-not-found]

    def on_cpu(self: Any, spec: Any) -> torch.Tensor:
        grad = {"requires_grad": self._requires_grad}
        return torch.empty(spec.shape, dtype=spec.dtype, layout=spec.layout, **grad)

    communications.StageReceiver._allocate_buffer = on_cpu
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("pp",))
    context = SimpleNamespace(mesh_for=lambda _: mesh, logger=logging.getLogger("d9d"))
    made = [loaded(Path(folder, f"order{m}.py")) for m in (6, 7)]
    config = made[1].PipesatSchedule(made[0].ORDER)
    build = partial(factory._build_schedule_distributed, context, config)
    info, modules = build(lambda stage: Stage(stage.current_stage))
    stages = info.schedule._stages
    for microbatches in (6, 7, 6):
        losses: dict[int, torch.Tensor] = {}

        def loss(output: torch.Tensor, number: int) -> torch.Tensor:
            losses[number] = loss_of(output, number)  # noqa: B023
            return losses[number]  # noqa: B023

        inputs = batch(microbatches, differ)
        info.schedule.step(inputs, (None,) * microbatches, loss)
        text = {number: float(value.detach()) for number, value in losses.items()}
        torch.save(text, f"{folder}/losses{rank}")
    torch.save(
        {s: [p.grad for p in m.parameters()] for s, m in zip(stages, modules, strict=True)},
        f"{folder}/gradients{rank}",
    )
    distributed.destroy_process_group()


def alone(stages: int, differ: bool) -> tuple[dict[int, float], list[list[Any]]]:
    modules = [Stage(number) for number in range(stages)]
    for microbatches in (6, 7, 6):
        losses = {}
        for number, given in enumerate(batch(microbatches, differ)):
            loss = loss_of(reduce(lambda x, module: module(x, None), modules, given), number)
            loss.backward()
            losses[number] = float(loss.detach())
    return losses, [[p.grad for p in module.parameters()] for module in modules]


def main() -> None:
    for name, (place, order, differ) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            for microbatches in (6, 7):
                problem = problem_of(place, microbatches, differ)
                export(
                    problem,
                    baseline(order, problem),
                    "d9d",
                    Path(folder, f"order{microbatches}.py"),
                )
            multiprocessing.spawn(of_rank, (folder, differ), RANKS)
            wanted, gradients = alone(len(PLACES[place]), differ)
            losses, off = {}, 0.0
            for rank in range(RANKS):
                losses |= torch.load(f"{folder}/losses{rank}")
                for stage, found in torch.load(f"{folder}/gradients{rank}").items():
                    pairs = zip(found, gradients[stage], strict=True)
                    off = max(off, *(float((a - b).abs().max() / b.abs().max()) for a, b in pairs))
            apart = max(abs(losses[n] / wanted[n] - 1) for n in wanted)
            print(
                f"| {name} | {RANKS}, {len(PLACES[place])} | {apart:.1e} | {off:.1e} |", flush=True
            )


if __name__ == "__main__":
    main()
