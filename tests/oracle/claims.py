"""What pipesat says of a problem, held against the oracle: the one module here that imports it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any

from ortools.sat.python import cp_model

import pipesat
from pipesat.bounds.closed_form import closed_form_bounds
from pipesat.bounds.feasibility import sure_order
from pipesat.bounds.given_order import HeadsAndTails, heads_and_tails
from pipesat.check.checker import check
from pipesat.core.claims import Bound
from pipesat.core.errors import Infeasible, NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.heuristics.microbatch_orders import entered_by, permutations
from pipesat.problem.ops import parse_copy, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.schedule import Objective, Order, Schedule, Timed, TimedCopy
from pipesat.schedule.schedule_file import in_mode
from pipesat.schedule.timing import retime, time_order
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.model.model import build_model
from pipesat.solver.proof.search import ProofSearch
from pipesat.solver.proof.whole import Whole
from tests.oracle.exact import Found, Undecided, optimum, solve
from tests.oracle.reading import KINDS, Document, Pipe
from tests.oracle.rules import Timed as Judged
from tests.oracle.rules import broken_rules
from tests.support.optimum import least_end, least_schedule

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
EFFORT = 0.5
"""Deterministic seconds of an oracle's question; what it leaves open counts as right."""


def schedule_of(problem: Problem, found: Found) -> Schedule:
    """The oracle's schedule, as pipesat's."""
    modes = {
        (s, m): 1 + [mode.name for mode in problem.stages[s].modes].index(name)
        for (s, m), name in found.modes.items()
    }
    rows = (
        tuple(Timed(in_mode(parse_item(x), modes), a, b) for x, a, b in row)
        for row in found.devices
    )
    copies = (tuple(TimedCopy(parse_copy(x), a, b) for x, a, b in row) for row in found.copies)
    return Schedule(tuple(rows), "", tuple(copies) if any(found.copies) else ())


def judged(document: Document, schedule: Schedule) -> tuple[list[str], Judged]:
    """What the rules say of pipesat's schedule, and the schedule as they read it."""
    pipe = Pipe(document)
    names = [["keep", *(mode["name"] for mode in s.get("modes", []))] for s in document["stages"]]
    timed = Judged(
        pipe,
        [[(str(t.item), t.start, t.end) for t in row] for row in schedule.devices],
        [[(str(t.copy), t.start, t.end) for t in row] for row in schedule.copies],
        {(s, m): names[s][mode] for (s, m), mode in schedule.modes.items()},
    )
    return broken_rules(timed), timed


def least(document: Document, objective: str, at_most: int | None) -> tuple[int | None, bool]:
    """The oracle's optimum of at most a value, and whether it came to an end."""
    try:
        return optimum(document, objective, at_most, EFFORT), True
    except Undecided as undecided:
        return undecided.found, False


def wrong_of_bounds(document: Document, objective: Objective) -> Iterator[str]:
    """Closed forms above what is possible; feasibility and the schedule that then exists."""
    problem = parse_problem(document)
    order: Order | None
    try:
        order = sure_order(problem)
    except Infeasible:
        if least(document, objective, None)[0] is not None:
            yield "called infeasible"
        return
    except NotApplicable:  # none was found, so nothing is claimed
        order = None
    least_time = min(x for s in document["stages"] for key, x in s.items() if key in KINDS)
    if order and (least_time or not problem.has_modes):  # else what shares an instant may matter
        sure = time_order(problem, order, objective)
        yield from map(str, check(problem, sure))
        yield from judged(document, sure)[0]
    bounds = [*closed_form_bounds(problem, objective)]
    highest = max(bounds, key=lambda bound: bound.value)
    possible, _ = least(document, objective, highest.value - 1)
    if possible is not None:
        yield f"{possible} is possible: {[b for b in bounds if b.value > possible]}"


