"""What a report shows: a result, its schedule and the hand-written ones beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipesat.best_known import with_hand_written
from pipesat.core.result import Result
from pipesat.core.schedule import Schedule
from pipesat.workflows import Row, solver_row, with_ratios


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


def case_of(name: str, result: Result, baselines: Sequence[Shown]) -> Case:
    """Put a case together: ratios filled in, the best schedules that fit first.

    A baseline that is better than the result is the answer.

    Raises
    ------
    Contradiction
        If a schedule that fits is below the answer's bound.
    """
    objective = result.objective
    result = with_hand_written(
        result, [s.schedule for s in baselines if s.schedule is not None and s.row.valid]
    )
    source = "" if result.schedule is None else result.schedule.source
    everything = [Shown(solver_row(result), result.schedule, source), *baselines]
    rows = with_ratios([shown.row for shown in everything], result)
    first, *others = (replace(shown, row=row) for shown, row in zip(everything, rows, strict=True))

    def rank(shown: Shown) -> tuple[bool, bool, int]:
        return shown.schedule is None, not shown.row.valid, shown.row.value(objective) or 0

    return Case(name, result, (first, *sorted(others, key=rank)))
