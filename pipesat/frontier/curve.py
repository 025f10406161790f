"""What is known about all caps at once: schedules by their peaks, bounds by their caps.

A schedule holds what it holds: it is valid for every cap from its largest peak on. A bound that is
proven for a cap holds for every smaller one, because what fits into less fits into more. So each
solve tells something about all caps: values and bounds are two staircases that fall with the cap,
and the truth lies between them everywhere.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipesat.core.checker import check
from pipesat.core.claims import Bound, Standing, Status, tenable
from pipesat.core.errors import Fault
from pipesat.core.metrics import peak_memory
from pipesat.core.problem import Problem
from pipesat.core.progress import doing
from pipesat.core.result import Baseline, Improvement, Result
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.solving import LEAST_SECONDS, Deadline, EitherStop, Listener, Solve, Starts
from pipesat.core.timing import retime
from pipesat.frontier.caps import Cap, at_cap


@dataclass(frozen=True)
class KnownSchedule:
    """A checked schedule, timed for the objective, with its value and its peak on every device."""

    schedule: Schedule
    value: int
    peaks: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The smallest cap with which it is valid."""
        return max(self.peaks)


def size(cap: Cap) -> float:
    """A cap as a number to compare: unlimited is infinite."""
    return math.inf if cap is None else cap


@dataclass
class Curve:
    """The best schedule and the best bound of every cap, from all that was found for any.

    A bound that a schedule refutes is dropped, and told in ``contradictions``: a bug in pipesat.
    """

    problem: Problem
    objective: Objective
    schedules: list[KnownSchedule] = field(default_factory=list)
    bounds: list[tuple[Cap, Bound]] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def know(self, schedule: Schedule) -> KnownSchedule:
        """Take a schedule as it is timed; it counts from its largest peak on.

        Raises
        ------
        Fault
            If it breaks a rule: a bug in pipesat.
        """
        peaks = tuple(peak_memory(self.problem, schedule))
        known = KnownSchedule(schedule, schedule.value(self.objective), peaks)
        if violations := check(at_cap(self.problem, known.peak), schedule):
            raise Fault(f"{schedule.source} at its own peak: {violations[0].message}")
        with self.lock:
            beaten = (
                other.value <= known.value
                and other.peak <= known.peak
                and sum(other.peaks) <= sum(peaks)
                for other in self.schedules
            )
            if not any(beaten):
                self.schedules.append(known)
                self.bounds = [entry for entry in self.bounds if self._stands(*entry)]
        return known

    def know_order(self, schedule: Schedule) -> KnownSchedule:
        """Take a schedule that is timed as early as possible: the span wants another timing."""
        if self.objective == "span":
            schedule = retime(self.problem, schedule, "span", schedule.source)
        return self.know(schedule)

    def prove(self, cap: Cap, bound: Bound) -> None:
        """Take a bound that is proven for a cap, and with it for all smaller ones."""
        with self.lock:
            known = self.bound(cap)
            if (known is None or bound.value > known.value) and self._stands(cap, bound):
                self.bounds.append((cap, bound))

    def best(self, cap: Cap) -> KnownSchedule | None:
        """The best schedule that fits: least value, then least peak, then least sum of peaks."""
        with self.lock:
            return min(self.fitting(cap), key=_rank, default=None)

    def fitting(self, cap: Cap) -> list[KnownSchedule]:
        """Every known schedule that fits, the best first."""
        with self.lock:
            found = (known for known in self.schedules if known.peak <= size(cap))
            return sorted(found, key=_rank)

    def value(self, cap: Cap) -> int | None:
        """Value of the best schedule that fits."""
        known = self.best(cap)
        return None if known is None else known.value

    def bound(self, cap: Cap) -> Bound | None:
        """The best bound; where it was proven for a larger cap, its source says so."""
        with self.lock:
            holding = [(c, b) for c, b in self.bounds if size(c) >= size(cap)]
        if not holding:
            return None
        where, bound = max(holding, key=lambda entry: (entry[1].value, -size(entry[0])))
        if size(where) == size(cap):
            return bound
        return Bound(bound.value, f"{bound.source}, with {_words(where)}")

    def gap(self, cap: Cap) -> float | None:
        """``(value - bound) / value``; ``None`` where either is unknown."""
        return self.standing(cap).gap

    def status(self, cap: Cap) -> Status:
        """``optimal`` only if value and bound agree."""
        return self.standing(cap).status

    def standing(self, cap: Cap) -> Standing:
        """What is proven of the best value at a cap."""
        with self.lock:
            bound = self.bound(cap)
            of = f"{self.objective} with {_words(cap)}"
            return Standing(self.value(cap), None if bound is None else bound.value, of=of)

    def _stands(self, cap: Cap, bound: Bound) -> bool:
        """Whether no schedule that fits refutes a bound; never hide one that is refuted."""
        kept, wrong = tenable(self.value(cap), bound)
        self.contradictions += [f"{text} with {_words(cap)}" for text in wrong]
        return kept is not None