def wrong_of_solve(document: Document, objective: Objective, seconds: float = 0.2) -> Iterator[str]:
    """What a solve of so many deterministic seconds claims against the oracle."""
    problem = parse_problem(document)
    result = pipesat.solve(problem, objective=objective, deterministic=True, time_limit=seconds)
    yield from result.warnings
    best, decided = least(document, objective, result.value)
    if result.schedule is None:
        if best is not None or result.status != "infeasible":
            yield f"{result.status} without a schedule, the oracle has {best}"
        return
    yield from map(str, check(problem, result.schedule))
    broken, timed = judged(document, result.schedule)
    yield from broken
    value = timed.makespan if objective == "makespan" else timed.span
    if result.value != value:
        yield f"value {result.value}, but the schedule's is {value}"
    bound = result.lower_bound
    if bound is None or bound > (best if best is not None else value):
        yield f"bound {bound}, {best} is possible"
    if decided and (best is None or best > value):
        yield f"{value}, the oracle has {best}"
    if (result.status == "optimal") != (bound == value):
        yield f"{result.status} with {bound} and {value}"


def wrong_of_checker(document: Document, objective: Objective) -> Iterator[str]:
    """Checker and rules that disagree on the oracle's schedule, or on one with a fault in it."""
    try:
        found = solve(document, objective, effort=EFFORT)
    except Undecided:
        return
    if found is None:
        return
    problem = parse_problem(document)
    schedule = schedule_of(problem, found)
    yield from map(str, check(problem, schedule))
    yield from judged(document, schedule)[0]
    chance = Random(f"{document}")
    for _ in range(8):
        moved = _moved(schedule, chance)
        ours, theirs = bool(judged(document, moved)[0]), bool(check(problem, moved))
        if ours != theirs:
            yield f"{moved.devices}, {moved.copies}: {judged(document, moved)[0]}, {theirs}"


def _moved(schedule: Schedule, chance: Random) -> Schedule:
    """One op or copy at another time, or in another place of its row; or two in exchange."""
    several = [
        (name, number)
        for name, rows in (("devices", schedule.devices), ("copies", schedule.copies))
        for number, row in enumerate(rows)
        if row
    ]
    name, number = chance.choice(several)
    rows: list[Any] = [*getattr(schedule, name)]
    row = [*rows[number]]
    at = chance.randrange(len(row))
    if name == "devices" and chance.random() < 0.4:
        other = chance.randrange(len(row))
        one, two = row[at].item, row[other].item
        row[at], row[other] = row[at]._replace(item=two), row[other]._replace(item=one)
    else:
        by = chance.choice([-2, -1, 1, 2])
        row[at] = row[at]._replace(start=row[at].start + by, end=row[at].end + by)
        if chance.random() < 0.5:
            row.sort(key=lambda timed: (timed.start, timed.end))
    rows[number] = tuple(row)
    return replace(schedule, **{name: tuple(rows)})


def wrong_of_model(document: Document, objective: Objective) -> Iterator[str]:
    """The whole model, and the relaxations to some devices, against the oracle's optimum."""
    best, decided = least(document, objective, None)
    if not decided:
        return
    problem = parse_problem(document)
    longest = Pipe(document).horizon
    value, schedule = least_of_model(problem, objective, longest)
    if value != best:
        yield f"the model has {value}, the oracle {best}"
    line = heads_and_tails(problem, objective)
    narrow, _ = least_of_model(problem, objective, longest, line=line)
    if narrow != best:
        yield f"with heads and tails the model has {narrow}, the oracle {best}"
    if schedule is not None:
        yield from map(str, check(problem, schedule))
        if schedule.value(objective) != value:
            yield f"{value} is timed as {schedule.value(objective)}"
    used = [device for device, stages in enumerate(problem.stages_on) if stages]
    few = (kept for size in range(1, len(used)) for kept in combinations(used, size))
    for devices in few if best is not None else ():
        alone, _ = least_of_model(problem, objective, longest, [*devices], line)
        if alone is None or alone > (best or 0):
            yield f"devices {devices} alone have {alone}, the oracle {best}"


