"""What ops cost in the steps of a trace: medians, sizes of microbatches, stalls and noise.

All of it is arrays with a row per step and a column per op, since steps of one job have the same
ops. An op is taken to last the median of its replica, stage and kind. Where microbatches differ in
length, each has a *size*, the median over its ops of how many such medians they last, and a class:
sizes are put into at most six groups, and a group's ops last the median of what they lasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipesat.core.arrays import Floats, Ints
from pipesat.measure.timeline.steps import WholeSteps
from pipesat.problem.ops import Kind, Op

CLASSES: Final = 6
"""Of microbatches, at most."""
_VARIES: Final = 0.1  # from the 10th to the 90th percentile of sizes
_LONG, _OF_STEP, _SPREADS = 1.5, 0.01, 8.0
"""A stall is so many times as long as expected, longer by so much of a step, and of the spread."""

Part: TypeAlias = tuple[int, Kind]
"""A stage's ops of one kind."""


class Stall(NamedTuple):
    """One op that took far longer than it does else, by ``excess`` us."""

    replica: int
    iteration: int
    op: Op
    excess: float


@dataclass(frozen=True)
class Classes:
    """Groups of sizes: ``cuts`` between them, and how many medians each part lasts in a group."""

    cuts: Floats
    ratios: Floats

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.cuts) + 1


class TraceCosts:
    """Costs of the steps of a trace.

    Attributes
    ----------
    ops, parts
        What the columns are, and all (stage, kind) of them.
    own, by_median, by_size
        What ops took in each step; the medians of their replica, stage and kind; these times the
        size of the op's microbatch.
    unseen
        Such medians of a replica's other steps: each half of them is told by the other, so that a
        prediction has not seen the step that judges it; NaN where there are no others.
    measured
        What each step took.
    sizes
        The size of each step's microbatches.
    vary
        Whether microbatches differ: sizes vary, and explain most of how ops of a stage do.
    expected
        What ops take, were nothing odd.
    """

    def __init__(self, steps: WholeSteps) -> None:
        self.steps = steps
        self.ops = [*steps.steps[0].times]
        self.parts: list[Part] = sorted({(op.stage, op.kind) for op in self.ops})
        self.own = np.array([[step.lengths[op] for op in self.ops] for step in steps.steps])
        self.measured = np.array([step.length or 1.0 for step in steps.steps])
        self._part = np.array([self.parts.index((op.stage, op.kind)) for op in self.ops])
        self._columns = [np.flatnonzero(self._part == number) for number in range(len(self.parts))]
        self._microbatch = np.array([op.microbatch for op in self.ops])
        replica = np.array([step.replica for step in steps.steps])
        self._replicas = [np.flatnonzero(replica == number) for number in steps.replicas]
        self.by_median = np.empty_like(self.own)
        self.unseen = np.full_like(self.own, np.nan)
        for rows in self._replicas:
            for columns in self._columns:
                self.by_median[np.ix_(rows, columns)] = np.median(self.own[np.ix_(rows, columns)])
                for half in (0, 1) if len(rows) > 1 else ():
                    others = np.median(self.own[np.ix_(rows[1 - half :: 2], columns)])
                    self.unseen[np.ix_(rows[half::2], columns)] = others
        self._ratios = _over(self.own, self.by_median)
        each = [self._microbatch == number for number in range(steps.microbatches)]
        self.sizes = np.stack([np.median(self._ratios[:, own], axis=1) for own in each], axis=1)
        self.by_size = self.by_median * self.sizes[:, self._microbatch]
        rests = _width(_over(self.own, self.by_size))
        self.vary = steps.trace.timed and _width(self.sizes) > max(_VARIES, 2 * rests)
        self.expected = self.by_size if self.vary else self.by_median

    def median(self, number: int, part: Part) -> float:
        """Return the median time of a stage and kind in the replica of a step, in us."""
        return float(self.by_median[number, self._columns[self.parts.index(part)][0]])

    @property
    def halves(self) -> tuple[list[int], list[int]]:
        """Numbers of steps to fit on and to judge by: of every second replica, else iteration.

        There are none to judge by if there is one step.
        """
        several = len(self.steps.replicas) > 1
        keys = [s.replica if several else s.iteration for s in self.steps.steps]
        ranked = sorted({*keys})
        halves = [[n for n, key in enumerate(keys) if ranked.index(key) % 2 == h] for h in (0, 1)]
        return halves[0], halves[1]

    def fitted(self, count: int, on: Sequence[int]) -> Classes:
        """Group the sizes of microbatches of some steps (k-means from even quantiles)."""
        sizes = np.sort(self.sizes[on], axis=None)
        centres = sizes[((np.arange(count) + 0.5) * len(sizes) / count).astype(int)]
        cuts = np.empty(0)
        for _ in range(100):
            new = (centres[:-1] + centres[1:]) / 2
            if np.array_equal(new, cuts):
                break
            cuts, group = new, np.searchsorted(new, sizes, "right")
            for number in np.unique(group):
                centres[number] = sizes[group == number].mean()
        group = np.searchsorted(cuts, self.sizes[on], "right")[:, self._microbatch]
        ratios = np.ones((len(self.parts), count))
        for part, columns in enumerate(self._columns):
            for g in range(count):
                seen = self._ratios[on][:, columns][group[:, columns] == g]
                ratios[part, g] = np.median(seen) if len(seen) else 1.0
        return Classes(cuts, ratios)

    def groups(self, classes: Classes) -> Ints:
        """Return the class of each step's microbatches."""
        return np.searchsorted(classes.cuts, self.sizes, "right")

    def by_class(self, classes: Classes, medians: Floats) -> Floats:
        """Return the times of ops by their microbatch's class, given those of their stage."""
        group = self.groups(classes)[:, self._microbatch]
        return medians * classes.ratios[self._part, group]

    @cached_property
    def stalled(self) -> NDArray[np.bool_]:
        """Which ops took far longer than their stage, kind and microbatch's size let expect."""
        excess, long = self.own - self.expected, self.own > _LONG * self.expected
        spread = np.empty_like(excess)
        for rows in self._replicas:
            for columns in self._columns:
                block = np.ix_(rows, columns)
                spread[block] = np.median(abs(excess[block]))
        least = np.maximum(_OF_STEP * np.median(self.measured), _SPREADS * spread)
        return long & (excess > least) & self.steps.trace.timed

    @property
    def stalls(self) -> list[Stall]:
        """All stalls, by replica, step and op."""
        found = []
        for number, column in np.argwhere(self.stalled).tolist():
            step, excess = self.steps.steps[number], (self.own - self.expected)[number, column]
            found.append(Stall(step.replica, step.iteration, self.ops[column], float(excess)))
        return sorted(found)

    @property
    def noise(self) -> dict[Part, float]:
        """How much ops of a stage and kind vary: standard deviation over mean, without stalls."""
        found, ratios = {}, _over(self.own, self.expected)
        for part, columns in zip(self.parts, self._columns, strict=True):
            if len(values := ratios[:, columns][~self.stalled[:, columns]]):
                found[part] = float(values.std() / (values.mean() or 1))
        return found


def _over(times: Floats, typical: Floats) -> Floats:
    """Return quotients; 1 where nothing is typical."""
    return np.divide(times, typical, out=np.ones_like(times), where=typical > 0)


def _width(values: Floats) -> float:
    """Return from where to where the middle eight tenths reach."""
    return float(np.ptp(np.quantile(values, (0.1, 0.9), method="nearest")))
