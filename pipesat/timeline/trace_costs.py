"""What ops cost in the steps of a trace: medians, sizes of microbatches, stalls, and predictions.

An op is taken to last the median of its replica, stage and kind. Where microbatches differ in
length, each has a *size*, the median over its ops of how many such medians they last, and a class:
sizes are put into at most six groups, and a group's ops last the median of what they lasted.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from pipesat.core.linear_order import LinearOrder, Waits, last_ends
from pipesat.core.ops import Kind, Op
from pipesat.timeline.steps import Step, Steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES: Final = 6
"""Of microbatches, at most."""
_VARIES: Final = 0.1  # from the 10th to the 90th percentile of sizes
_LONG, _OF_STEP, _SPREADS = 1.5, 0.01, 8.0
"""A stall is so many times as long as expected, longer by so much of a step, and of the spread."""

Part: TypeAlias = tuple[int, Kind]
"""A stage's ops of one kind."""
Lengths: TypeAlias = Callable[[int, Op], float]
"""Time of an op in a step, by the step's place among all."""


class Stall(NamedTuple):
    """One op that took far longer than it does else, by ``excess`` us."""

    replica: int
    iteration: int
    op: Op
    excess: float


class Error(NamedTuple):
    """Predicted over measured steps, less 1: the median, and 5th and 95th percentile."""

    median: float
    low: float
    high: float


def error_of(predicted: Sequence[float], steps: Sequence[Step]) -> Error:
    """Compare predictions with the steps that ran."""
    found = sorted(p / (s.length or 1.0) - 1 for p, s in zip(predicted, steps, strict=True))
    last = len(found) - 1
    return Error(median(found), found[round(0.05 * last)], found[round(0.95 * last)])


@dataclass(frozen=True)
class Classes:
    """Groups of sizes: ``cuts`` between them, and how many medians each part lasts in a group."""

    cuts: tuple[float, ...]
    ratios: Mapping[tuple[Part, int], float]

    def of(self, size: float) -> int:
        """Return the class of a size."""
        return bisect(self.cuts, size)


@dataclass(frozen=True)
class Costs:
    """Costs of the steps of a trace."""

    steps: Steps

    @cached_property
    def medians(self) -> dict[tuple[int, Part], float]:
        """The median time of a replica's stage and kind, in us."""
        found: dict[tuple[int, Part], list[float]] = defaultdict(list)
        for step in self.steps.steps:
            for op, length in step.lengths.items():
                found[step.replica, (op.stage, op.kind)].append(length)
        return {key: median(values) for key, values in found.items()}

    def own(self, number: int, op: Op) -> float:
        """Return the time that an op took."""
        return self.steps.steps[number].lengths[op]

    def by_median(self, number: int, op: Op) -> float:
        """Return the time of an op by its stage's median."""
        return self.medians[self.steps.steps[number].replica, (op.stage, op.kind)]

    def by_size(self, number: int, op: Op) -> float:
        """Return the time of an op by its stage's median and its microbatch's own size."""
        return self.by_median(number, op) * self.size(number, op)

    def size(self, number: int, op: Op) -> float:
        """Return the size of an op's microbatch."""
        return self.sizes[number].get(op.microbatch, 1.0)

    @cached_property
    def sizes(self) -> list[dict[int, float]]:
        """Of every step, the sizes of its microbatches."""
        found = []
        for place, step in enumerate(self.steps.steps):
            own: dict[int, list[float]] = defaultdict(list)
            for op, length in step.lengths.items():
                if typical := self.by_median(place, op):
                    own[op.microbatch].append(length / typical)
            found.append({number: median(values) for number, values in own.items()})
        return found

    def against(self, expected: Lengths) -> list[tuple[int, Op, float, float]]:
        """Return every op of every step, with the time it took and that expected."""
        return [
            (number, op, length, expected(number, op))
            for number, step in enumerate(self.steps.steps)
            for op, length in step.lengths.items()
        ]

    @cached_property
    def vary(self) -> bool:
        """Whether microbatches differ: sizes vary, and explain most of how ops of a stage do."""
        sizes = [size for own in self.sizes for size in own.values()]
        rests = [length / (wanted or 1) for *_, length, wanted in self.against(self.by_size)]

        def width(values: Sequence[float]) -> float:
            ordered, last = sorted(values or [0.0]), max(len(values) - 1, 0)
            return ordered[round(0.9 * last)] - ordered[round(0.1 * last)]

        return self.steps.trace.timed and width(sizes) > max(_VARIES, 2 * width(rests))

    @cached_property
    def halves(self) -> tuple[list[int], list[int]]:
        """Numbers of steps to fit on and to judge by: of every second replica, else iteration."""
        several = len(self.steps.replicas) > 1
        keys = [s.replica if several else s.iteration for s in self.steps.steps]
        ranked = {key: place for place, key in enumerate(sorted({*keys}))}
        fit = [n for n, key in enumerate(keys) if ranked[key] % 2 == 0]
        return fit, [n for n, key in enumerate(keys) if ranked[key] % 2] or fit

    def fitted(self, count: int, on: Sequence[int]) -> Classes:
        """Group the sizes of microbatches of some steps (k-means from even quantiles)."""
        own = [self.sizes[number] for number in on]
        sizes = sorted(size for one in own for size in one.values())
        centres = [sizes[int((n + 0.5) * len(sizes) / count)] for n in range(count)]
        cuts: tuple[float, ...] = ()
        for _ in range(100):
            new = tuple((a + b) / 2 for a, b in pairwise(centres))
            if new == cuts:
                break
            cuts = new
            groups: list[list[float]] = [[] for _ in centres]
            for size in sizes:
                groups[bisect(cuts, size)].append(size)
            centres = [fmean(g) if g else c for g, c in zip(groups, centres, strict=True)]
        seen: dict[tuple[Part, int], list[float]] = defaultdict(list)
        for number in on:
            step = self.steps.steps[number]
            for op, length in step.lengths.items():
                group = bisect(cuts, self.size(number, op))
                seen[(op.stage, op.kind), group].append(length / (self.by_median(number, op) or 1))
        return Classes(cuts, {key: median(values) for key, values in seen.items()})

    def by_class(self, classes: Classes) -> Lengths:
        """Return what gives ops the time of their microbatch's class."""

        def length(number: int, op: Op) -> float:
            key = (op.stage, op.kind), classes.of(self.size(number, op))
            return classes.ratios.get(key, 1.0) * self.by_median(number, op)

        return length

    def expected(self, number: int, op: Op) -> float:
        """Return the time of an op, were nothing odd."""
        return (self.by_size if self.vary else self.by_median)(number, op)

    @cached_property
    def stalls(self) -> list[Stall]:
        """Ops that took far longer than their stage, kind and microbatch's size let expect."""
        least = _OF_STEP * median(step.length for step in self.steps.steps)
        excess: dict[tuple[int, Part], list[tuple[bool, Stall]]] = defaultdict(list)
        for number, op, length, wanted in self.against(self.expected):
            step = self.steps.steps[number]
            stall = Stall(step.replica, step.iteration, op, length - wanted)
            excess[step.replica, (op.stage, op.kind)].append((length > _LONG * wanted, stall))
        found = []
        for own in excess.values():
            spread = _SPREADS * median(abs(stall.excess) for _, stall in own)
            found += [stall for long, stall in own if long and stall.excess > max(least, spread)]
        return sorted(found) if self.steps.trace.timed else []

    @cached_property
    def noise(self) -> dict[Part, float]:
        """How much ops of a stage and kind vary: standard deviation over mean, without stalls."""
        stalled = {stall[:3] for stall in self.stalls}
        found: dict[Part, list[float]] = defaultdict(list)
        for number, op, length, wanted in self.against(self.expected):
            step = self.steps.steps[number]
            if (step.replica, step.iteration, op) not in stalled:
                found[op.stage, op.kind].append(length / wanted if wanted else 1.0)
        return {part: pstdev(values) / (fmean(values) or 1) for part, values in found.items()}


