"""The smallest cap with which a target is met, the proof of it, and the smallest sum within.

Every cap asks "is there a schedule of at most the target?". A schedule says yes, a bound above the
target says no, and time may run out before either. A yes holds for all larger caps and a no for all
smaller ones, so two marks close in on the answer: the smallest cap that is surely enough and the
largest that is surely too little.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.bounds.feasibility import smallest_capacities
from pipesat.core.claims import Standing
from pipesat.frontier.caps import at_cap, attainable_on, with_capacities
from pipesat.frontier.curve import Curve, KnownSchedule, Study


@dataclass(frozen=True)
class Interval:
    """``enough`` surely suffices for the target, ``too_little`` surely does not.

    ``None`` where nothing is known. ``undecided`` caps between them might do; if there are none,
    ``enough`` is proven to be the smallest.
    """

    target: int
    enough: int | None
    too_little: int | None
    undecided: int

    def __post_init__(self) -> None:
        if self.enough is not None and self.too_little is not None:
            Standing(self.enough, self.too_little + 1, of=f"smallest cap for {self.target}")

    @property
    def proven(self) -> bool:
        """Whether no smaller cap would do."""
        return self.enough is not None and not self.undecided


def meeting(curve: Curve, target: int) -> list[KnownSchedule]:
    """Known schedules that meet the target, the least peak first."""
    found = (known for known in curve.schedules if known.value <= target)
    return sorted(found, key=lambda known: (known.peak, sum(known.peaks), known.value))


def interval(curve: Curve, amounts: Sequence[int], target: int) -> Interval:
    """What is known about a target; ``amounts`` are the caps that matter, the smallest feasible on.

    ``too_little`` is ``None`` where even the smallest feasible cap may be enough.
    """
    met = meeting(curve, target)
    enough = met[0].peak if met else None
    refused = [
        cap
        for cap, bound in curve.bounds
        if cap is not None and bound.value > target and (enough is None or cap < enough)
    ]
    too_little = max(refused, default=None)
    first = 0 if too_little is None else bisect_right(amounts, too_little)
    last = len(amounts) if enough is None else bisect_left(amounts, enough)
    return Interval(target, enough, too_little, max(0, last - first))


def refuse_by_arithmetic(
    curve: Curve, amounts: Sequence[int], target: int, give_up: Callable[[], bool]
) -> None:
    """Prove the largest cap to be too little that the closed forms refuse (by bisection)."""

    def allowed(cap: int) -> bool:
        if give_up():
            return True
        bound = closed_form_bound(at_cap(curve.problem, cap), curve.objective)
        if bound.value > target:
            curve.prove(cap, bound)
        return bound.value <= target

    bisect_left(amounts, True, key=allowed)


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

    First an undecided cap counts as too small, and the upper mark falls; then it counts as large
    enough, and the lower mark rises, unless ``fall_only``. Ends when the study has run for
    ``expires`` seconds.
    """

    def over() -> bool:
        return study.deadline.over or study.deadline.seconds >= expires

    refuse_by_arithmetic(study.curve, amounts, target, over)
    undecided: list[int] = []
    for falling in (True,) if fall_only else (True, False):
        for index in _halving(study.curve, amounts, target, undecided, falling=falling):
            if over():
                break
            study.work(amounts[index], seconds, target=target)
    return interval(study.curve, amounts, target)


def _halving(
    curve: Curve, amounts: Sequence[int], target: int, undecided: list[int], *, falling: bool
) -> Iterator[int]:
    """Yield indices of the caps to decide until one mark meets the other, or what is undecided.

    What stays undecided is collected: it counts as too small while the upper mark is ``falling``,
    and then as large enough while the lower one rises.
    """
    while True:
        low, high = _ends(curve, amounts, target)
        if falling:
            low = max([low, *undecided])
        else:
            high = min([high, *undecided])
        if high - low < 2:
            return
        middle = (low + high) // 2
        yield middle
        low, high = _ends(curve, amounts, target)
        if low < middle < high:
            undecided.append(middle)


def _ends(curve: Curve, amounts: Sequence[int], target: int) -> tuple[int, int]:
    """Indices of the largest amount that is too little and of the smallest that is enough."""
    known = interval(curve, amounts, target)
    low = -1 if known.too_little is None else bisect_right(amounts, known.too_little) - 1
    high = len(amounts) if known.enough is None else bisect_left(amounts, known.enough)
    return low, high


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
    """The search for the least sum of peaks at one cap; a schedule there meets the target.

    Upper side: schedules. First all devices are squeezed together, then one after the other, each
    step a solve with capacities below the present peaks. Lower side: with all other devices at the
    cap, every device has a least capacity below which a bound exceeds the target. The sum of these
    is a lower bound, since a schedule's peaks are capacities with which it exists.
    """

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

        def allowed(amount: int) -> bool:
            if self.study.deadline.over:
                return True
            problem = with_capacities(self.problem, self._others_at_cap(device, amount), "")
            return closed_form_bound(problem, objective).value <= self.target

        last = len(amounts) - 1
        self.least[device] = amounts[bisect_left(amounts, True, 0, last, key=allowed)]

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
