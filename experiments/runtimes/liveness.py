"""Activations in flight, by pipesat and by torch's own analysis of liveness, of exported orders.

``python experiments/runtimes/liveness.py``, with a torch that has
``analyze_pipeline_activation_liveness``: every hand-written schedule that torch runs in some
chains, loops and Vs is exported, and read by torch's parser. Slots of every rank are compared with
the peak of a problem in which each (stage, microbatch) holds 1 from its F to its BW or W. Prints
rows of a table.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from torch.distributed.pipelining import schedules

from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.runtimes.torch.adapt import adapt
from pipesat.runtimes.torch.csv_file import torch_csv
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.schedule import Schedule
from tests.support.problems import chain, loop, vee

HELD = {"held_after_F": 1, "held_after_B": 1, "F": 2, "B": 2, "W": 1, "overlap": [9, 10]}
SIZES = ((2, 4), (3, 8), (4, 8), (4, 16), (8, 16))


def slots(problem: Problem, schedule: Schedule) -> list[int]:
    """What torch says, of each rank."""
    runtime = schedules._PipelineScheduleRuntime.__new__(schedules._PipelineScheduleRuntime)
    rows = csv.reader(torch_csv(problem, schedule).splitlines())
    order = {rank: [*map(schedules._Action.from_str, row)] for rank, row in enumerate(rows)}
    runtime.pipeline_order_with_comms = order
    runtime._n_microbatches = problem.routes[0].microbatches
    return [
        schedules.analyze_pipeline_activation_liveness(
            runtime, pp_rank=rank, stage_indices=stages, granularity="stage_microbatch"
        ).num_slots
        for rank, stages in enumerate(problem.stages_on)
    ]


def main() -> None:
    for place, make in {
        "chain": chain,
        "loop": lambda p, m, **c: loop(p, 2, m, **c),
        "V": vee,
    }.items():
        found: dict[str, Counter[str]] = {}
        for p, m in SIZES:
            problem = make(p, m, **HELD)
            for name, build in BASELINES.items():
                try:
                    adapted = adapt(problem, build(problem))
                except NotApplicable:
                    continue
                ours = peak_memory(adapted.problem, adapted.schedule)
                same = ours == slots(adapted.problem, adapted.schedule)
                found.setdefault(name, Counter())["equal" if same else f"differs: {p}, {m}"] += 1
        for name, counts in found.items():
            print(f"| {place} | {name} | {', '.join(f'{n} {x}' for x, n in counts.items())} |")


if __name__ == "__main__":
    main()
