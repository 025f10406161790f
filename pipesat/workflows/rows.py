"""The line of a schedule among others of its problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipesat.core.checker import Violation, check
from pipesat.core.claims import ratio, ratio_to_least
from pipesat.core.metrics import bubbles, peak_memory
from pipesat.core.timing import retime

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Objective, Schedule

SOLVER_ROW = "solver"


@dataclass(frozen=True)
class ScheduleRow:
    """One line of a comparison; figures are ``None`` where the schedule does not apply.

    ``makespan`` is that of the earliest timing of the order, ``span`` that of its timing by minimum
    span; the bubbles are of these two. ``valid`` is False with the reason in ``why_not``. The
    ratios are of the objective: to the best valid row, and to the lower bound of the row's problem.
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

    @property
    def baseline(self) -> str:
        """The hand-written schedule's name, without the rule by which microbatches enter."""
        return self.name.partition(", ")[0]

    def value(self, objective: Objective) -> int | None:
        """Makespan or span."""
        return self.makespan if objective == "makespan" else self.span


def solver_row(result: Result) -> ScheduleRow:
    """Return the answer's own row."""
    if result.schedule is None:
        return ScheduleRow(SOLVER_ROW, why_not=result.explanation or "no schedule found in time")
    return row_of(SOLVER_ROW, result.problem, result.schedule)


def row_of(name: str, problem: Problem, schedule: Schedule) -> ScheduleRow:
    """Measure one schedule's order, timed for each objective in turn; valid if both timings are."""
    earliest = retime(problem, schedule)
    by_span = retime(problem, schedule, "span")
    violations = check(problem, earliest)
    if not violations and by_span.devices != earliest.devices:
        violations = check(problem, by_span)
    return ScheduleRow(
        name,
        makespan=earliest.makespan,
        span=by_span.span,
        bubble={"makespan": bubbles(problem, earliest)[0], "span": bubbles(problem, by_span)[1]},
        peak_memory=peak_memory(problem, earliest),
        valid=not violations,
        why_not=_summary(violations) if violations else None,
    )


def _summary(violations: list[Violation]) -> str:
    first = violations[0].message
    return first if len(violations) == 1 else f"{first} (and {len(violations) - 1} more)"


def with_ratios(rows: Iterable[ScheduleRow], result: Result) -> list[ScheduleRow]:
    """Return the rows with their ratios to the result's bound and to the best valid one."""
    bound = result.lower_bound

    def to_bound(row: ScheduleRow) -> float | None:
        value = row.value(result.objective)
        return ratio_to_least(value, bound, row.name) if row.valid else ratio(value, bound)

    rows = [replace(row, ratio_to_bound=to_bound(row)) for row in rows]
    return against_best(rows, result.objective)


def against_best(rows: Iterable[ScheduleRow], objective: Objective) -> list[ScheduleRow]:
    """Return the rows with their ratios to the best valid one of them."""
    rows = list(rows)
    values = [row.value(objective) for row in rows if row.valid]
    best = min((value for value in values if value is not None), default=None)
    return [replace(row, ratio_to_best=ratio(row.value(objective), best)) for row in rows]
