"""Annealing at tight memory: how much heat, from the best of list scheduling's schedules.

Deterministic: a run counts steps, not seconds.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

from pipesat.files.problem_file import read_problem

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import pipesat  # noqa: E402
from pipesat.core.microbatch_order import permuted, relabelled  # noqa: E402
from pipesat.core.schedule import Schedule  # noqa: E402
from pipesat.core.timing import time_order  # noqa: E402
from pipesat.heuristics.list_scheduling import list_schedules, policies  # noqa: E402
from pipesat.heuristics.microbatch_orders import permutations  # noqa: E402
from pipesat.solver.permutations import anneal  # noqa: E402
from pipesat.solver.run.clock import Clock  # noqa: E402

PROBLEM = "class-tail-chain-p8-m32-same-tight"
POLICIES = 6  # the first of list scheduling's


def best_start(problem: pipesat.Problem) -> Schedule:
    """The shortest of list scheduling's under every rule."""
    found = []
    for permutation in permutations(problem).values():
        entering = permuted(problem, permutation)
        for made in list_schedules(entering, lambda: False, islice(policies(problem), POLICIES)):
            order = relabelled(problem, made.order, permutation)
            timed = time_order(problem, order)
            if not pipesat.check(problem, timed):
                found.append(timed)
    return min(found, key=lambda schedule: schedule.makespan)


def main(seconds: float, runs: list[str]) -> None:
    """Print what each run, given as heat:seed, ends at within so many deterministic seconds."""
    path = ROOT / "experiments" / "bench-next" / "problems" / f"{PROBLEM}.json"
    problem = read_problem(path)
    start = best_start(problem)
    print(f"start {start.makespan}", flush=True)
    for run in runs:
        heat, seed = run.split(":")
        anneal._HEAT = float(heat)
        annealing = anneal.Annealing(problem, start.order, int(seed))
        for _ in annealing.improved(Clock(seconds, deterministic=True)):
            pass
        print(f"heat {heat} seed {seed}: {annealing.best.makespan}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
