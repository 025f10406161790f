"""Optima of models and counts that the product asks yes or no questions of."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import reject
from ortools.sat.python import cp_model

from pipesat.bounds.memory_counts import Knapsack
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective, Schedule
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.proof.device_alone import DeviceAlone
from pipesat.solver.proof.whole import WHOLE, WholeModel
from tests.oracle.exact import Undecided, optimum
from tests.support.problems import document


def solved(cp: cp_model.CpModel) -> cp_model.CpSolver:
    """Return the solver with a model's optimum, without which the test fails."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(cp) == cp_model.OPTIMAL
    return solver


def decided(problem: Problem, objective: Objective = "makespan") -> int:
    """Return the oracle's optimum of a drawn problem; one that it finds hard is drawn in vain."""
    try:
        best = optimum(document(problem), objective, effort=0.5)
    except Undecided:
        reject()
    assert best is not None
    return best


def _least(cp: cp_model.CpModel, value: cp_model.IntVar) -> cp_model.CpSolver | None:
    """Solve a model to its least ``value``, however long it takes; ``None`` if there is none."""
    cp.minimize(value)
    solver, status = Runner(Clock(math.inf)).solve(
        cp, limit=math.inf, seed=0, strong=True, linear=False
    )
    return solver if status == cp_model.OPTIMAL else None


def least_end(problem: Problem, device: int, most: int, *, absolute: bool) -> int | None:
    """Solve a device's model to its optimum, ``most`` at most; ``None`` if there is none."""
    model = DeviceAlone(problem, device, most, absolute=absolute)
    solver = _least(model.cp, model.value)
    return None if solver is None else solver.value(model.value)


def least_schedule(
    problem: Problem, most: int, objective: Objective = "makespan", *, one_order: bool = False
) -> tuple[int, Schedule] | None:
    """Solve the whole model to its optimum, ``most`` at most; ``None`` if there is none."""
    model = WholeModel(problem, most, objective, one_order=one_order)
    solver = _least(model.cp, model.value)
    return None if solver is None else (solver.value(model.value), model.schedule(solver, WHOLE))


def most_work(items: Sequence[tuple[int, int, int]], slack: int | None) -> int:
    """Upper bound on the work that memory admits, of items ``(size, work, count)``."""
    kinds = Knapsack([[(size, work)] for size, work, _ in items])
    found: int = kinds.most([count for *_, count in items], slack)
    return found
