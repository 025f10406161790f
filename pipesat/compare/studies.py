"""Many solves on the same layers: how each is made."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from pipesat.problem.problem import Problem
    from pipesat.schedule.result import Solution
    from pipesat.schedule.schedule import Objective
    from pipesat.schedule.solving import Solve, Starts, Told


def solver_of(objective: Objective, workers: int | None, seed: int) -> Solve:
    """Return how a study solves: with every hand-written schedule, with some, or with none."""
    from pipesat.solver import SolveOptions
    from pipesat.solver import solve as search

    def solve(problem: Problem, *, starts: Starts, **told: Unpack[Told]) -> Solution:
        own = SolveOptions(objective=objective, workers=workers, seed=seed, starts=starts, **told)
        return search(problem, own)

    return solve


def versions() -> dict[str, str]:
    """Versions that results depend on."""
    names = ("pipesat", "ortools", "numpy")
    return {name: importlib.metadata.version(name) for name in names}
