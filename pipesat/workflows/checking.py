"""Checking a schedule: every rule of a problem, and whether its order can hang."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from pipesat.core import checker
from pipesat.core.arguments import public
from pipesat.hangs.machine import RuleName
from pipesat.workflows.valid import valid_schedule

if TYPE_CHECKING:
    from pipesat.core.errors import Violation
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule
    from pipesat.hangs.verdict import Verdict


@overload
def check(problem: Problem, schedule: Schedule, runtime: None = None) -> list[Violation]: ...
@overload
def check(problem: Problem, schedule: Schedule, runtime: RuleName) -> Verdict: ...
@public
def check(
    problem: Problem, schedule: Schedule, runtime: RuleName | None = None
) -> list[Violation] | Verdict:
    """Return every violation; an empty list means that the schedule is valid. O(n log n).

    With a ``runtime``, return whether a valid one can hang under its rule: docs/runtimes.md says
    what each rule means, and where sends and receives are posted.

    Parameters
    ----------
    problem
        The problem (a JSON file).
    schedule
        The schedule: a file, a folder that a solve wrote, or the name of a hand-written schedule.
    runtime
        Say whether the order can hang where sends and receives run by this rule: ``pair-fifo`` for
        torch over NCCL, ``group`` for one communicator of all ranks; ``None``: not asked.

    Raises
    ------
    NotValid
        If there is a ``runtime``, and the schedule is not valid.
    """
    if runtime is None:
        return checker.check(problem, schedule)
    from pipesat.hangs.verdict import verdict

    return verdict(problem, valid_schedule(problem, schedule), runtime)
