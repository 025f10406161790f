"""The smallest uniform cap with which a target is met, and the proof that less is too little.

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
from pipesat.core.claims import Standing
from pipesat.frontier.caps import at_cap
from pipesat.frontier.curve import Curve, KnownSchedule
from pipesat.frontier.study import Study


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
    low, high = 0, len(amounts)
    while low < high and not give_up():
        middle = (low + high) // 2
        problem = at_cap(curve.problem, amounts[middle])
        bound = closed_form_bound(problem, curve.objective)
        if bound.value <= target:
            high = middle
        else:
            curve.prove(amounts[middle], bound)
            low = middle + 1


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
