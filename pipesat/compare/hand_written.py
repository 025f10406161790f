"""The hand-written schedules of a problem: one by name, all with their lines, the best orders."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pipesat.check.checker import check
from pipesat.compare import result as own
from pipesat.core.arguments import public
from pipesat.core.claims import ratio, ratio_to_least
from pipesat.core.errors import BadInput, NotApplicable, first_of, require
from pipesat.core.grouping import firsts
from pipesat.core.names import hint, named, spelled
from pipesat.schedule.metrics import bubbles, peak_memory
from pipesat.schedule.timing import retime

if TYPE_CHECKING:
    from pipesat.heuristics.registry import Published
    from pipesat.problem.problem import Problem
    from pipesat.schedule.result import Solution
    from pipesat.schedule.schedule import Objective, Order, Schedule


SOLVER_ROW = "solver"


@dataclass(frozen=True)
class ScheduleRow:
    """One line of a comparison; figures are ``None`` where the schedule does not apply.

    ``makespan`` is that of the earliest timing of the order, ``span`` that of its timing by minimum
    span; the bubbles are of these two. ``valid`` is False with the reason in ``why_not``. The
    ratios are of the objective: to the best valid row, and of a valid one to the lower bound of the
    row's problem: nothing is proven of more memory than it has.
    ``schedule`` is timed for the objective asked for, whether it is valid or not.
    """

    name: str
    makespan: int | None = None
    span: int | None = None
    bubble: dict[str, float | None] | None = None
    peak_memory: list[int] | None = None
    valid: bool = False
    why_not: str | None = None
    ratio_to_best: float | None = None
    ratio_to_bound: float | None = None
    placement: str | None = None
    schedule: own.Schedule | None = field(default=None, repr=False, compare=False)

    def document(self) -> dict[str, Any]:
        """Return the line ready for JSON, without the schedule."""
        names = (one.name for one in fields(self) if one.name != "schedule")
        return {name: getattr(self, name) for name in names}

    @property
    def baseline(self) -> str:
        """The hand-written schedule's name, without the rule by which microbatches enter."""
        return self.name.partition(", ")[0]

    def value(self, objective: Objective) -> int | None:
        """Makespan or span."""
        return self.makespan if objective == "makespan" else self.span


def solver_row(result: own.Result) -> ScheduleRow:
    """Return the answer's own row."""
    if result.schedule is None:
        return ScheduleRow(SOLVER_ROW, why_not=result.explanation or "no schedule found in time")
    row = row_of(SOLVER_ROW, result.problem, result.schedule)
    return replace(row, schedule=result.schedule)


def row_of(
    name: str, problem: Problem, schedule: Schedule, objective: Objective = "makespan"
) -> ScheduleRow:
    """Measure one schedule's order, timed for each objective in turn; valid if both timings are."""
    earliest = retime(problem, schedule)
    by_span = retime(problem, schedule, "span")
    violations = check(problem, earliest)
    if not violations and by_span.devices != earliest.devices:
        violations = check(problem, by_span)
    timed = earliest if objective == "makespan" else by_span
    return ScheduleRow(
        name,
        makespan=earliest.makespan,
        span=by_span.span,
        bubble={"makespan": bubbles(problem, earliest)[0], "span": bubbles(problem, by_span)[1]},
        peak_memory=peak_memory(problem, earliest),
        valid=not violations,
        why_not=first_of([one.message for one in violations]) if violations else None,
        schedule=own.Schedule.of_problem(replace(timed, source=name), problem),
    )


def with_ratios(rows: Iterable[ScheduleRow], result: Solution) -> list[ScheduleRow]:
    """Return the rows with their ratios to the result's bound and to the best valid one."""
    bound = result.lower_bound

    def to_bound(row: ScheduleRow) -> float | None:
        value = row.value(result.objective) if row.valid else None
        return ratio_to_least(value, bound, row.name)

    rows = [replace(row, ratio_to_bound=to_bound(row)) for row in rows]
    return against_best(rows, result.objective)


def against_best(rows: Iterable[ScheduleRow], objective: Objective) -> list[ScheduleRow]:
    """Return the rows with their ratios to the best valid one of them."""
    rows = list(rows)
    values = [row.value(objective) for row in rows if row.valid]
    best = min((value for value in values if value is not None), default=None)
    return [replace(row, ratio_to_best=ratio(row.value(objective), best)) for row in rows]


_SLOW = {"v-auto"}  # seconds, where others take milliseconds


