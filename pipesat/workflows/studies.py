"""Many solves on the same layers: how each is made."""

from __future__ import annotations

import contextlib
import importlib.metadata
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Unpack

from pipesat.core.errors import NotApplicable

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Solution
    from pipesat.core.schedule import Objective, Schedule
    from pipesat.core.solving import Solve, Starts, Told


def solver_of(objective: Objective, workers: int | None, seed: int) -> Solve:
    """Return how a study solves: with every hand-written schedule, with some, or with none."""
    from pipesat.solver import solve as search
    from pipesat.workflows.solve import solve as solve_with_all

    def solve(problem: Problem, *, starts: Starts, **told: Unpack[Told]) -> Solution:
        expires = time.monotonic() + told["time_limit"]
        if starts == "all":
            return solve_with_all(problem, objective=objective, workers=workers, seed=seed, **told)
        greedy = _greedy(problem, lambda: time.monotonic() > expires) if starts == "greedy" else ()
        return search(
            problem, objective=objective, workers=workers, seed=seed, warm_starts=greedy, **told
        )

    return solve


def _greedy(problem: Problem, give_up: Callable[[], bool]) -> Iterator[Schedule]:
    """Schedules for any capacities that are made in no time."""
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.list_scheduling import list_schedules
    from pipesat.heuristics.lockstep import lockstep_schedules

    with contextlib.suppress(NotApplicable):
        yield BASELINES["zb-auto"](problem)
    if problem.overlap is not None and problem.plain:
        yield from islice(lockstep_schedules(problem, give_up), 2)
    yield from list_schedules(problem, give_up)


def versions() -> dict[str, str]:
    """Versions that results depend on."""
    names = ("pipesat", "ortools", "numpy")
    return {name: importlib.metadata.version(name) for name in names}
