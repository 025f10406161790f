"""The answer to a problem is the best schedule that was built for it and checked, whoever made it.

A search that ends at its time limit may not have seen all hand-written schedules that a command
builds afterwards, to compare with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pipesat.core.checker import check
from pipesat.core.claims import Standing, tenable
from pipesat.core.result import Baseline, Improvement, Result
from pipesat.core.schedule import Schedule


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
    before = "nothing" if result.value is None else f"{result.value}"
    news = f"the search ended with {before}; {best.source}, {how}, has {value}"
    least = None if bound is None else bound.value
    return replace(
        result,
        status=Standing(value, least).status,
        schedule=best,
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
