"""What is known about all caps at once: schedules by their peaks, bounds by their caps.

A schedule holds what it holds: it is valid for every cap from its largest peak on. A bound that is
proven for a cap holds for every smaller one, because what fits into less fits into more. So each
solve tells something about all caps: values and bounds are two staircases that fall with the cap,
and the truth lies between them everywhere.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

from pipesat.core.checker import check
from pipesat.core.claims import Bound, Standing, Status, tenable
from pipesat.core.errors import Fault
from pipesat.core.metrics import peak_memory
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Schedule
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
