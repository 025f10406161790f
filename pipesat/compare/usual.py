"""What most runs use today: the schedule that users compare with."""

from __future__ import annotations

from typing import Final

from pipesat.check.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.heuristics.interleaved import interleaved_1f1b
from pipesat.heuristics.one_f_one_b import one_f_one_b
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective
from pipesat.schedule.timing import retime

_USUAL: Final = {"1F1B": one_f_one_b, "interleaved 1F1B": interleaved_1f1b}
_MOST_OPS_LOOKED_AT: Final = 100_000


def usual(problem: Problem, objective: Objective) -> tuple[str, int | None] | None:
    """Return what most runs use today, and its value: 1F1B, in a loop interleaved 1F1B.

    It has no value if it exceeds memory. ``None``: neither exists here, or breaks another rule, or
    the problem is too large for a look.
    """
    if problem.op_count > _MOST_OPS_LOOKED_AT:
        return None
    for shown, build in _USUAL.items():
        try:
            made = build(problem)
        except NotApplicable:
            continue
        timed = made if objective == "makespan" else retime(problem, made, objective)
        broken = {violation.rule for violation in check(problem, timed)}
        value = None if broken else timed.value(objective)
        return (shown, value) if broken <= {"memory"} else None
    return None
