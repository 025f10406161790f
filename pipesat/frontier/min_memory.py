"""How little memory is enough: the reference, the smallest cap, then the smallest sum of peaks."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.claims import Bound, Standing, require_best, tenable
from pipesat.core.errors import Contradiction, Infeasible
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective
from pipesat.core.solving import Deadline, Listener, Solve
from pipesat.frontier.caps import Scale1F1B, at_cap, attainable, least_feasible_cap, scale_of
from pipesat.frontier.curve import Curve, KnownSchedule, Study
from pipesat.frontier.smallest import Interval, LeastSum, Squeeze, interval, meeting, narrow
from pipesat.frontier.trace import published_points
from pipesat.heuristics.registry import Build

Reference: TypeAlias = Literal["unlimited", "file"]

_REFERENCE = 0.2  # of the time, for the best value
_CAP = 0.65  # of the time left then, for the cap
_STEP = 0.02  # of the time, for a decision in the first round
_MORE_TIME = 2.0  # from one round to the next


@dataclass(frozen=True)
class Best:
    """The best value that the question refers to, with its bound."""

    memory: Reference
    value: int | None
    bound: Bound | None

    @property
    def standing(self) -> Standing:
        """What is proven of the value."""
        return Standing(self.value, None if self.bound is None else self.bound.value, of="the best")


@dataclass(frozen=True)
class Sufficient:
    """The answer.

    ``cap.enough`` is the smallest cap with a schedule of at most ``cap.target``, ``lightest`` the
    least sum of peaks at that cap; both ``None`` if time was out before anything was found.
    """

    curve: Curve
    best: Best
    cap: Interval | None
    lightest: LeastSum | None
    scale: Scale1F1B | None
    wall_s: float

    def require_consistent(self) -> None:
        """Raise :class:`Contradiction` if the schedule misses the target, or beats the best."""
        if self.known is None or self.cap is None:
            return
        if self.known.value > self.cap.target:
            raise Contradiction(
                f"the answer has {self.known.value}, which misses the target {self.cap.target}"
            )
        if self.best.memory == "unlimited" or _fits(self.curve.problem, self.known):
            require_best("the reference", self.best.value, [("the answer", self.known.value)])

    @property
    def known(self) -> KnownSchedule | None:
        """The schedule to use."""
        return None if self.lightest is None else self.lightest.known


def least_memory(
    problem: Problem,
    *,
    solve: Solve,
    objective: Objective = "makespan",
    within: Fraction = Fraction(1, 20),
    reference: Reference = "unlimited",
    time_limit: float = 120.0,
    baselines: Mapping[str, Build] | None = None,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Sufficient:
    """Return the smallest uniform cap that keeps the objective within a share of the best.

    Parameters
    ----------
    within
        The target is ``floor((1 + within) * best)``.
    reference
        What the best is of: ``unlimited`` memory, or the problem's own capacities (``file``). The
        best is the best value found in a share of the time; its bound is reported with it.

    Raises
    ------
    Infeasible
        If nothing fits into the problem's own capacities and these are the reference.
    """
    deadline = Deadline(time_limit, stop or threading.Event())
    study = Study(Curve(problem, objective), solve, deadline, listener)
    curve = study.curve
    curve.prove(None, closed_form_bound(at_cap(problem, None), objective))
    for _ in published_points(curve, baselines or {}, lambda: study.deadline.over):
        pass
    study.hand_written_s = study.deadline.seconds
    best = _reference(study, reference, _REFERENCE * study.deadline.left)
    found, lightest = None, None
    while best.value is not None:
        target = best.value + int(best.value * within)
        found = _smallest_cap(study, target)
        lightest = None
        if found.enough is not None:
            lightest = Squeeze(study, found.enough, target).run(_STEP * time_limit)
        before, best = best, _best_by_now(study, best)
        if best.value == before.value:
            break
    return Sufficient(curve, best, found, lightest, scale_of(problem), study.deadline.seconds)


def _reference(study: Study, reference: Reference, seconds: float) -> Best:
    curve = study.curve
    if reference == "unlimited":
        if not study.deadline.over:
            study.work(None, seconds)
        return _best_by_now(study, Best(reference, None, None))
    fitting = [known for known in curve.fitting(None) if _fits(curve.problem, known)]
    result = study.decide(
        curve.problem,
        seconds,
        starts="all",
        known=fitting,
        bound=curve.bound(None),
        target=None,
        name="own capacities",
    )
    if result.status == "infeasible":
        raise Infeasible(result.explanation)
    return Best(reference, result.value, result.bound)


def _best_by_now(study: Study, best: Best) -> Best:
    """The reference from all that is known: solves at caps may have found something better."""
    curve = study.curve
    if best.memory == "unlimited":
        return Best(best.memory, curve.value(None), curve.bound(None))
    fitting = [known.value for known in curve.fitting(None) if _fits(curve.problem, known)]
    value = min([*fitting, *([] if best.value is None else [best.value])])
    bound, wrong = tenable(value, best.bound)
    curve.contradictions += wrong
    return Best(best.memory, value, bound)


def _fits(problem: Problem, known: KnownSchedule) -> bool:
    return all(
        device.memory is None or peak <= device.memory
        for device, peak in zip(problem.devices, known.peaks, strict=True)
    )


def _smallest_cap(study: Study, target: int) -> Interval:
    """Narrow the interval round by round, each decision with more time than in the last."""
    curve = study.curve
    met = meeting(curve, target)
    lowest = least_feasible_cap(curve.problem)
    amounts = attainable(curve.problem, met[0].peak)
    amounts = amounts[bisect_left(amounts, lowest) :]
    expires = study.deadline.seconds + _CAP * study.deadline.left
    seconds = _STEP * study.deadline.limit
    while True:
        found = narrow(study, amounts, target, seconds, expires)
        if found.proven or study.deadline.over or study.deadline.seconds >= expires:
            return interval(curve, amounts, target)
        seconds *= _MORE_TIME


def sufficient_document(
    found: Sufficient, within: Fraction, folder: Path | None, **about: object
) -> dict[str, Any]:
    """Return the answer as a JSON document; its schedule's path is that in ``folder``.

    ``status`` is that of the cap, ``sum_status`` that of the sum: ``optimal`` if proven smallest.
    """
    curve, best, cap, sums = found.curve, found.best, found.cap, found.lightest
    found.require_consistent()
    enough = None if cap is None else cap.enough
    status = "unknown" if cap is None or enough is None else "feasible"
    return {
        "status": "optimal" if cap is not None and cap.proven else status,
        "objective": curve.objective,
        "within": float(within),
        "best": {
            "memory": best.memory,
            "value": best.value,
            "lower_bound": None if best.bound is None else best.bound.value,
            "status": best.standing.status,
        },
        "target": None if cap is None else cap.target,
        "cap": enough,
        "share_of_1f1b": (
            None if enough is None or found.scale is None else found.scale.share(enough)
        ),
        "largest_too_little": None if cap is None else cap.too_little,
        "undecided_caps": None if cap is None else cap.undecided,
        "value": None if sums is None else sums.known.value,
        "source": None if sums is None else sums.known.schedule.source,
        "peak_memory": None if sums is None else list(sums.known.peaks),
        "sum_of_peaks": None if sums is None else sums.value,
        "sum_lower_bound": None if sums is None else sums.bound,
        "sum_status": ("unknown" if sums is None else sums.standing.status),
        "least_per_device": None if sums is None else list(sums.least),
        "schedule": (
            None if folder is None or found.known is None else str(folder / "schedule.json")
        ),
        "wall_s": round(found.wall_s, 3),
        **about,
    }