def _words(cap: Cap) -> str:
    return "unlimited memory" if cap is None else f"cap {cap}"


def _rank(known: KnownSchedule) -> tuple[int, int, int]:
    return known.value, known.peak, sum(known.peaks)


_VISIBLE = 0.001  # of a bound
_MOST_GIVEN = 6  # schedules, of different sources


@dataclass
class Study:
    """Solves at caps within one time limit and collects what they tell in a curve.

    ``spent`` has the seconds per cap, ``baselines`` the best hand-written schedule that a solve at
    a cap has met, ``hand_written_s`` the seconds that making all hand-written ones takes.
    """

    curve: Curve
    solve: Solve
    deadline: Deadline
    listener: Listener | None = None
    spent: dict[Cap, float] = field(default_factory=dict)
    baselines: dict[Cap, Baseline] = field(default_factory=dict)
    hand_written_s: float = 0.0
    complete: set[Cap] = field(default_factory=set)

    def work(self, cap: Cap, seconds: float, *, target: int | None = None) -> None:
        """Solve at a cap; with a target, only until it is met or proven to be out of reach.

        Hand-written schedules are made for a cap once, as they would be the same again; their time
        comes on top, and as soon as it is no more than twice what the cap is worth.
        """
        starts: Starts = "none" if cap in self.spent else "greedy"
        extra = self.hand_written_s
        if cap not in self.complete and extra <= min(2 * seconds, self.deadline.left):
            starts, seconds = "all", seconds + extra
            self.complete.add(cap)
        result = self.decide(
            at_cap(self.curve.problem, cap),
            seconds,
            starts=starts,
            known=self.curve.fitting(cap),
            bound=self.curve.bound(cap),
            target=target,
            name="unlimited memory" if cap is None else f"cap {cap}",
        )
        self.spent[cap] = self.spent.get(cap, 0.0) + result.wall_s
        if result.bound is not None:
            self.curve.prove(cap, result.bound)
        if result.baseline is not None:
            self.baselines.setdefault(cap, result.baseline)

    def decide(
        self,
        problem: Problem,
        seconds: float,
        *,
        starts: Starts,
        known: Sequence[KnownSchedule],
        bound: Bound | None,
        target: int | None,
        name: str,
    ) -> Result:
        """Solve a problem with the curve's layers and any capacities; keep its schedule.

        ``known`` are schedules that fit, the best first, ``bound`` is one that holds already.

        The result's bound is that of the problem: what it tells of caps is the caller's business.
        """
        enough = EitherStop(self.deadline.stop)
        news = _News(known[0].value if known else None, None if bound is None else bound.value)

        def listen(improvement: Improvement) -> None:
            value, least = improvement.value, improvement.bound
            if target is not None and (
                (value is not None and value <= target) or (least is not None and least > target)
            ):
                enough.set()
            if self.listener is not None and news.worth_telling(value, least):
                source = f"{name}: {improvement.source}"
                self.listener(improvement._replace(seconds=self.deadline.seconds, source=source))

        with doing(name):
            result = self.solve(
                problem,
                starts=starts,
                time_limit=max(min(seconds, self.deadline.left), LEAST_SECONDS),
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


def _of_different_sources(known: Sequence[KnownSchedule]) -> list[Schedule]:
    """The first ones, each of another source: those of one source tend to be much alike."""
    chosen: dict[str, Schedule] = {}
    for entry in known:
        chosen.setdefault(entry.schedule.source, entry.schedule)
    return list(chosen.values())[:_MOST_GIVEN]
