"""An answer beside all schedules of its problem: the best that was built and checked, by whomever.

A search that ends at its time limit may not have seen all hand-written schedules that a command
builds afterwards, to compare with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pipesat.check.checker import check
from pipesat.compare import result as own
from pipesat.compare.hand_written import (
    SOLVER_ROW,
    ScheduleRow,
    hand_written_for,
    row_of,
    solver_row,
    with_ratios,
)
from pipesat.compare.result import Result
from pipesat.core.amounts import time_text
from pipesat.core.claims import Standing, at_most, excess, percent, ratio, require_best, tenable
from pipesat.core.grouping import grouped
from pipesat.problem.problem import Problem
from pipesat.schedule.metrics import measure
from pipesat.schedule.result import Baseline, Improvement
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.summary import over_text
from pipesat.schedule.timing import retime

_CAUSES = {"input": "for inputs", "memory": "for memory", "unforced": "without need"}


@dataclass(frozen=True)
class Comparison:
    """The rows of one problem, and the answer to it; ``placement`` if there are several.

    ``given`` has a user's own schedules as they are, by the names of their rows.

    Raises
    ------
    Contradiction
        If a valid row is better than the answer, or below its bound.
    """

    placement: str | None
    problem: Problem
    result: Result
    rows: tuple[ScheduleRow, ...]
    given: Mapping[str, Schedule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        objective = self.result.objective
        valid = [(row.name, row.value(objective)) for row in self.rows if row.valid]
        require_best(SOLVER_ROW, self.result.value, valid)

    @property
    def own(self) -> list[ScheduleRow]:
        """The rows of a user's own schedules."""
        return [row for row in self.rows if row.name in self.given]

    def above(self, row: ScheduleRow) -> str:
        """Say how far a row is above the best, and above the optimum at most."""
        result, value, bound = self.result, row.value(self.result.objective), self.result.bound
        if not row.valid:
            over = row.schedule and over_text(self.problem, row.schedule)
            return f"does not fit into memory: {over or row.why_not}"
        above = excess(value, result.value, row.name)
        if result.standing.proven:
            return f"{percent(above)} above the optimum{self._why(row)}" if above else "optimal"
        said = (
            "as good as the best found" if above == 0 else f"{percent(above)} above the best found"
        )
        if bound is not None and bound.value > 0:
            said += f", at most {at_most(excess(value, bound.value, row.name))} above the optimum"
        return said + self._why(row) if above else said

    def later(self, row: ScheduleRow) -> str:
        """Say by how much a schedule's own times end later than its order, which is compared."""
        later = self.given[row.name].makespan - (row.makespan or 0)
        time = time_text(later, self.problem.time_unit)
        return f". Its own times end {time} later than its order can" if later > 0 else ""

    def _why(self, row: ScheduleRow) -> str:
        """Say which device waits longest beyond what it waits in the best schedule, for what."""
        problem, best = self.problem, self.result.schedule
        assert row.schedule is not None and best is not None  # noqa: S101, PT018
        metrics, theirs = measure(problem, row.schedule), measure(problem, best)
        longer, cause, number = max(
            (getattr(own, name) - getattr(other, name), name, number)
            for number, (own, other) in enumerate(zip(metrics.devices, theirs.devices, strict=True))
            for name in _CAUSES
        )
        if longer <= 0:
            return ""
        time, share = time_text(longer, problem.time_unit), ratio(longer, metrics.makespan)
        return (
            f". {problem.device_name(number)} waits {time} longer {_CAUSES[cause]} than in the "
            f"best schedule, {percent(share, 0)} of the time"
        )


