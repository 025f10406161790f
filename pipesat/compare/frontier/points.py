"""The frontier: value and bound at every cap, within one time limit.

First a schedule with unlimited memory, whose peak says up to where memory can matter. Then every
cap gets a share of the time, from the largest down, so that bounds are handed to smaller caps. What
is left goes to the cap with the largest gap per second spent on it, twice as long each time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipesat.compare.frontier.capacities import (
    Cap,
    Scale1F1B,
    attainable,
    choose_caps,
    least_feasible_cap,
    scale_of,
)
from pipesat.compare.frontier.curve import Curve, KnownSchedule, size
from pipesat.compare.frontier.solves import Study
from pipesat.core.claims import Bound, Standing
from pipesat.core.progress import doing
from pipesat.heuristics import BASELINES
from pipesat.heuristics.registry import Build
from pipesat.problem.problem import Problem
from pipesat.schedule.result import Baseline
from pipesat.schedule.schedule import Schedule
from pipesat.solver.options import SolveOptions

_FIRST_ROUND = 0.35  # of the time
_UNLIMITED = 3  # times as much for unlimited memory, which the choice of caps rests on
_SHARE_OF_HIGHEST = 0.1  # of the time left, to find where memory stops to matter
_SHARE_BETWEEN, _MOST_BETWEEN = 0.03, 500  # of the time left, and caps, for bounds between points
_GLANCE = 1.0  # second, for a schedule at all
_UNKNOWN_GAP = 1.0  # where there is no schedule yet
_LEAST_SPENT = 0.1  # seconds


@dataclass(frozen=True)
class CapRow:
    """What is known about one cap: the best schedule that fits and the bound.

    ``baseline`` is the best hand-written schedule that fits; ``seconds`` those of its own solves.
    """

    cap: Cap
    known: KnownSchedule | None
    bound: Bound | None
    standing: Standing
    baseline: Baseline | None
    seconds: float


@dataclass(frozen=True)
class Frontier:
    """A curve at its caps, ascending, unlimited last, and the hand-written schedules by name."""

    curve: Curve
    rows: tuple[CapRow, ...]
    published: Mapping[str, KnownSchedule]
    scale: Scale1F1B | None
    wall_s: float


def trace(
    problem: Problem,
    options: SolveOptions,
    *,
    caps: Sequence[int] | None = None,
    count: int = 12,
    baselines: Mapping[str, Build] | None = None,
    known: Sequence[Schedule] = (),
    also: Sequence[int] = (),
) -> Frontier:
    """Return the best value and bound at each of some caps, and with unlimited memory.

    Parameters
    ----------
    options
        How each is solved; the time limit is for everything. Ends early once every cap is proven.
    caps
        Caps to look at; by default ``count`` of them, see
        :func:`pipesat.compare.frontier.capacities.choose_caps`.
    baselines
        Hand-written schedules by name: points to compare with, and schedules to start from.
    known
        Valid schedules that count from the start.
    also
        Caps that are among those chosen by default, if within their range.

    A bound that a checked schedule contradicts is dropped, and stands in the curve's
    ``contradictions``.
    """
    study = Study.begun(problem, options, baselines, known)
    curve, deadline = study.curve, study.deadline
    rounds = _UNLIMITED + (len(caps) if caps is not None else count)
    share = _FIRST_ROUND * deadline.left / rounds
    if not deadline.over:
        study.work(None, _UNLIMITED * share)
    if caps is None:
        caps = choose_caps(problem, _highest(study, share), count, also)
    for cap in caps:
        if not deadline.over:
            curve.prove_by_arithmetic(cap)
    if curve.best(min(caps)) is None and not options.stop.is_set():
        # though the time may be over: what fits there fits everywhere
        study.work(min(caps), min(share, _GLANCE))
    for cap in sorted(caps, reverse=True):
        if not deadline.over and curve.standing(cap).status not in ("optimal", "infeasible"):
            study.work(cap, share)
    _refuse_between(study, caps)
    _refine(study, [*caps, None], share)
    rows = tuple(_row(study, cap) for cap in [*caps, None])
    return Frontier(curve, rows, study.published, scale_of(problem), deadline.seconds)


@doing("finding where more memory buys nothing")
def _highest(study: Study, share: float) -> int:
    """The smallest cap found at which the best value of all is reached: more buys nothing."""
    curve, deadline = study.curve, study.deadline
    best, least = curve.best(None), least_feasible_cap(curve.problem)
    if best is None:
        return least
    amounts = attainable(curve.problem, best.peak)
    amounts = amounts[bisect_left(amounts, least) :]
    expires = deadline.seconds + _SHARE_OF_HIGHEST * deadline.left
    study.narrow(amounts, best.value, share / 4, expires, fall_only=True)
    return curve.meeting(best.value)[0].peak


@doing("bounds between the capacities")
def _refuse_between(study: Study, caps: Sequence[int]) -> None:
    """Bound the caps between those that are solved, by arithmetic: the picture shows them all."""
    curve, deadline = study.curve, study.deadline
    expires = deadline.seconds + _SHARE_BETWEEN * deadline.left
    between = [cap for cap in attainable(curve.problem, max(caps)) if cap > min(caps)]
    for cap in between[:: 1 + len(between) // _MOST_BETWEEN]:
        if deadline.over or deadline.seconds >= expires:
            return
        curve.prove_by_arithmetic(cap)


def _refine(study: Study, caps: Sequence[Cap], share: float) -> None:
    """Spend the rest of the time where it promises most."""

    def promise(cap: Cap) -> float:
        standing = study.curve.standing(cap)
        gap = 0.0 if standing.infeasible else standing.gap
        return (_UNKNOWN_GAP if gap is None else gap) / max(study.spent.get(cap, 0.0), _LEAST_SPENT)

    while not study.deadline.over:
        cap = max(caps, key=lambda cap: (promise(cap), size(cap)))
        if promise(cap) == 0:
            return
        study.work(cap, max(share, study.spent.get(cap, 0.0)))


def _row(study: Study, cap: Cap) -> CapRow:
    curve = study.curve
    fitting = [
        Baseline(name, known.value)
        for name, known in study.published.items()
        if known.peak <= size(cap)
    ]
    fitting += [best for where, best in study.baselines.items() if size(where) <= size(cap)]
    found = (one for one in curve.schedules if one.peak <= size(cap))  # for another cap, perhaps
    fitting += [Baseline(s, one.value) for one in found if (s := one.schedule.source) in BASELINES]
    baseline = min(fitting, key=lambda baseline: baseline.value, default=None)
    seconds = study.spent.get(cap, 0.0)
    standing = curve.standing(cap)
    bound = None if standing.infeasible else curve.bound(cap)
    return CapRow(cap, curve.best(cap), bound, standing, baseline, seconds)
