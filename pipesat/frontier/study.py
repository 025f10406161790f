"""One solve after the other on the same layers with other capacities, each told what is known."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from pipesat.core.problem import Problem
from pipesat.core.result import Baseline, Bound, Improvement, Result
from pipesat.core.schedule import Schedule
from pipesat.frontier.caps import Cap, at_cap
from pipesat.frontier.curve import Curve, Known

Listener: TypeAlias = Callable[[Improvement], None]

LEAST_SECONDS = 0.05  # a solve with less time left is not worth its start
_VISIBLE = 0.001  # of a bound
_MOST_GIVEN = 6  # schedules, of different sources


Starts: TypeAlias = Literal["all", "greedy", "none"]
"""Schedules to make for a problem before it is searched: every hand-written one, those of list
scheduling (which fit any capacities and cost little), or none."""


class Solve(Protocol):
    """How a study solves: as :func:`pipesat.solve`, and it says which starts it wants."""

    def __call__(
        self,
        problem: Problem,
        *,
        starts: Starts,
        time_limit: float,
        schedules: Sequence[Schedule],
        known_bound: Bound | None,
        listener: Listener,
        stop: threading.Event,
    ) -> Result:
        """Solve."""


class EitherStop(threading.Event):
    """Set when it is set itself, or when the other one is."""

    def __init__(self, other: threading.Event) -> None:
        super().__init__()
        self.other = other

    def is_set(self) -> bool:
        """Whether to stop."""
        return super().is_set() or self.other.is_set()


@dataclass
class Study:
    """Solves at caps within one time limit and collects what they tell in a curve.

    ``spent`` has the seconds per cap, ``baselines`` the best hand-written schedule that a solve at
    a cap has met, ``hand_written_s`` the seconds that making all hand-written ones takes.
    """

    curve: Curve
    solve: Solve
    time_limit: float
    listener: Listener | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.monotonic)
    spent: dict[Cap, float] = field(default_factory=dict)
    baselines: dict[Cap, Baseline] = field(default_factory=dict)
    hand_written_s: float = 0.0
    complete: set[Cap] = field(default_factory=set)

    @property
    def seconds(self) -> float:
        """Seconds since the study began."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds until the limit, at least 0; 0 once it is stopped."""
        return 0.0 if self.stop.is_set() else max(0.0, self.time_limit - self.seconds)

    @property
    def over(self) -> bool:
        """Whether another solve is not worth its start."""
        return self.left < LEAST_SECONDS

    def work(self, cap: Cap, seconds: float, *, target: int | None = None) -> None:
        """Solve at a cap; with a target, only until it is met or proven to be out of reach.

        Hand-written schedules are made for a cap once, as they would be the same again; their time
        comes on top, and as soon as it is no more than twice what the cap is worth.
        """
        starts: Starts = "none" if cap in self.spent else "greedy"
        extra = self.hand_written_s
        if cap not in self.complete and extra <= min(2 * seconds, self.left):
            starts, seconds = "all", seconds + extra
            self.complete.add(cap)
        result = self.decide(
            at_cap(self.curve.problem, cap), seconds,
            starts=starts, known=self.curve.fitting(cap), bound=self.curve.bound(cap),
            target=target,
            name="unlimited memory" if cap is None else f"cap {cap}",
        )  # fmt: skip
        self.spent[cap] = self.spent.get(cap, 0.0) + result.wall_s
        if result.lower_bound is not None:
            self.curve.prove(cap, result.lower_bound)
        if result.baseline is not None:
            self.baselines.setdefault(cap, result.baseline)

    def decide(
        self,
        problem: Problem,
        seconds: float,
        *,
        starts: Starts,
        known: Sequence[Known],
        bound: Bound | None,
        target: int | None,
        name: str,
    ) -> Result:
        """Solve a problem with the curve's layers and any capacities; keep its schedule.

        ``known`` are schedules that fit, the best first, ``bound`` is one that holds already.

        The result's bound is that of the problem: what it tells of caps is the caller's business.
        """
        enough = EitherStop(self.stop)
        news = _News(known[0].value if known else None, None if bound is None else bound.value)

        def listen(improvement: Improvement) -> None:
            value, least = improvement.value, improvement.bound
            if target is not None and (
                (value is not None and value <= target) or (least is not None and least > target)
            ):
                enough.set()
            if self.listener is not None and news.worth_telling(value, least):
                source = f"{name}: {improvement.source}"
                self.listener(improvement._replace(seconds=self.seconds, source=source))

        result = self.solve(
            problem,
            starts=starts,
            time_limit=min(seconds, max(self.left, LEAST_SECONDS)),
            schedules=_of_different_sources(known),
            known_bound=bound,
            listener=listen,
            stop=enough,
        )
        self.curve.contradictions += result.contradictions
        if result.schedule is not None:
            self.curve.know(result.schedule)
        elif result.status == "infeasible" and known:
            self.curve.contradictions.append(
                f"{name}: {result.explanation}, but a checked schedule has {known[0].value}"
            )
        return result


@dataclass
class _News:
    """What has been told: every better value is worth it, and bounds that rise visibly."""

    value: int | None
    bound: int | None

    def worth_telling(self, value: int | None, bound: int | None) -> bool:
        """Whether to tell; then it counts as told."""
        if value is None:
            return False
        better = self.value is None or value < self.value
        rise = 0 if bound is None else bound - (self.bound or 0)
        met = value == bound != self.bound
        if not (better or met or rise > _VISIBLE * (bound or 0)):
            return False
        self.value, self.bound = value, bound
        return True


def _of_different_sources(known: Sequence[Known]) -> list[Schedule]:
    """The first ones, each of another source: those of one source tend to be much alike."""
    chosen: dict[str, Schedule] = {}
    for entry in known:
        chosen.setdefault(entry.schedule.source, entry.schedule)
    return list(chosen.values())[:_MOST_GIVEN]