def comparison_of(
    result: Result,
    placement: str | None = None,
    given: Mapping[str, Schedule] | None = None,
    made: Sequence[ScheduleRow] | None = None,
) -> Comparison:
    """Make every baseline of a result's problem; the best of all is the answer.

    ``given`` has a user's schedules, by name, ``made`` the baselines if not all. The rows' ratios
    to the best are those within the comparison.
    """
    problem, objective = result.problem, result.objective
    made = hand_written_for(problem, result.target, objective) if made is None else made
    valid = [row.schedule for row in made if row.schedule is not None and row.valid]
    result = with_hand_written(result, valid)
    given = given or {}
    timed = [retime(problem, schedule, objective, name) for name, schedule in given.items()]
    result = with_given(result, [schedule for schedule in timed if not check(problem, schedule)])
    rows = with_ratios([*made, *rows_of_own(made, given, problem), solver_row(result)], result)
    placed = tuple(replace(row, placement=placement) for row in rows)
    return Comparison(placement, problem, result, placed, given)


def rows_of_own(
    rows: Sequence[ScheduleRow], given: Mapping[str, Schedule], problem: Problem
) -> list[ScheduleRow]:
    """Rows of a user's schedules, but of one by name that has its row already."""
    there = {row.name for row in rows}
    return [row_of(name, problem, given[name]) for name in given if name not in there]


def over_capacity(problem: Problem, row: ScheduleRow) -> list[int]:
    """Return the devices that hold more than their capacity."""
    held = zip(problem.devices, row.peak_memory or (), strict=False)
    return [n for n, (d, peak) in enumerate(held) if d.memory is not None and peak > d.memory]


def why_not(rows: Iterable[ScheduleRow]) -> list[tuple[str, list[str]]]:
    """Return the reasons of rows, each with their names, most names first."""
    groups = grouped((row.why_not or "", row.name) for row in rows)
    # a schedule may have a row in each of several placements
    found = [(why, [*dict.fromkeys(names)]) for why, names in groups.items()]
    return sorted(found, key=lambda group: (-len(group[1]), group[0]))


def with_hand_written(result: Result, schedules: Iterable[Schedule]) -> Result:
    """Return a result whose answer is the best of its own and of hand-written schedules.

    Parameters
    ----------
    schedules
        All that there are, timed for the result's objective; what breaks a rule of the problem is
        passed over.

    A proof that one of them refutes is dropped, and stands in ``contradictions``.
    """
    best = _best(result, schedules)
    if best is None:
        return result
    baseline = Baseline(best.source, best.value(result.objective))
    return replace(
        _answered_by(result, best, "made afterwards"), baseline=baseline, baselines_left_out=False
    )


def with_given(result: Result, schedules: Iterable[Schedule]) -> Result:
    """Return a result whose answer is the best of its own and of valid schedules of a user.

    They are timed for the result's objective; the best baseline stays the best hand-written one.
    """
    best = min(schedules, key=lambda schedule: schedule.value(result.objective), default=None)
    return result if best is None else _answered_by(result, best, "given")


def _answered_by(result: Result, best: Schedule, how: str) -> Result:
    """Return a result with this schedule as its answer, if it is better."""
    value = best.value(result.objective)
    if result.value is not None and value >= result.value:
        return result
    bound, wrong = tenable(value, result.bound)
    if result.status == "infeasible":
        wrong += (f"said to be infeasible, but {best.source} has {value}: {result.explanation}",)
    said = partial(time_text, unit=result.problem.time_unit)
    before = "nothing" if result.value is None else said(result.value)
    news = f"the search ended with {before}; {best.source}, {how}, has {said(value)}"
    least = None if bound is None else bound.value
    return replace(
        result,
        status=Standing(value, least).status,
        schedule=own.Schedule.of_problem(best, result.problem),
        bound=bound,
        history=(*result.history, Improvement(result.wall_s, value, least, best.source)),
        explanation="; ".join(filter(None, (result.explanation, news, *wrong))),
        contradictions=(*result.contradictions, *wrong),
    )


def _best(result: Result, schedules: Iterable[Schedule]) -> Schedule | None:
    """The best valid one, if it is better than the best hand-written one that is known."""
    best, least = None, None if result.baseline is None else result.baseline.value
    for schedule in schedules:
        value = schedule.value(result.objective)
        if (least is None or value < least) and not check(result.problem, schedule):
            best, least = schedule, value
    return best
