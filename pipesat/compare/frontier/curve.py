"""What is known about all caps at once: schedules by their peaks, bounds by their caps.

A schedule holds what it holds: it is valid for every cap from its largest peak on. A bound that is
proven for a cap holds for every smaller one, because what fits into less fits into more. So each
solve tells something about all caps: values and bounds are two staircases that fall with the cap,
and the truth lies between them everywhere.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.check.checker import check
from pipesat.compare.frontier.capacities import Cap, at_cap
from pipesat.core.claims import Bound, Standing, tenable
from pipesat.core.errors import Fault
from pipesat.problem.problem import Problem
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.schedule import Objective, Schedule


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

    def fits(self, capacities: Sequence[Cap]) -> bool:
        """Whether its peaks are within these capacities, one per device."""
        pairs = zip(self.peaks, capacities, strict=True)
        return all(peak <= size(capacity) for peak, capacity in pairs)


@dataclass(frozen=True)
class Interval:
    """``enough`` surely suffices for the target, ``too_little`` surely does not.

    ``None`` where nothing is known, or even the smallest feasible cap may be enough. ``low`` and
    ``high`` are their places among the caps that matter.
    """

    target: int
    enough: int | None
    too_little: int | None
    low: int
    high: int

    @property
    def undecided(self) -> int:
        """How many caps between them might do."""
        return max(0, self.high - self.low - 1)

    @property
    def proven(self) -> bool:
        """Whether no smaller cap would do."""
        return self.enough is not None and not self.undecided


def size(cap: Cap) -> float:
    """A cap as a number to compare: unlimited is infinite."""
    return math.inf if cap is None else cap


def words(cap: Cap) -> str:
    """A cap in words."""
    return "unlimited memory" if cap is None else f"cap {cap}"


@dataclass
class Curve:
    """The best schedule and the best bound of every cap, from all that was found for any.

    ``impossible`` is the largest cap with which a solve has proven that no schedule exists. A proof
    that a schedule refutes is dropped, and told in ``contradictions``: a bug in pipesat.
    """

    problem: Problem
    objective: Objective
    schedules: list[KnownSchedule] = field(default_factory=list)
    bounds: list[tuple[Cap, Bound]] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    impossible: int = -1

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
        if known.peak <= self.impossible:
            self.contradictions.append(
                f"{words(self.impossible)}: proven infeasible, but a checked schedule has "
                f"{known.value} with {words(known.peak)}"
            )
            self.impossible = -1
        if all(
            known.value < other.value or known.peak < other.peak or sum(peaks) < sum(other.peaks)
            for other in self.schedules
        ):
            self.schedules.append(known)
            self.bounds = [entry for entry in self.bounds if self._stands(*entry)]
        return known

    def prove(self, cap: Cap, bound: Bound) -> None:
        """Take a bound that is proven for a cap, and with it for all smaller ones."""
        known = self.bound(cap)
        if (known is None or bound.value > known.value) and self._stands(cap, bound):
            self.bounds.append((cap, bound))

    def prove_by_arithmetic(self, cap: Cap) -> int:
        """Take the closed form's bound at a cap; return it."""
        bound = closed_form_bound(at_cap(self.problem, cap), self.objective)
        self.prove(cap, bound)
        return bound.value

    def fitting(self, cap: Cap) -> list[KnownSchedule]:
        """Every known schedule that fits: least value, least peak, least sum of peaks first."""
        found = (known for known in self.schedules if known.peak <= size(cap))
        return sorted(found, key=lambda known: (known.value, known.peak, sum(known.peaks)))

    def meeting(self, target: int) -> list[KnownSchedule]:
        """Every known schedule of at most a value, the least peak first."""
        found = (known for known in self.schedules if known.value <= target)
        return sorted(found, key=lambda known: (known.peak, sum(known.peaks), known.value))

    def best(self, cap: Cap) -> KnownSchedule | None:
        """The best schedule that fits."""
        return next(iter(self.fitting(cap)), None)

    def interval(self, amounts: Sequence[int], target: int) -> Interval:
        """What is known about a target; ``amounts`` are the feasible caps that matter."""
        met = self.meeting(target)
        enough = met[0].peak if met else None
        refused = [
            cap
            for cap, bound in self.bounds
            if cap is not None and bound.value > target and (enough is None or cap < enough)
        ]
        if self.impossible >= 0:
            refused.append(self.impossible)
        too_little = max(refused, default=None)
        low = -1 if too_little is None else bisect_right(amounts, too_little) - 1
        high = len(amounts) if enough is None else bisect_left(amounts, enough)
        return Interval(target, enough, too_little, low, high)

    def value(self, cap: Cap) -> int | None:
        """Value of the best schedule that fits."""
        known = self.best(cap)
        return None if known is None else known.value

    def bound(self, cap: Cap) -> Bound | None:
        """The best bound; where it was proven for a larger cap, its source says so."""
        holding = [(c, b) for c, b in self.bounds if size(c) >= size(cap)]
        if not holding:
            return None
        where, bound = max(holding, key=lambda entry: (entry[1].value, -size(entry[0])))
        return bound if where == cap else Bound(bound.value, f"{bound.source}, with {words(where)}")

    def standing(self, cap: Cap) -> Standing:
        """What is proven of the best value at a cap."""
        bound = self.bound(cap)
        impossible = size(cap) <= self.impossible
        least = None if bound is None or impossible else bound.value
        return Standing(self.value(cap), least, impossible, f"{self.objective} with {words(cap)}")

    def _stands(self, cap: Cap, bound: Bound) -> bool:
        """Whether no schedule that fits refutes a bound; never hide one that is refuted."""
        kept, wrong = tenable(self.value(cap), bound)
        self.contradictions += [f"{text} with {words(cap)}" for text in wrong]
        return kept is not None
