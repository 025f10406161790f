"""Within a uniform cap, the smallest sum of per-device peaks that keeps a target.

Upper side: schedules. First all devices are squeezed together, then one after the other, each step
a solve with capacities below the present peaks. Lower side: with all other devices at the cap,
every device has a least capacity below which a bound exceeds the target. The sum of these is a
lower bound, since a schedule's peaks are capacities with which it exists.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.bounds.feasibility import smallest_capacities
from pipesat.core.claims import Standing
from pipesat.frontier.caps import attainable_on, with_capacities
from pipesat.frontier.curve import KnownSchedule
from pipesat.frontier.study import Study

_SQUEEZES = 4  # halvings of the room that all devices lose together
_MORE_TIME = 2.0  # from one round to the next


@dataclass(frozen=True)
class LeastSum:
    """The schedule of the least sum of peaks found, and each device's least capacity."""

    known: KnownSchedule
    least: tuple[int, ...]

    def __post_init__(self) -> None:
        for device, pair in enumerate(zip(self.known.peaks, self.least, strict=True)):
            Standing(*pair, of=f"peak of device {device}")

    @property
    def standing(self) -> Standing:
        """What is proven of the sum."""
        return Standing(self.value, self.bound, of="sum of peaks")

    @property
    def value(self) -> int:
        """Sum of the schedule's peaks."""
        return sum(self.known.peaks)

    @property
    def bound(self) -> int:
        """No schedule that meets the target within the cap has a smaller sum."""
        return sum(self.least)


