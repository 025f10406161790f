"""The independent checker: whether a schedule, as it stands in a file, keeps every rule.

It restates the rules of the contract from the given times alone. It shares no code with the timing
of orders, with :mod:`pipesat.problem.rules` or with the solver's model: a fault there shows here.
"""

from __future__ import annotations

from pathlib import Path

from pipesat.core.arguments import public
from pipesat.core.errors import NotValid, Violation
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule

__all__ = ["Violation", "check", "require_valid"]


@public
def check(problem: Problem, schedule: Schedule) -> list[Violation]:
    """Return every violation; an empty list means that the schedule is valid. O(n log n).

    Parameters
    ----------
    problem
        The problem (a JSON file).
    schedule
        The schedule: a file, a folder that a solve wrote, or the name of a hand-written schedule.
    """
    from pipesat.check.check_schedule import violations_of

    return violations_of(problem, schedule)


def require_valid(problem: Problem, schedule: Schedule, name: str | Path) -> Schedule:
    """Return a schedule that keeps every rule of a problem.

    Raises
    ------
    NotValid
        With all violations, if it breaks some.
    """
    if violations := check(problem, schedule):
        raise NotValid(f"{name} is not a valid schedule", violations)
    return schedule