@public
def baseline(
    name: str, problem: Problem, microbatches: str = "given", group: int | None = None
) -> own.Schedule:
    """Return one hand-written schedule, timed as early as possible; it may exceed memory.

    Parameters
    ----------
    microbatches
        The order in which microbatches that differ enter: ``given``, ``descending``, ``ascending``
        or ``both-ends`` (small ones first and last).
    group
        Microbatches per group of ``interleaved-1f1b`` and ``interleaved-overlapped``, Megatron-LM's
        ``microbatch_group_size_per_vp_stage``, at most their number; ``None``: one per device.

    Raises
    ------
    BadInput
        If there is no baseline or order of that name, or it has no groups of that size.
    NotApplicable
        If it does not fit the problem's placement.
    """
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.microbatch_orders import RULES, entered_by, permutation_by

    name, microbatches = (
        named("baseline", name, BASELINES),
        named("microbatches", microbatches, RULES),
    )
    permutation = permutation_by(problem, microbatches)
    entry = BASELINES[name] if group is None else _in_groups(name, group)
    if group is not None and group > (most := max(problem.microbatches)):
        raise BadInput(f"expected at most {most}, the microbatches", where="group", value=group)
    return own.Schedule.of_problem(entered_by(entry, problem, microbatches, permutation), problem)


def in_words(text: str, problem: Problem) -> tuple[str, Problem, str, int | None]:
    """Return what :func:`baseline` takes, from ``NAME[, groups of N][, RULE]``."""
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.microbatch_orders import RULES

    said = re.fullmatch(r"([^,]*)(?:, ?groups of ([1-9][0-9]{0,6}))?(?:, ?([^,]*))?", text)
    name = spelled(said[1], BASELINES) if said else None
    if said is None or name is None:
        near = hint(text.partition(",")[0], BASELINES)
        expected = f"no such file, and no schedule's name: expected one of {', '.join(BASELINES)}"
        raise BadInput(expected + near, source=text)
    rule = named("SCHEDULE", said[3] or "given", RULES)
    return name, problem, rule, None if said[2] is None else int(said[2])


def _in_groups(name: str, group: int) -> Published:
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.interleaved import IN_GROUPS

    require(
        name in IN_GROUPS,
        f"only {' and '.join(IN_GROUPS)} have groups of a size to choose, {name} has none",
        where="group",
        value=group,
    )
    source = f"{name}, groups of {group}"
    build = partial(IN_GROUPS[name], group=group, source=source)
    return replace(BASELINES[name], build=build)


def baselines() -> Mapping[str, Published]:
    """Return all hand-written schedules by name, with their placements and sources.

    Call one with a problem to build it; :func:`pipesat.compare` builds all that apply.
    """
    from pipesat.heuristics import BASELINES

    return BASELINES


def hand_written(problem: Problem, objective: Objective) -> Iterator[ScheduleRow]:
    """Yield a row per baseline.

    Where microbatches differ, another row has the best order of microbatches by a rule, if that is
    better than the order given.
    """
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.microbatch_orders import GIVEN, entered_by, permutations

    orders = permutations(problem)
    for name, function in BASELINES.items():
        try:
            rows = {
                rule: row_of(
                    name if rule == GIVEN else f"{name}, {rule}",
                    problem,
                    entered_by(function, problem, rule, permutation),
                    objective,
                )
                for rule, permutation in orders.items()
            }
        except NotApplicable as error:
            yield ScheduleRow(name, why_not=str(error))
            continue
        best = min(rows, key=lambda rule: (*_worth(rows[rule], objective), rule != GIVEN))
        for rule in dict.fromkeys((GIVEN, best)):
            yield rows[rule]


def hand_written_for(
    problem: Problem, target: str | None, objective: Objective
) -> list[ScheduleRow]:
    """Return a row per baseline as it runs in a runtime.

    Where the runtime runs one of several problems, the better row of each.
    """
    from pipesat.runtimes import problems_for

    found: dict[str, ScheduleRow] = {}
    for one in problems_for(problem, target):
        for row in hand_written(one, objective):
            kept = found.get(row.name)
            if kept is None or _worth(row, objective) < _worth(kept, objective):
                found[row.name] = row
    return [*found.values()]


def _worth(row: ScheduleRow, objective: Objective) -> tuple[bool, float]:
    value = row.value(objective)
    return not row.valid, math.inf if value is None else value


def best_orders(problem: Problem, objective: Objective, most: int) -> dict[str, Order]:
    """Return different orders of the best ``most`` hand-written schedules that fit, by name."""
    rows = hand_written(problem, objective) if most else ()
    found = firsts(
        (row.schedule.order, row) for row in rows if row.schedule is not None and row.valid
    )
    best = sorted(found, key=lambda order: _worth(found[order], objective))[:most]
    return {found[order].name: order for order in best}


def published() -> dict[str, Callable[[Problem], Schedule]]:
    """Return the published schedules by name, the slow one last; list scheduling is ours."""
    from pipesat.heuristics import BASELINES, LIST_SCHEDULING

    names = [name for name in BASELINES if name != LIST_SCHEDULING]
    return {name: BASELINES[name] for name in sorted(names, key=lambda name: name in _SLOW)}