class Squeeze:
    """The search for the least sum at one cap and target."""

    def __init__(self, study: Study, cap: int, target: int) -> None:
        self.study, self.cap, self.target = study, cap, target
        self.problem = study.curve.problem
        needs = smallest_capacities(self.problem)
        self.amounts = [
            _from(attainable_on(self.problem, need.device, cap), need.capacity) for need in needs
        ]
        self.least = [amounts[0] for amounts in self.amounts]
        self.refused: set[tuple[int, ...]] = set()
        self.asked = 0  # questions put to the solver

    def run(self, seconds: float) -> LeastSum:
        """Squeeze and prove until the sum is proven or the time over; ``seconds`` a step, first."""
        for device in range(len(self.least)):
            if not self.study.deadline.over:
                self._refuse_by_arithmetic(device)
        self._squeeze_all(seconds)
        while not (self.study.deadline.over or self.outcome.value == self.outcome.bound):
            before, asked = self.outcome, self.asked
            for device in self._loosest_first():
                self._lower(device, seconds)
            for device in self._loosest_first():
                self._prove(device, seconds)
            if self.asked == asked:  # every question that is left has its answer
                break
            if self.outcome == before:
                seconds *= _MORE_TIME
        return self.outcome

    @property
    def outcome(self) -> LeastSum:
        """What is known now. Needs a known schedule that meets the target within the cap."""
        meeting = self._meeting()
        best = min(meeting, key=lambda known: (sum(known.peaks), known.value))
        for device, least in enumerate(self.least):
            seen = min(known.peaks[device] for known in meeting)
            if seen < least:  # a wrong proof: never hide it
                self.least[device] = min(seen, self.amounts[device][0])
                self.study.curve.contradictions.append(
                    f"{self.problem.device_name(device)} is said to need at least {least}, but a "
                    f"checked schedule needs {seen}"
                )
        return LeastSum(best, tuple(self.least))

    def _meeting(self) -> list[KnownSchedule]:
        fitting = self.study.curve.fitting(self.cap)
        return [known for known in fitting if known.value <= self.target]

    def _loosest_first(self) -> list[int]:
        """Devices whose least capacity is not proven, those with the most to gain first."""
        peaks = self.outcome.known.peaks
        devices = [d for d, peak in enumerate(peaks) if self.least[d] < peak]
        return sorted(devices, key=lambda d: self.least[d] - peaks[d])

    def _refuse_by_arithmetic(self, device: int) -> None:
        """Raise a device's least capacity as far as the closed forms do, by bisection."""
        amounts, objective = self.amounts[device], self.study.curve.objective
        low, high = 0, len(amounts) - 1
        while low < high and not self.study.deadline.over:
            middle = (low + high) // 2
            caps = self._others_at_cap(device, amounts[middle])
            bound = closed_form_bound(with_capacities(self.problem, caps, ""), objective)
            low, high = (middle + 1, high) if bound.value > self.target else (low, middle)
        self.least[device] = amounts[low]

    def _squeeze_all(self, seconds: float) -> None:
        """Take the same share of what may be spared from every device, as much as works."""
        spare, step = 0.0, 1.0
        peaks = self.outcome.known.peaks
        for _ in range(_SQUEEZES):
            share = spare + step
            pairs = zip(peaks, self.least, strict=True)
            caps = [round(peak - share * (peak - least)) for peak, least in pairs]
            if self._possible(caps, seconds):
                spare = share
            step /= 2
            if spare == 1.0:
                return

    def _lower(self, device: int, seconds: float) -> None:
        """Look for a schedule with a lower peak on one device and no higher one elsewhere."""
        while True:
            peaks = list(self.outcome.known.peaks)
            amounts = self.amounts[device]
            low = bisect_left(amounts, self.least[device])
            high = bisect_left(amounts, peaks[device])
            goals = dict.fromkeys((low, (low + high) // 2, high - 1))
            for goal in goals:
                caps = [*peaks[:device], amounts[goal], *peaks[device + 1 :]]
                if low <= goal < high and self._possible(caps, seconds):
                    break
            else:
                return

    def _prove(self, device: int, seconds: float) -> None:
        """Ask whether less than any schedule's peak is enough, the others being free to the cap."""
        amounts = self.amounts[device]
        seen = min(known.peaks[device] for known in self._meeting())
        if seen > self.least[device] and not self.study.deadline.over:
            below = amounts[bisect_left(amounts, seen) - 1]
            self._possible(self._others_at_cap(device, below), seconds, device)

    def _others_at_cap(self, device: int, capacity: int) -> list[int]:
        caps = [self.cap] * len(self.least)
        caps[device] = capacity
        return caps

    def _possible(self, caps: Sequence[int], seconds: float, device: int | None = None) -> bool:
        """Whether a schedule that meets the target with these capacities is known or found.

        If a bound says no while only ``device`` is below the cap, its least capacity rises.
        """
        curve, target = self.study.curve, self.target
        fitting = [
            known
            for known in curve.fitting(self.cap)
            if all(peak <= cap for peak, cap in zip(known.peaks, caps, strict=True))
        ]
        if fitting and fitting[0].value <= target:
            return True
        if self.study.deadline.over or tuple(caps) in self.refused:
            return False
        self.asked += 1
        result = self.study.decide(
            with_capacities(self.problem, caps, "squeezed"),
            seconds,
            starts="greedy",
            known=fitting,
            bound=curve.bound(self.cap),
            target=target,
            name=f"peaks of {sum(caps)} in sum",
        )
        if result.value is not None and result.value <= target:
            return True
        if result.lower_bound is not None and result.lower_bound > target:
            self.refused.add(tuple(caps))
            if device is not None:
                amounts = self.amounts[device]
                self.least[device] = amounts[bisect_left(amounts, caps[device]) + 1]
        return False


def _from(amounts: Sequence[int], least: int) -> Sequence[int]:
    """The amounts from the least capacity on, that included."""
    rest = amounts[bisect_left(amounts, least) :]
    return rest if rest and rest[0] == least else [least, *rest]


def least_sum(study: Study, cap: int, target: int, seconds: float) -> LeastSum:
    """Search for the least sum of peaks within a cap; ``seconds`` each step, at first.

    The curve must know a schedule that meets the target within the cap.
    """
    return Squeeze(study, cap, target).run(seconds)
