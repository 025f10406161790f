"""Hand-written schedules as points: each at its own peak, as if memory were unlimited."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pipesat.core.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.progress import doing
from pipesat.core.schedule import Schedule
from pipesat.frontier.caps import Scale1F1B, at_cap, scale_of
from pipesat.frontier.curve import Curve, KnownSchedule
from pipesat.heuristics.registry import Build

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
