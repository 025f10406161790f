"""What a report shows: a result, its schedule and the hand-written ones beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipesat.core.result import Result
from pipesat.core.schedule import Schedule
from pipesat.workflows.best_known import with_hand_written
from pipesat.workflows.hand_written import baselines as every_baseline
from pipesat.workflows.hand_written import hand_written_for
from pipesat.workflows.rows import ScheduleRow, solver_row, with_ratios


@dataclass(frozen=True)
class Shown:
    """A schedule with its line of the comparison; without a schedule, the reason is in the row.

    ``source`` says where it was published; ``schedule`` is timed for the result's objective.
    """

    row: ScheduleRow
    schedule: Schedule | None
    source: str

    @property
    def name(self) -> str:
        """What the report calls it: ``solver`` or a baseline's name."""
        return self.row.name


@dataclass(frozen=True)
class ReportedCase:
    """One result and all schedules of its problem, the solver's first; ``name`` of several."""

    name: str
    result: Result
    shown: tuple[Shown, ...]


def baselines_of(result: Result) -> list[Shown]:
    """Return the hand-written schedules of the problem that was solved."""
    return [
        Shown(row, schedule, every_baseline()[row.baseline].source)
        for row, schedule in hand_written_for(result.problem, result.target, result.objective)
    ]


def case_of(name: str, result: Result, baselines: Sequence[Shown]) -> ReportedCase:
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
    published = every_baseline().get(source)
    if published is not None:
        source = f"{source}: {published.source}"
    everything = [Shown(solver_row(result), result.schedule, source), *baselines]
    rows = with_ratios([shown.row for shown in everything], result)
    first, *others = (replace(shown, row=row) for shown, row in zip(everything, rows, strict=True))

    def rank(shown: Shown) -> tuple[bool, bool, int]:
        return shown.schedule is None, not shown.row.valid, shown.row.value(objective) or 0

    return ReportedCase(name, result, (first, *sorted(others, key=rank)))
