"""An answer of `solve`, and a closed-form bound, held against the oracle by instants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.checker import check
from pipesat.core.errors import PipesatError
from pipesat.core.schedule import Objective
from pipesat.files.problem_file import parse_problem
from pipesat.workflows.solve import solve
from tests.support.oracle_by_instants import Undecided, optimum


class Verdict(NamedTuple):
    """The status, what is wrong, and whether the oracle came to an end."""

    status: str
    wrong: list[str]
    decided: bool = True


def one_microbatch(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same problem with one microbatch on each route: feasible exactly if it is."""
    if "routes" in document:
        routes = [route | {"microbatches": 1} for route in document["routes"]]
        return dict(document) | {"routes": routes}
    return dict(document) | {"microbatches": 1}


def judged(
    document: Mapping[str, Any], objective: Objective, seconds: float, effort: float | None = None
) -> Verdict:
    """Solve one problem for so many ``seconds`` on one thread, and judge all that is claimed."""
    problem = parse_problem(document)
    try:
        result = solve(problem, objective=objective, time_limit=seconds, workers=1)
    except PipesatError as error:
        return Verdict("error", [str(error)])
    if result.schedule is None:
        feasible = optimum(one_microbatch(document), objective) is not None
        wrong = ["a schedule exists"] if feasible else []
        if result.status != "infeasible":
            wrong.append("unknown")
        return Verdict(result.status, wrong)
    value = result.schedule.value(objective)
    bound = result.lower_bound or 0
    claims = {"bound": bound, "closed form": closed_form_bound(problem, objective).value}
    wrong = [str(violation) for violation in check(problem, result.schedule)]
    least, decided = least_value(document, objective, value, effort)
    if least is None:
        if decided:
            wrong.append(f"value {value}, but no schedule exists")
        return Verdict(result.status, wrong, decided)
    if result.status == "optimal" and value != least:
        wrong.append(f"{value} called optimal, {least} is possible")
    wrong += [
        f"{name} {claim} above {least}, which is possible"
        for name, claim in claims.items()
        if claim > least
    ]
    return Verdict(result.status, wrong, decided)


def least_value(
    document: Mapping[str, Any], objective: Objective, at_most: int | None, effort: float | None
) -> tuple[int | None, bool]:
    """Return the least value that the oracle has found, and whether it is proven."""
    try:
        return optimum(document, objective, at_most, effort), True
    except Undecided as undecided:
        return undecided.found, False
