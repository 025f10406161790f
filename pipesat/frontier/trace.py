"""The frontier: value and bound at every cap, within one time limit.

First a schedule with unlimited memory, whose peak says up to where memory can matter. Then every
cap gets a share of the time, from the largest down, so that bounds are handed to smaller caps. What
is left goes to the cap with the largest gap per second spent on it, twice as long each time.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.checker import check
from pipesat.core.claims import Bound, Standing, Status, excess, require_best
from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.progress import doing
from pipesat.core.result import Baseline
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.solving import Deadline, Listener, Solve
from pipesat.frontier.caps import (
    Cap,
    Scale1F1B,
    amounts_held,
    at_cap,
    attainable,
    choose_caps,
    least_feasible_cap,
    scale_of,
)
from pipesat.frontier.curve import Curve, KnownSchedule, Study, size
from pipesat.frontier.smallest import meeting, narrow
from pipesat.heuristics.registry import Build

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

    ``over_best`` is what its value is more than the best of all, as a share; ``baseline`` the best
    hand-written schedule that fits; ``seconds`` those of its own solves.
    """

    cap: Cap
    share: float | None
    known: KnownSchedule | None
    bound: Bound | None
    gap: float | None
    status: Status
    over_best: Fraction | None
    baseline: Baseline | None
    seconds: float


@dataclass(frozen=True)
class Frontier:
    """A curve at its caps, ascending, unlimited last, and the hand-written schedules."""

    curve: Curve
    rows: tuple[CapRow, ...]
    points: tuple[PublishedPoint, ...]
    scale: Scale1F1B | None
    wall_s: float

    def require_consistent(self) -> None:
        """Raise :class:`Contradiction` if a row is not what its curve says, or one beats another.

        What fits into less fits into more: values fall with the cap, and no hand-written schedule
        that fits is better than the row.
        """
        points = [(size(p.known.peak), p.name, p.known.value) for p in self.points]
        smaller: list[tuple[float, str, int]] = []
        for row in self.rows:
            name, value = f"cap {row.cap}", None if row.known is None else row.known.value
            Standing(value, None if row.bound is None else row.bound.value, of=name).require_status(
                row.status
            )
            fitting = [(n, v) for peak, n, v in (*points, *smaller) if peak <= size(row.cap)]
            if row.baseline is not None:
                fitting.append(row.baseline)
            require_best(name, value, fitting)
            if value is not None:
                smaller.append((size(row.cap), name, value))


