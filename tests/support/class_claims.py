"""What the exact model, its relaxations and a solve say of microbatches that differ."""

from __future__ import annotations

from itertools import product

from ortools.sat.python import cp_model

import pipesat
from pipesat.core.checker import check
from pipesat.core.ops import members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.timing import time_order
from pipesat.solver.model.model import build_model

MOST = 4000


def least_of_model(
    problem: Problem, objective: Objective, devices: list[int] | None = None
) -> tuple[int | None, Schedule | None]:
    """Value and schedule of the model, or of the relaxation that keeps some devices."""
    model = build_model(problem, objective, 0, MOST, devices)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model.cp)
    if status == cp_model.INFEASIBLE:
        return None, None
    assert status == cp_model.OPTIMAL
    order = model.order(solver.value)
    timed = None if devices else time_order(problem, order, objective)
    return model.bound(round(solver.objective_value)), timed


def wrong_of_model(problem: Problem, optimum: int | None, objective: Objective) -> list[str]:
    """What model and relaxations say that an oracle's optimum refutes."""
    value, schedule = least_of_model(problem, objective)
    wrong = [] if value == optimum else [f"the model has {value}, the oracle {optimum}"]
    if schedule is not None:
        found = check(problem, schedule) or ([] if keeps_the_rule(problem, schedule) else ["rule"])
        if found or schedule.value(objective) != value:
            wrong.append(f"{value} is timed as {schedule.value(objective)}: {found}")
    for device in range(len(problem.devices)) if optimum is not None else ():
        alone = least_of_model(problem, objective, [device])[0]
        if alone is None or alone > (optimum or 0):
            wrong.append(f"device {device} alone has {alone}, the oracle {optimum}")
    return wrong


def wrong_of_solve(problem: Problem, optimum: int | None, objective: Objective) -> list[str]:
    """What a solve says that an oracle's optimum refutes."""
    result = pipesat.solve(problem, objective=objective, time_limit=0.2, deterministic=True)
    value = result.value
    bound = result.lower_bound
    if result.warnings:
        return [str(result.warnings)]
    if optimum is None:
        return [] if result.status == "infeasible" else [f"{result.status}, but nothing fits"]
    if value is None or bound is None or not bound <= optimum <= value:
        return [f"{bound} to {value}, the oracle {optimum}"]
    if (result.status == "optimal") != (bound == value):
        return [f"{result.status} with {bound} and {value}"]
    assert result.schedule is not None
    return [] if keeps_the_rule(problem, result.schedule) else ["the rule about the order"]


def keeps_the_rule(problem: Problem, schedule: Schedule) -> bool:
    """Whether forwards and backwards of every stage come in an order that the rule allows.

    For one route, and ops that take time.
    """
    started: dict[tuple[int, bool], list[tuple[int, int]]] = {
        key: [] for key in product(range(len(problem.stages)), (True, False))
    }
    for _, timed in schedule:
        for op in members(timed.item):  # type: ignore[arg-type]
            if op.kind != "W":
                started[op.stage, op.kind == "F"].append((timed.start, op.microbatch))
    orders = {tuple(m for _, m in sorted(own)) for own in started.values()}
    if problem.order == "given":
        return orders == {tuple(range(problem.microbatches[0]))}
    return problem.order == "free" or len(orders) == 1
