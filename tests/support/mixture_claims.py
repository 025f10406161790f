"""What checker, bounds and a solve of a mixture say, held against the oracle."""

from __future__ import annotations

from random import Random
from typing import Any

from ortools.sat.python import cp_model

import pipesat
from pipesat.bounds.closed_form import closed_form_bounds
from pipesat.core.checker import check
from pipesat.core.ops import parse_copy, parse_item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Schedule, Timed, TimedCopy
from pipesat.files.problem_file import parse_problem
from pipesat.files.schedule_file import in_mode
from pipesat.solver.model.model import build_model
from pipesat.solver.run.runner import FOUND, new_solver
from pipesat.workflows.result import Result
from tests.support.mixtures import mixture
from tests.support.optimum import least_end, least_schedule
from tests.support.oracle_by_instants import Found, Undecided, solve

_SECONDS, _EFFORT = 0.05, 3.0  # deterministic: of a solve, of a question
_EFFORT_OF_MODELS = 8.0
_FAR = 120  # no optimum of a mixture is longer


def held_against_oracle(
    document: dict[str, Any], objective: Objective, seconds: float, effort: float | None = None
) -> tuple[list[str], Result]:
    """Name what holds of one problem; what must never hold ends in ``!``.

    ``seconds``, deterministic, are the solve's, ``effort`` is the oracle's.
    """
    problem = parse_problem(document)
    result = pipesat.solve(problem, objective=objective, deterministic=True, time_limit=seconds)
    names = ["a warning!"] if result.warnings else []
    try:
        found = solve(document, objective, at_most=result.value, effort=effort)
    except Undecided:
        return [*names, "undecided"], result
    if result.value is None:
        infeasible = found is None
        if result.status == "infeasible":
            return [*names, "infeasible" if infeasible else "false infeasible!"], result
        return [*names, "nothing found" if infeasible else "nothing found!"], result
    if found is None:
        return [*names, "better than the optimum!"], result
    best = found.value
    bound = result.bound
    if bound is None or bound.value > best:
        names.append(f"false bound: {bound}, {best}!")
    names += [
        f"false bound: {one}, {best}!"
        for one in closed_form_bounds(problem, objective)
        if one.value > best
    ]
    if result.status == "optimal":
        names.append("proven" if result.value == best else "falsely proven!")
    names.append("at the optimum" if result.value == best else "longer than the optimum")
    takes_time = all(end > start for row in found.devices for _, start, end in row)
    if takes_time and all(end > start for row in found.copies for _, start, end in row):
        wrong = check(problem, schedule_of(problem, found))
        names += [f"the oracle's schedule: {one}!" for one in wrong]
    return names, result


def wrong_of_mixture_s_model(seed: int, objective: Objective) -> list[str]:
    """What the whole model, and both of single devices, say that the oracle refutes.

    Of a mixture without modes, as far as a few deterministic seconds for each question tell.
    """
    document = mixture(Random(seed), with_modes=False).document
    routes = document.get("routes", [document])
    lists = (r["microbatches"] for r in routes if isinstance(r["microbatches"], list))
    classes = [entry for entries in lists for entry in entries]
    outright = (own for entry in classes for own in entry.get("stages", {}).values())
    for amounts in (*document["stages"], *outright):
        amounts.pop("held_in_backward", None)  # the model does not know it
    problem = parse_problem(document)
    known = pipesat.solve(problem, objective=objective, deterministic=True, time_limit=_SECONDS)
    if known.value is None:
        return []
    try:
        found = solve(document, objective, known.value, _EFFORT)
    except Undecided:
        return []
    if found is None:
        return [f"{known.value} is better than the optimum"]
    value, wrong = found.value, []
    if value and _status(problem, objective, value - 1) in FOUND:
        wrong.append(f"the model has a schedule below {value}")
    wrong += _longer_alone(problem, value, objective)
    return wrong + [
        f"the model of {devices or 'all devices'} has no schedule of {value}"
        for devices in (None, *([device] for device in range(len(problem.devices))))
        if _status(problem, objective, value, devices) == cp_model.INFEASIBLE
    ]


def _status(
    problem: Problem, objective: Objective, most: int, devices: list[int] | None = None
) -> cp_model.CpSolverStatus:
    solver = new_solver(0)
    solver.parameters.max_deterministic_time = _EFFORT
    return solver.solve(build_model(problem, objective, 0, most, devices).cp)


def schedule_of(problem: Problem, found: Found) -> Schedule:
    """The oracle's schedule, to be checked."""
    modes = {
        (s, m): 1 + [mode.name for mode in problem.stages[s].modes].index(name)
        for s, m, name in found.modes
    }
    rows = (
        tuple(Timed(in_mode(parse_item(x), modes), a, b) for x, a, b in row)  # type: ignore[arg-type]
        for row in found.devices
    )
    copies = (tuple(TimedCopy(parse_copy(x), a, b) for x, a, b in row) for row in found.copies)
    return Schedule(tuple(rows), "", tuple(copies) if any(found.copies) else ())


def wrong_of_models_over_time(document: dict[str, Any], objective: Objective) -> list[str]:
    """What the models with memory over time say of a mixture that the oracle refutes.

    The whole one in any order is the problem itself; in one order it has a part of its schedules;
    one device alone has a part of its rules, so it is never longer.

    Raises
    ------
    Undecided
        If the oracle's effort was not enough.
    """
    problem = parse_problem(document)
    value, schedule = least_schedule(problem, _FAR, objective) or (None, None)
    found = solve(document, objective, value, _EFFORT_OF_MODELS)
    if found is None or value is None:
        return [] if found is None and value is None else [f"{value}, the oracle has {found}"]
    wrong = [] if value == found.value else [f"{value}, the oracle has {found.value}"]
    wrong += map(str, check(problem, schedule) if schedule else [])
    in_order, _ = least_schedule(problem, _FAR, objective, one_order=True) or (None, None)
    if in_order is not None and in_order < value:
        wrong.append(f"in one order {in_order}, in any {value}")
    return wrong + _longer_alone(problem, value, objective)


def _longer_alone(problem: Problem, value: int, objective: Objective) -> list[str]:
    """Say which devices cannot be done in time, each alone with memory over time."""
    absolute = objective == "makespan"
    return [
        f"device {device} alone takes longer than {value}"
        for device, stages in enumerate(problem.stages_on)
        if stages and least_end(problem, device, value, absolute=absolute) is None
    ]