@dataclass(frozen=True)
class Replays:
    """Steps timed again, as early as possible: those of one order in one pass.

    ``sequences`` has the order of every step, each by the object that stands for it.
    """

    costs: Costs
    sequences: Mapping[object, LinearOrder]

    def makespans(
        self, length: Lengths, delay: float = 0.0, on: Sequence[int] | None = None
    ) -> list[float]:
        """Return what steps take with such lengths, and such a delay of every link, in us."""
        import numpy as np

        steps = self.costs.steps.steps
        chosen = range(len(steps)) if on is None else on
        found: dict[int, float] = {}
        groups: dict[object, list[int]] = defaultdict(list)
        for number in chosen:
            groups[steps[number].order].append(number)
        for order, numbers in groups.items():
            line = self.sequences[order]
            table: NDArray[np.float64] = np.array(
                [[length(n, cast("Op", item)) for n in numbers] for item in line.item]
            )
            ends = last_ends(line.device, _waits(line, delay), table, lambda _: 0.0)
            found |= zip(numbers, np.max([*ends.values()], axis=0).tolist(), strict=True)
        return [found[number] for number in chosen]

    def delay_that_explains(self, length: Lengths) -> float:
        """Return the delay of every link that lets predictions be right in the median; 0: none."""
        steps = self.costs.steps.steps

        def short(delay: float) -> bool:
            return error_of(self.makespans(length, delay), steps).median < 0

        low, high = 0.0, median(step.length for step in steps)
        if not short(0.0) or short(high):
            return 0.0
        for _ in range(24):
            middle = (low + high) / 2
            low, high = (middle, high) if short(middle) else (low, middle)
        return high


def _waits(line: LinearOrder, delay: float) -> list[Waits]:
    """What every item waits for, with one delay for all links between devices."""
    found: list[Waits] = []
    for number, inputs in enumerate(line.inputs):
        device = line.device[number]
        own = [(s, 0.0 if line.device[s] == device else delay) for s, _ in inputs]
        if line.before[number] >= 0:
            own.append((line.before[number], 0.0))
        found.append(own)
    return found
