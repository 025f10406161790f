"""The best checked schedule so far, the best bound so far, and their history.

It lives outside CP-SAT: whatever the search does, what was found and checked is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pipesat.checker import check
from pipesat.errors import Fault
from pipesat.problem import Problem
from pipesat.result import Bound, Improvement
from pipesat.schedule import Objective, Order, Schedule
from pipesat.timing import time_order

Listener = Callable[[Improvement], None]


@dataclass
class Clock:
    """Time since the solve began, in seconds, and its limit.

    A deterministic clock does not look at the time: it counts what is reported to it, so that what
    depends on it comes out the same whatever the load of the machine.
    """

    limit: float
    deterministic: bool = False
    began: float = field(default_factory=time.monotonic)
    counted: float = 0.0

    @property
    def elapsed(self) -> float:
        """Time since the start, as this clock counts it."""
        return self.counted if self.deterministic else self.seconds

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def count(self, time: float) -> None:
        """Report work that a deterministic clock should count."""
        self.counted += time

    @property
    def left(self) -> float:
        """Seconds until the limit, at least 0."""
        return max(0.0, self.limit - self.elapsed)


@dataclass
class Incumbent:
    """Collects schedules and bounds from any thread; keeps the best of each."""

    problem: Problem
    objective: Objective
    clock: Clock
    listener: Listener | None = None
    schedule: Schedule | None = None
    bound: Bound | None = None
    history: list[Improvement] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def value(self) -> int | None:
        """Objective of the best schedule."""
        return None if self.schedule is None else self.schedule.value(self.objective)

    @property
    def bound_value(self) -> int | None:
        """The best bound."""
        return None if self.bound is None else self.bound.value

    @property
    def proven(self) -> bool:
        """Whether value = bound."""
        return self.bound is not None and self.value == self.bound.value

    def offer(self, order: Order, source: str) -> int | None:
        """Time an order for the objective, check it, and keep it if it is the best.

        Returns its value, or ``None`` if it breaks a rule.
        """
        return self.offer_timed(time_order(self.problem, order, self.objective, source))

    def offer_earliest(self, schedule: Schedule) -> Schedule | None:
        """Offer a schedule that is timed as early as possible, and return it as it was offered.

        Only the span needs another timing. ``None`` if it breaks a rule.
        """
        timed = schedule
        if self.objective == "span":
            timed = time_order(self.problem, schedule.order, "span", schedule.source)
        return None if self.offer_timed(timed) is None else timed

    def offer_timed(self, timed: Schedule) -> int | None:
        """Check a schedule as it is timed, and keep it if it is the best; see :meth:`offer`."""
        with self.lock:
            value = timed.value(self.objective)
            if self.value is not None and value >= self.value:
                return None if check(self.problem, timed) else value
            if check(self.problem, timed):
                return None
            self._compare(value, self.bound, timed.source)
            self.schedule = timed
            self._note(timed.source)
            return value

    def raise_bound(self, bound: Bound) -> None:
        """Keep a bound if it is the best."""
        with self.lock:
            if self.bound is not None and bound.value <= self.bound.value:
                return
            if self.value is not None:
                self._compare(self.value, bound, "incumbent")
                if bound.value > self.value:
                    return
            self.bound = bound
            self._note(bound.source)

    def _compare(self, value: int, bound: Bound | None, source: str) -> None:
        """A bound above a checked value is a bug in one of them: never hide it."""
        if bound is not None and bound.value > value:
            self.faults.append(
                f"{bound.source} says at least {bound.value}, "
                f"but a checked schedule ({source}) has {value}"
            )
            if bound is self.bound:
                raise Fault(self.faults[-1])

    def _note(self, source: str) -> None:
        step = Improvement(self.clock.elapsed, self.value, self.bound_value, source)
        self.history.append(step)
        if self.listener is not None:
            self.listener(step)