def trace(
    problem: Problem,
    *,
    solve: Solve,
    objective: Objective = "makespan",
    caps: Sequence[int] | None = None,
    count: int = 12,
    time_limit: float = 600.0,
    baselines: Mapping[str, Build] | None = None,
    known: Sequence[Schedule] = (),
    also: Sequence[int] = (),
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Frontier:
    """Return the best value and bound at each of some caps, and with unlimited memory.

    Parameters
    ----------
    caps
        Caps to look at; by default ``count`` of them, see
        :func:`pipesat.frontier.caps.choose_caps`.
    baselines
        Hand-written schedules by name: points to compare with, and schedules to start from.
    known
        Valid schedules that count from the start.
    also
        Caps to look at besides those chosen by default, if within their range.
    time_limit
        Seconds for everything. Ends early once every cap is proven.

    A bound that a checked schedule contradicts is dropped, and stands in the curve's
    ``contradictions``.
    """
    deadline = Deadline(time_limit, stop or threading.Event())
    study = Study(Curve(problem, objective), solve, deadline, listener)
    curve = study.curve
    curve.prove(None, closed_form_bound(at_cap(problem, None), objective))
    for schedule in known:
        curve.know(schedule)
    points = tuple(published_points(curve, baselines or {}, lambda: study.deadline.over))
    study.hand_written_s = study.deadline.seconds
    rounds = _UNLIMITED + (len(caps) if caps is not None else count)
    share = _FIRST_ROUND * study.deadline.left / rounds
    if not study.deadline.over:
        study.work(None, _UNLIMITED * share)
    if caps is None:
        chosen = choose_caps(problem, _highest(study, share), count)
        caps = sorted({*chosen, *(cap for cap in also if chosen[0] <= cap <= chosen[-1])})
    every: list[Cap] = [*caps, None]
    for cap in caps:
        if not study.deadline.over:
            curve.prove(cap, closed_form_bound(at_cap(problem, cap), objective))
    if not study.deadline.over and curve.best(min(caps)) is None:
        study.work(min(caps), min(share, _GLANCE))  # what fits there fits everywhere
    for cap in sorted(caps, reverse=True):
        if not study.deadline.over and curve.status(cap) != "optimal":
            study.work(cap, share)
    _refuse_between(study, caps, study.deadline.seconds + _SHARE_BETWEEN * study.deadline.left)
    _refine(study, every, share)
    scale = scale_of(problem)
    rows = tuple(_row(study, cap, points, scale) for cap in every)
    return Frontier(curve, rows, points, scale, study.deadline.seconds)


@doing("finding where more memory buys nothing")
def _highest(study: Study, share: float) -> int:
    """The smallest cap found at which the best value of all is reached: more buys nothing."""
    problem, curve = study.curve.problem, study.curve
    best = curve.best(None)
    if best is None:
        return _ample(problem)
    amounts = attainable(problem, best.peak)
    amounts = amounts[bisect_left(amounts, least_feasible_cap(problem)) :]
    expires = study.deadline.seconds + _SHARE_OF_HIGHEST * study.deadline.left
    narrow(study, amounts, best.value, share / 4, expires, fall_only=True)
    return meeting(curve, best.value)[0].peak


def _ample(problem: Problem) -> int:
    """A cap that no schedule exceeds: all microbatches held at once."""
    return max(
        device.static
        + sum(count * max(held) for s in stages for held, count in amounts_held(problem, s))
        for device, stages in zip(problem.devices, problem.stages_on, strict=True)
    )


@doing("bounds between the capacities")
def _refuse_between(study: Study, caps: Sequence[int], expires: float) -> None:
    """Bound the caps between those that are solved, by arithmetic: the picture shows them all."""
    curve = study.curve
    between = [cap for cap in attainable(curve.problem, max(caps)) if cap > min(caps)]
    for cap in between[:: 1 + len(between) // _MOST_BETWEEN]:
        if study.deadline.over or study.deadline.seconds >= expires:
            return
        curve.prove(cap, closed_form_bound(at_cap(curve.problem, cap), curve.objective))


def _refine(study: Study, caps: Sequence[Cap], share: float) -> None:
    """Spend the rest of the time where it promises most."""
    curve = study.curve

    def promise(cap: Cap) -> float:
        gap = curve.gap(cap)
        return (_UNKNOWN_GAP if gap is None else gap) / max(study.spent.get(cap, 0.0), _LEAST_SPENT)

    while not study.deadline.over:
        cap = max(caps, key=lambda cap: (promise(cap), size(cap)))
        if promise(cap) == 0:
            return
        study.work(cap, max(share, study.spent.get(cap, 0.0)))


def _row(
    study: Study, cap: Cap, points: Sequence[PublishedPoint], scale: Scale1F1B | None
) -> CapRow:
    curve = study.curve
    known, best = curve.best(cap), curve.value(None)
    fitting = [
        Baseline(point.name, point.known.value) for point in points if point.known.peak <= size(cap)
    ]
    fitting += [best for where, best in study.baselines.items() if size(where) <= size(cap)]
    return CapRow(
        cap=cap,
        share=None if cap is None or scale is None else scale.share(cap),
        known=known,
        bound=curve.bound(cap),
        gap=curve.gap(cap),
        status=curve.status(cap),
        over_best=excess(None if known is None else known.value, best, f"cap {cap}"),
        baseline=min(fitting, key=lambda baseline: baseline.value, default=None),
        seconds=study.spent.get(cap, 0.0),
    )


AUTOMATIC: Final = {"makespan": "zb-auto", "span": "zb-auto-span"}
"""The paper's automatic schedule, by objective. ZB-1p and ZB-2p are what it gives within 1F1B's
memory and within twice that (Qi et al., ICLR 2024, section 4)."""


@dataclass(frozen=True)
class PublishedPoint:
    """A hand-written schedule: name, value of the objective, largest peak."""

    name: str
    known: KnownSchedule


def published_points(
    curve: Curve, baselines: Mapping[str, Build], give_up: Callable[[], bool]
) -> Iterator[PublishedPoint]:
    """Yield every hand-written schedule that exists for the curve's placement; the curve keeps it.

    Besides the names of ``baselines``: ZB-1p and ZB-2p, the automatic schedule within once and
    twice 1F1B's memory.
    """
    unlimited = at_cap(curve.problem, None)
    automatic = AUTOMATIC[curve.objective]
    for name, build in baselines.items():
        if give_up():
            return
        with doing(f"building {name}"):
            schedule = _built(build, unlimited)
        if schedule is not None:
            yield PublishedPoint(name, curve.know_order(schedule))
        scale = scale_of(curve.problem)
        if schedule is not None and scale is not None and name == automatic:
            yield from _within_shares(curve, build, scale)


def _within_shares(curve: Curve, build: Build, scale: Scale1F1B) -> Iterator[PublishedPoint]:
    for name, share in (("ZB-1p (zb-auto)", 1), ("ZB-2p (zb-auto)", 2)):
        schedule = _built(build, at_cap(curve.problem, scale.cap(Fraction(share))))
        if schedule is not None:
            yield PublishedPoint(name, curve.know_order(schedule))


def _built(build: Build, problem: Problem) -> Schedule | None:
    try:
        schedule = build(problem)
    except NotApplicable:
        return None
    # of microbatches that are a list, the problem's order may forbid the one that it has
    return None if problem.has_lists and check(problem, schedule) else schedule
