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
    value = best.value(result.objective)
    baseline = Baseline(best.source, value)
    if result.value is not None and value >= result.value:
        return replace(result, baseline=baseline, baselines_left_out=False)
    bound, wrong = tenable(value, result.lower_bound)
    if result.status == "infeasible":
        wrong += (f"said to be infeasible, but {best.source} has {value}: {result.explanation}",)
    before = "nothing" if result.value is None else f"{result.value}"
    news = f"the search ended with {before}; {best.source}, made afterwards, has {value}"
    least = None if bound is None else bound.value
    return replace(
        result,
        status=Standing(value, least).status,
        schedule=best,
        lower_bound=bound,
        baseline=baseline,
        baselines_left_out=False,
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
