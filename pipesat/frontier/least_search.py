"""The least memory with which a target is met: one cap for all devices, then the sum of peaks.

Every cap asks "is there a schedule of at most the target?". A schedule says yes, a bound above the
target says no, and time may run out before either. A yes holds for all larger caps and a no for all
smaller ones, so two marks close in on the answer: the smallest cap that is surely enough and the
largest that is surely too little.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.bounds.feasibility import smallest_capacities
from pipesat.core.claims import Bound, Standing, tenable
from pipesat.frontier.caps import Cap, attainable, with_capacities
from pipesat.frontier.curve import Curve, KnownSchedule
from pipesat.frontier.study import Study


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


def interval(curve: Curve, amounts: Sequence[int], target: int) -> Interval:
    """What is known about a target; ``amounts`` are the feasible caps that matter."""
    met = curve.meeting(target)
    enough = met[0].peak if met else None
    refused = [
        cap
        for cap, bound in curve.bounds
        if cap is not None and bound.value > target and (enough is None or cap < enough)
    ]
    if curve.impossible >= 0:
        refused.append(curve.impossible)
    too_little = max(refused, default=None)
    low = -1 if too_little is None else bisect_right(amounts, too_little) - 1
    high = len(amounts) if enough is None else bisect_left(amounts, enough)
    return Interval(target, enough, too_little, low, high)


def narrow(
    study: Study,
    amounts: Sequence[int],
    target: int,
    seconds: float,
    expires: float,
    *,
    fall_only: bool = False,
) -> Interval:
    """Move both marks by bisection, one round: each decision takes ``seconds`` at most.

    First by the closed forms alone. Then an undecided cap counts as too small, and the upper mark
    falls; then it counts as large enough, and the lower mark rises, unless ``fall_only``. Ends when
    the study has run for ``expires`` seconds.
    """
    curve = study.curve

    def over() -> bool:
        return study.deadline.over or study.deadline.seconds >= expires

    def allowed(cap: int) -> bool:
        return over() or curve.prove_by_arithmetic(cap) <= target

    bisect_left(amounts, True, key=allowed)
    undecided: list[int] = []
    for falling in (True,) if fall_only else (True, False):
        while not over():
            known = interval(curve, amounts, target)
            low = max([known.low, *undecided]) if falling else known.low
            high = known.high if falling else min([known.high, *undecided])
            if high - low < 2:
                break
            middle = (low + high) // 2
            study.work(amounts[middle], seconds, target)
            known = interval(curve, amounts, target)
            if known.low < middle < known.high:
                undecided.append(middle)
    return interval(curve, amounts, target)


_SQUEEZES = 4  # halvings of the room that all devices lose together
_MORE_TIME = 2.0  # from one round to the next


@dataclass(frozen=True)
class LeastSum:
    """The schedule of the least sum of peaks found, and each device's least capacity.

    No schedule that meets the target within the cap has a smaller sum than these.
    """

    known: KnownSchedule
    least: tuple[int, ...]

    @property
    def standing(self) -> Standing:
        """What is proven of the sum."""
        return Standing(sum(self.known.peaks), sum(self.least), of="sum of peaks")


class Squeeze:
    """The search for the least sum of peaks at one cap; a schedule there meets the target.

    Upper side: schedules. First all devices are squeezed together, then one after the other, each
    step a solve with capacities below the present peaks. Lower side: with all other devices at the
    cap, every device has a least capacity below which a bound exceeds the target. The sum of these
    is a lower bound, since a schedule's peaks are capacities with which it exists.
    """

    def __init__(self, study: Study, cap: int, target: int) -> None:
        self.study, self.curve, self.cap, self.target = study, study.curve, cap, target
        self.problem = self.curve.problem
        self.amounts: list[Sequence[int]] = []
        self.least: list[int] = []
        for device, capacity, _ in smallest_capacities(self.problem):
            every = attainable(self.problem, cap, [device])
            amounts = every[bisect_left(every, capacity) :]
            if capacity not in amounts[:1]:
                amounts = [capacity, *amounts]
            allowed = partial(self._allowed, device)
            self.amounts.append(amounts)
            self.least.append(amounts[bisect_left(amounts, True, 0, len(amounts) - 1, key=allowed)])
        self.refused: set[tuple[Cap, ...]] = set()
        self.asked = 0  # questions put to the solver

    def run(self, seconds: float) -> LeastSum:
        """Squeeze and prove until the sum is proven or the time over; ``seconds`` a step, first."""
        self._squeeze_all(seconds)
        while not (self.study.deadline.over or self.outcome.standing.proven):
            before, asked = self.outcome, self.asked
            for turn in (self._lower, self._prove):
                peaks = self.outcome.known.peaks
                gains = {d: p - self.least[d] for d, p in enumerate(peaks) if self.least[d] < p}
                for device in sorted(gains, key=lambda device: -gains[device]):
                    turn(device, seconds)
            if self.asked == asked:  # every question that is left has its answer
                break
            if self.outcome == before:
                seconds *= _MORE_TIME
        return self.outcome

    @property
    def outcome(self) -> LeastSum:
        """What is known now. Needs a known schedule that meets the target within the cap."""
        meeting = self._meeting()
        for device, least in enumerate(self.least):
            seen = min(known.peaks[device] for known in meeting)
            name = f"the least capacity of {self.problem.device_name(device)}"
            _, wrong = tenable(seen, Bound(least, name))  # a wrong proof: never hide it
            self.curve.contradictions += wrong
            self.least[device] = min(least, seen)
        best = min(meeting, key=lambda known: (sum(known.peaks), known.value))
        return LeastSum(best, tuple(self.least))

    def _meeting(self) -> list[KnownSchedule]:
        return [known for known in self.curve.fitting(self.cap) if known.value <= self.target]

    def _allowed(self, device: int, amount: int) -> bool:
        """Whether the closed forms allow so much on a device, the others being free to the cap."""
        if self.study.deadline.over:
            return True
        problem = with_capacities(self.problem, self._others_at_cap(device, amount), "")
        return closed_form_bound(problem, self.curve.objective).value <= self.target

    def _squeeze_all(self, seconds: float) -> None:
        """Take the same share of what may be spared from every device, as much as works."""
        spare, step = 0.0, 1.0
        pairs = [*zip(self.outcome.known.peaks, self.least, strict=True)]
        for _ in range(_SQUEEZES):
            caps = [round(peak - (spare + step) * (peak - least)) for peak, least in pairs]
            if self._possible(caps, seconds):
                spare += step
            step /= 2
            if spare == 1.0:
                return

    def _lower(self, device: int, seconds: float) -> None:
        """Look for a schedule with a lower peak on one device and no higher one elsewhere."""
        amounts, found = self.amounts[device], True
        while found:
            peaks = list(self.outcome.known.peaks)
            low = bisect_left(amounts, self.least[device])
            high = bisect_left(amounts, peaks[device])
            goals = dict.fromkeys((low, (low + high) // 2, high - 1))
            found = any(
                self._possible([*peaks[:device], amounts[goal], *peaks[device + 1 :]], seconds)
                for goal in goals
                if low <= goal < high
            )

    def _prove(self, device: int, seconds: float) -> None:
        """Ask whether less than any schedule's peak is enough, the others being free to the cap."""
        amounts = self.amounts[device]
        seen = min(known.peaks[device] for known in self._meeting())
        if seen > self.least[device] and not self.study.deadline.over:
            place = bisect_left(amounts, seen) - 1
            caps = self._others_at_cap(device, amounts[place])
            if not self._possible(caps, seconds) and tuple(caps) in self.refused:
                self.least[device] = amounts[place + 1]

    def _others_at_cap(self, device: int, capacity: int) -> list[int]:
        caps = [self.cap] * len(self.problem.devices)
        caps[device] = capacity
        return caps

    def _possible(self, caps: Sequence[int], seconds: float) -> bool:
        """Whether a schedule that meets the target with these capacities is known or found.

        If a bound says no, they are ``refused``.
        """
        fitting = [known for known in self.curve.fitting(self.cap) if known.fits(caps)]
        if fitting and fitting[0].value <= self.target:
            return True
        if self.study.deadline.over or tuple(caps) in self.refused:
            return False
        self.asked += 1
        problem, bound = with_capacities(self.problem, caps, "squeezed"), self.curve.bound(self.cap)
        name = f"peaks of {sum(caps)} in sum"
        found = self.study.decide(problem, name, seconds, "greedy", fitting, bound, self.target)
        above = found.lower_bound is not None and found.lower_bound > self.target
        if above or found.status == "infeasible":
            self.refused.add(tuple(caps))
        return found.value is not None and found.value <= self.target
