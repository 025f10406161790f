"""The best checked schedule so far, the best bound so far, and their history.

It lives outside CP-SAT: whatever the search does, what was found and checked is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from pipesat.check.checker import check
from pipesat.core.claims import Bound
from pipesat.core.errors import Deadlock
from pipesat.problem.problem import Problem
from pipesat.schedule.result import Improvement
from pipesat.schedule.schedule import Objective, Order, Schedule
from pipesat.schedule.solving import Listener
from pipesat.schedule.timing import retime, time_order
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.model.times import latest_end


def failure_note(what: str, error: BaseException) -> str:
    """Say that a part failed, by an error that should not be; users are asked to report it."""
    return f"{what} failed, please report it: {type(error).__name__}: {error}"


_LONGEST_WAIT = 0.5  # seconds for who takes note of something
NOTHING = Bound(0, "nothing takes less than no time")


class Raised(NamedTuple):
    """A bound, the origin that it counts as, and its bound of the period, 0 if it has none."""

    bound: Bound
    origin: str
    rate: Fraction = Fraction(0)


class Refuted(NamedTuple):
    """An origin of which a bound was above the value of a checked schedule; ``fault`` says so."""

    origin: str
    fault: str


News: TypeAlias = Schedule | Raised | Refuted
"""What incumbents of one problem in several processes tell each other."""


@dataclass
class Incumbent:
    """Collects schedules and bounds from any thread; keeps the best of each.

    Bounds are kept by their *origin*, the argument or the part of the search that they come from.
    A checked schedule is right: an origin with a bound above its value has been refuted. All it has
    said is dropped, and so is what it says later (see :meth:`trusts`).

    ``wider`` is that of the problem on whose behalf a narrower one is searched, if bounds of that
    one are what counts. ``proofs``, a :class:`pipesat.solver.proof.search.ProofSearch`, raises
    them. ``impossible`` says why there is no schedule at all, if that has been proven.

    ``tell`` is told all news of it, within its lock. ``improved`` and ``raised`` are by how much
    its value and its bound became better by what this process has found, and how often. Once it is
    ``closed``, nothing changes any more. ``steady`` is the best time per microbatch at which a
    schedule of a long run was seen to go on.
    """

    problem: Problem
    objective: Objective
    clock: Clock
    listener: Listener | None = None
    schedule: Schedule | None = None
    found_at: float = 0.0  # by the clock
    bound: Bound = NOTHING
    history: list[Improvement] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    wider: Incumbent | None = None
    proofs: Any = None
    impossible: str = ""
    tell: Callable[[News], None] | None = None
    improved: tuple[int, int] = (0, 0)
    raised: tuple[int, int] = (0, 0)
    closed: bool = False
    steady: Fraction | None = None
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _known: dict[str, Raised] = field(default_factory=dict)
    _refuted: set[str] = field(default_factory=set)

    @property
    def value(self) -> int | None:
        """Objective of the best schedule."""
        return None if self.schedule is None else self.schedule.value(self.objective)

    @property
    def proven(self) -> bool:
        """Whether value = bound."""
        with self.lock:
            return self.value == self.bound.value

    @property
    def asked(self) -> Incumbent:
        """That of the problem that was asked for: itself, unless it is a narrower one's."""
        return self if self.wider is None else self.wider.asked

    @property
    def latest(self) -> int:
        """When everything has ended, at the latest, in a schedule that is no longer."""
        return latest_end(self.problem, self.objective, self.value or 0)

    def part(self, share: float = 1.0) -> Clock:
        """Start a clock of a share of the time left, which ends once this is proven, too."""
        return self.clock.part(share * self.clock.left, stop=lambda: self.proven)

    def offer(self, order: Order, source: str) -> int | None:
        """Time an order for the objective, check it, and keep it if it is the best.

        Returns its value, or ``None`` if it breaks a rule.
        """
        return self.offer_timed(time_order(self.problem, order, self.objective, source))

    def valid(self, made: Iterable[Schedule], clock: Clock) -> Iterator[Schedule]:
        """Offer schedules until a clock is over or one is best; yield the valid ones as timed."""
        for schedule in made:
            if clock.over or self.proven:
                return
            if (timed := self.offer_earliest(schedule)) is not None:
                yield timed

    def offer_earliest(self, schedule: Schedule) -> Schedule | None:
        """Offer a schedule that is timed as early as possible, and return it as it was offered.

        Only the span needs another timing. ``None`` if it breaks a rule.
        """
        timed = schedule
        if self.objective == "span":
            timed = retime(self.problem, schedule, "span", schedule.source)
        return None if self.offer_timed(timed) is None else timed

    def offer_timed(self, timed: Schedule, *, ours: bool = True) -> int | None:
        """Check a schedule as it is timed, and keep it if it is the best; see :meth:`offer`."""
        if check(self.problem, timed):
            return None
        self._keep(timed, ours=ours)
        return timed.value(self.objective)

    def _keep(self, timed: Schedule, *, ours: bool) -> None:
        """Keep a schedule that has been checked if it is the best."""
        value = timed.value(self.objective)
        with self.lock:
            before = self.value
            if self.closed or (before is not None and value >= before):
                return
            if ours and before is not None:
                self.improved = _more(self.improved, before - value)
            self.schedule, self.found_at = timed, self.clock.elapsed
            if self.tell is not None:
                self.tell(timed)
            for known in list(self._known.values()):
                if known.bound.value > value:
                    self.refute(known.origin, known.bound)
            self._note(timed.source)

    @property
    def rate(self) -> Fraction:
        """Best bound of the period, in time units per microbatch; 0 if there is none."""
        with self.lock:
            return max((known.rate for known in self._known.values()), default=Fraction(0))

    def raise_bound(
        self,
        bound: Bound,
        origin: str | None = None,
        rate: Fraction = Fraction(0),
        *,
        ours: bool = True,
    ) -> None:
        """Keep a bound if it is the best of its origin, which by default is its source.

        And ``rate``, what it says of the period.
        """
        origin = origin or bound.source
        with self.lock:
            if self.closed or origin in self._refuted:
                return
            if self.value is not None and bound.value > self.value:
                self.refute(origin, bound)
                return
            if self.steady is not None and rate > self.steady:
                self._refute_rate(origin, rate)
                return
            known = self._known.get(origin) or Raised(bound, origin)
            if origin not in self._known or bound.value > known.bound.value or rate > known.rate:
                best = max(bound, known.bound, key=attrgetter("value"))
                self._known[origin] = Raised(best, origin, max(rate, known.rate))
                if self.tell is not None:
                    self.tell(Raised(bound, origin, rate))
            if self.bound is NOTHING or bound.value > self.bound.value:
                if ours:
                    self.raised = _more(self.raised, bound.value - self.bound.value)
                self.bound = bound
                self._note(bound.source)

    def offer_steady(self, rate: Fraction) -> None:
        """Take in the time per microbatch at which a checked schedule goes on."""
        with self.lock:
            if self.closed:
                return
            self.steady = rate if self.steady is None else min(rate, self.steady)
            for known in list(self._known.values()):
                if known.rate > self.steady:
                    self._refute_rate(known.origin, known.rate)

    def _refute_rate(self, origin: str, rate: Fraction) -> None:
        self.refute(origin, Bound(int(rate), origin), "a period", int(self.steady or 0))

    def hear(self, news: News, *, checked: bool) -> None:
        """Take in what another process has found; its schedules may have been checked by ours."""
        if isinstance(news, Raised):
            self.raise_bound(*news, ours=False)
        elif isinstance(news, Refuted):
            self._drop(*news)
        elif checked:
            self._keep(news, ours=False)
        elif self.value is None or news.value(self.objective) < self.value:
            self.offer_timed(news, ours=False)

    def news(self) -> list[News]:
        """Return all that is known."""
        with self.lock:
            known: list[News] = [Refuted(origin, "") for origin in sorted(self._refuted)]
            known += self._known.values()
            return known if self.schedule is None else [*known, self.schedule.bare()]

    def narrower(
        self, problem: Problem, clock: Clock, offer: Callable[[Schedule], object]
    ) -> Incumbent:
        """Return an incumbent of a problem whose schedules ``offer`` can offer here.

        It does so whenever one is found that is shorter than what is known here.
        """
        inner = Incumbent(problem, self.objective, clock)

        def heard(_: object) -> None:
            found, value = inner.schedule, inner.value
            if found is None or value is None:
                return
            if self.value is None or value < self.value:
                with suppress(Deadlock):
                    offer(found)

        inner.listener = heard
        return inner

    def close(self) -> None:
        """Keep everything as it is: nothing that is found later counts, nor is anybody told."""
        held = self.lock.acquire(timeout=_LONGEST_WAIT)  # its holder may be left behind
        self.closed = True
        if held:
            self.lock.release()

    def trusts(self, origin: str) -> bool:
        """Whether nothing that came from there has been refuted."""
        return origin not in self._refuted

    def refute(self, origin: str, bound: Bound, of: str = "", value: int | None = None) -> None:
        """Drop all bounds of an origin, because one is above the value of a checked schedule.

        ``of`` says what the bound is of, and ``value`` is what a schedule has, if these are not the
        objective and the incumbent's value.
        """
        with self.lock:
            source = "" if self.schedule is None else f" ({self.schedule.source})"
            self._drop(
                origin,
                f"a proof was dropped, please report it: {bound.source} says at least "
                f"{bound.value}{of and f' for {of}'}, but a checked schedule{source} has "
                f"{self.value if value is None else value}",
            )

    def _drop(self, origin: str, fault: str) -> None:
        with self.lock:
            if self.closed or origin in self._refuted:
                return
            self._refuted.add(origin)
            self._known.pop(origin, None)
            self.faults.append(fault)
            if self.tell is not None:
                self.tell(Refuted(origin, fault))
            bounds = (known.bound for known in self._known.values())
            rest = max(bounds, key=attrgetter("value"), default=NOTHING)
            if rest.value < self.bound.value:
                self.bound = rest
                self._note(rest.source)

    def _note(self, source: str) -> None:
        unit = self.problem.time_unit
        step = Improvement(self.clock.elapsed, self.value, self.bound.value, source, unit)
        self.history.append(step)
        if self.listener is not None:
            self.listener(step)


def _more(known: tuple[int, int], by: int) -> tuple[int, int]:
    amount, times = known
    return amount + by, times + 1
