"""What checker, bounds and a solve of a mixture say, held against the oracle."""

from __future__ import annotations

from typing import Any

import pipesat
from pipesat.bounds.one_device import closed_form_bounds
from pipesat.core.checker import check
from pipesat.core.ops import parse_copy, parse_item
from pipesat.core.problem import Problem
from pipesat.core.result import Result
from pipesat.core.schedule import Objective, Schedule, Timed, TimedCopy
from pipesat.files.problem_file import parse_problem
from pipesat.files.schedule_file import in_mode
from tests.support.oracle_with_modes import Found, Undecided, solve


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
    bound = result.lower_bound
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
