"""Nothing is made of a schedule before the checker has passed it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipesat.core.checker import check
from pipesat.core.errors import BadInput, NotValid
from pipesat.core.result import Result

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule


def valid_schedule(problem: Problem, schedule: Schedule | Result | str | Path) -> Schedule:
    """Return a schedule that keeps every rule of a problem.

    Parameters
    ----------
    schedule
        A schedule, the result that has it, or the path of a schedule file.

    Raises
    ------
    NotValid
        With all violations, if the checker refuses it.
    BadInput
        If the result has no schedule, or the file cannot be read.
    """
    name = "the schedule"
    if isinstance(schedule, Result):
        if schedule.schedule is None:
            raise BadInput(f"the result has no schedule: it is {schedule.status}")
        schedule = schedule.schedule
    elif isinstance(schedule, str | Path):
        from pipesat.files.schedule_file import read_schedule

        name = str(schedule)
        schedule = read_schedule(schedule, problem)
    if violations := check(problem, schedule):
        raise NotValid(f"{name} is not a valid schedule", violations)
    return schedule
