"""What a report shows: a result, its schedule and the hand-written ones beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipesat.result import Result
from pipesat.schedule import Schedule
from pipesat.workflows import SOLVER_ROW, Row, against_best, row_of


@dataclass(frozen=True)
class Shown:
    """A schedule with its line of the comparison; without a schedule, the reason is in the row.

    ``source`` says where it was published; ``schedule`` is timed for the result's objective.
    """

    row: Row
    schedule: Schedule | None
    source: str

    @property
    def name(self) -> str:
        """What the report calls it: ``solver`` or a baseline's name."""
        return self.row.name


@dataclass(frozen=True)
class Case:
    """One result and all schedules of its problem, the solver's first; ``name`` of several."""

    name: str
    result: Result
    shown: tuple[Shown, ...]


def solver_row(result: Result) -> Shown:
    """Return the solver's own line."""
    if result.schedule is None:
        row = Row(SOLVER_ROW, why_not=result.explanation or "no schedule found in time")
        return Shown(row, None, "")
    row = row_of(SOLVER_ROW, result.problem, result.schedule)
    return Shown(row, result.schedule, result.schedule.source)


def case_of(name: str, result: Result, baselines: Sequence[Shown]) -> Case:
    """Put a case together: ratios filled in, the best schedules that fit first."""
    objective = result.objective
    bound = result.lower_bound
    everything = [solver_row(result), *baselines]
    rows = against_best([shown.row for shown in everything], objective)
    for i, row in enumerate(rows):
        value = row.value(objective)
        if value is not None and bound is not None and bound.value:
            rows[i] = replace(row, ratio_to_bound=value / bound.value)
    first, *others = (replace(shown, row=row) for shown, row in zip(everything, rows, strict=True))

    def rank(shown: Shown) -> tuple[bool, bool, int]:
        return shown.schedule is None, not shown.row.valid, shown.row.value(objective) or 0

    return Case(name, result, (first, *sorted(others, key=rank)))