def least_of_model(
    problem: Problem,
    objective: Objective,
    most: int,
    devices: list[int] | None = None,
    line: HeadsAndTails | None = None,
) -> tuple[int | None, Schedule | None]:
    """Value and schedule of the model, or of the relaxation that keeps some devices."""
    model = build_model(problem, objective, 0, most, devices, line=line)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model.cp)
    if status == cp_model.INFEASIBLE:
        return None, None
    assert status == cp_model.OPTIMAL
    order = model.order(solver.value)
    timed = None if devices else time_order(problem, order, objective)
    return model.bound(round(solver.objective_value)), timed


def wrong_of_models_over_time(document: Document, objective: Objective) -> Iterator[str]:
    """The models with memory over time: of all devices, in one order, of one device."""
    problem = parse_problem(document)
    longest = Pipe(document).horizon
    value, schedule = least_schedule(problem, longest, objective) or (None, None)
    best, decided = least(document, objective, value)
    if decided and best != value:
        yield f"{value}, the oracle has {best}"
    if value is None or schedule is None:
        return
    yield from map(str, check(problem, schedule))
    in_order, _ = least_schedule(problem, longest, objective, one_order=True) or (None, None)
    if in_order is not None and in_order < value:
        yield f"in one order {in_order}, in any {value}"
    absolute = objective == "makespan"
    for device, stages in enumerate(problem.stages_on) if problem.chains_only else ():
        if stages and least_end(problem, device, value, absolute=absolute) is None:
            yield f"device {device} alone takes longer than {value}"


def wrong_of_proofs(document: Document, objective: Objective, steps: int = 40) -> Iterator[str]:
    """The proof search from no bound and a schedule that is sure, so that there is much to prove.

    In as many steps; then the whole model, which small problems with modes are asked as well.
    """
    problem = parse_problem(document)
    clock = Clock(60.0, deterministic=True)
    incumbent = Incumbent(problem, objective, clock)
    incumbent.raise_bound(Bound(0, "nothing"))
    try:
        incumbent.offer(sure_order(problem), "sure")
    except (Infeasible, NotApplicable):
        return
    if incumbent.value is None:  # where ops of no time share an instant
        return
    proofs, runner = ProofSearch(problem, incumbent, seed=0), Runner(clock)
    while steps and not (proofs.finished or incumbent.proven):
        steps -= 1
        proofs.step(runner)
    if problem.has_modes:
        whole = Whole(problem, incumbent, runner=runner, seed=0)
        while steps and whole.step():
            steps -= 1
    yield from incumbent.faults
    assert incumbent.schedule is not None
    yield from judged(document, incumbent.schedule)[0]
    bound, value = incumbent.bound.value, incumbent.value
    possible, _ = least(document, objective, bound - 1)
    if possible is not None or bound > value:
        yield f"{incumbent.bound}, {possible if possible is not None else value} is possible"


def wrong_of_hand_written(document: Document, objective: Objective) -> Iterator[str]:
    """Every hand-written schedule that applies: complete and in order; the two judges agree.

    Microbatches enter in every order that may do.
    """
    problem = parse_problem(document)
    for (name, published), order in product(BASELINES.items(), permutations(problem).items()):
        try:
            schedule = retime(problem, entered_by(published, problem, *order), objective)
        except NotApplicable:
            continue
        broken, found = judged(document, schedule)[0], check(problem, schedule)
        rules = {what.partition(":")[0] for what in broken}
        if bool(broken) != bool(found) or rules - {"memory", "order"}:
            yield f"{name}, {order[0]}: {broken}, {[*map(str, found)]}"


CLAIMS = {
    "bounds": wrong_of_bounds,
    "solve": wrong_of_solve,
    "checker": wrong_of_checker,
    "model": wrong_of_model,
    "proofs": wrong_of_proofs,
    "hand-written": wrong_of_hand_written,
}
"""What is held against the oracle, by name; ``model`` knows no modes and no x of backwards."""
