"""How much work, and how many whole microbatches, memory admits at most.

Work is a knapsack of microbatches, in numbers or in tables. Memory for five chunks holds two
microbatches of two chunks each, not two and a half. Such a limit on the number of microbatches is
memory, too: that of a problem in which a microbatch holds 1 of it. docs/proofs/bounds.md has the
argument.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property, reduce
from math import gcd
from operator import mul
from typing import Any, TypeAlias

import numpy as np

from pipesat.problem.problem import Device, Problem
from pipesat.problem.stage import HELD

Number: TypeAlias = Any
"""An integer; or an array, of one cell for each way to cut layers into stages."""


def least(values: Iterable[Number]) -> Number:
    """Return the least of some numbers, cell by cell."""
    return reduce(lambda a, b: np.minimum(a, b) if is_table(a, b) else min(a, b), values)


def most(values: Iterable[Number]) -> Number:
    """Return the largest of some numbers, cell by cell."""
    return reduce(lambda a, b: np.maximum(a, b) if is_table(a, b) else max(a, b), values)


def where(condition: Any, then: Number, otherwise: Number) -> Number:
    """Return either number, cell by cell."""
    if is_table(condition):
        return np.where(condition, then, otherwise)
    return then if condition else otherwise


def is_table(*values: Number) -> bool:
    """Whether some number is an array."""
    return any(isinstance(value, np.ndarray) for value in values)


Option: TypeAlias = tuple[Number, Number]
"""Memory that one microbatch takes, and the work that this keeps for later."""

_MOST_STEPS = 20_000_000  # of cells times microbatches
_ROUNDED = 1 + 1e-12  # so that rounding errors cannot make an upper bound too low


def in_use(slack: Number, held: Iterable[Number]) -> Number:
    """Return some memory as far as sums of what is held can fill it."""
    if is_table(slack):
        unit = np.maximum(np.gcd.reduce([*held]), 1)
        return np.where(slack > unit, slack - slack % unit, slack)
    unit = gcd(*held)
    return slack - slack % unit if slack is not None and unit and slack > unit else slack


_MOST_SIZES = 64  # by which shares are measured


def shares(sizes: Collection[int], slack: int) -> Iterator[tuple[int, Callable[[int], int]]]:
    """Yield ``(whole, share)``: whatever fits into the slack has shares of at most the whole.

    Two are measured by each size e up to half of the slack, and by that half. One counts nothing
    below e, and all of what leaves less than e. The other counts how many e's a size holds and, of
    one above half, what it leaves no memory for (Fekete and Schepers, "New classes of fast lower
    bounds for bin packing problems", 2001). None where all sizes are equal.
    """
    measures = {*(2 * e for e in sizes if 0 < 2 * e <= slack), slack}  # doubled
    for twice in sorted(measures)[:_MOST_SIZES] if len(sizes) > 1 else ():

        def large(x: int, twice: int = twice) -> int:
            return slack if 2 * (slack - x) < twice else 0 if 2 * x < twice else x

        def counted(x: int, twice: int = twice) -> int:
            most = 2 * slack // twice
            if 2 * x == slack:
                return most
            return 2 * (2 * x // twice if 2 * x < slack else most - 2 * (slack - x) // twice)

        yield slack, large
        yield 2 * (2 * slack // twice), counted


@dataclass(frozen=True)
class Knapsack:
    """Kinds of microbatches, each with the options of which any of them takes at most one.

    Of a kind with two, the second may be the better use of memory.
    """

    kinds: Sequence[Sequence[Option]]

    def most(self, counts: Sequence[Number], slack: Number | None) -> Number:
        """Upper bound on the work of so many microbatches of each kind, in so much memory.

        Exact for a single kind. Of several, the linear relaxation, with whole multiples of what all
        sizes have in common. By its dual it is the least, over prices of memory, of ``price x slack
        + sum of count x the largest of (work - price x size) and 0``; every price bounds.
        """
        if slack is None:
            free = (n * most(w for _, w in of) for n, of in zip(counts, self.kinds, strict=True))
            return sum(free)
        slack = most((slack, 0))
        if len(self.kinds) == 1:
            found = _of_one_kind(self.kinds[0], counts[0], slack)
            if found is not None:
                return found
        if is_table(slack):
            relaxed = least(self._at(price, counts, slack) for price in self._table_prices)
            return np.floor(relaxed * _ROUNDED).astype(np.int64)
        there = zip(counts, self.kinds, strict=True)
        unit = gcd(*(size for n, of in there if n for size, work in of if work)) or 1
        slack -= slack % unit
        prices = self._prices

        @cache
        def value(number: int) -> Fraction:
            num, den = prices[number].as_integer_ratio()
            return Fraction(num * slack + sum(map(mul, counts, self._worth(number))), den)

        # it is convex in the price, and bends at these
        steps = range(len(prices) - 1)
        return int(value(bisect_left(steps, True, key=lambda k: value(k) <= value(k + 1))))

    @cached_property
    def _worth(self) -> Callable[[int], list[int]]:
        """What a microbatch of each kind is worth at a price, times the price's denominator."""

        @cache
        def found(number: int) -> list[int]:
            num, den = self._prices[number].as_integer_ratio()
            return [max(0, *(work * den - num * size for size, work in of)) for of in self.kinds]

        return found

    def _at(self, price: Number, counts: Sequence[Number], slack: Number) -> Number:
        rest = zip(counts, self.kinds, strict=True)
        return price * slack + sum(
            n * most((0.0, *(work - price * size for size, work in of))) for n, of in rest
        )

    @cached_property
    def _prices(self) -> list[Fraction]:
        """Work per memory, of every option and of one instead of another."""
        found = {Fraction(0)}
        for of in self.kinds:
            steps = [*of, *((s - t, w - v) for s, w in of for t, v in of)]
            found |= {Fraction(w, s) for s, w in steps if s > 0 and w > 0}
        return sorted(found)

    @cached_property
    def _table_prices(self) -> list[Number]:
        """Of every kind, that of its better option; where that needs no memory, none."""
        better = (most(where(s > 0, w / most((s, 1)), 0.0) for s, w in of) for of in self.kinds)
        return [0.0, *better]


def _of_one_kind(options: Sequence[Option], count: Number, slack: Number) -> Number | None:
    """Return the most work, of whole microbatches; ``None`` if there are too many to try."""
    (size, work), *others = options
    fit = _fit(slack, size, count)
    if not others:
        return work * fit
    ((other_size, other_work),) = others

    def of(x: Number) -> Number:
        y = least((_fit(slack - size * x, other_size, count), count - x))
        return x * work + y * other_work

    if not is_table(fit):
        whole = object if count * (work + other_work) >= 1 << 62 else np.int64
        return int(of(np.arange(fit + 1, dtype=whole)).max())
    steps = int(fit.max(initial=0)) + 1
    if steps * fit.size > _MOST_STEPS:
        return None
    best = np.zeros_like(fit)
    for x in range(steps):
        best = np.maximum(best, np.where(x <= fit, of(x), 0))
    return best


def _fit(slack: Number, size: Number, count: Number) -> Number:
    """How many of a size fit into memory, of so many."""
    return where(size > 0, least((slack // most((size, 1)), count)), count)


def with_slacks_in_use(problem: Problem) -> Problem:
    """Return the problem with every device's memory as far as anything can fill it.

    What is held is a sum of the stages' amounts, hence a multiple of their greatest common divisor.
    """
    devices = []
    for device, numbers in zip(problem.devices, problem.stages_on, strict=True):
        stages = [problem.stages[s] for s in numbers]
        slack = in_use(device.slack, (getattr(stage, key) for stage in stages for key in HELD))
        devices.append(device if slack is None else replace(device, memory=device.static + slack))
    return replace(problem, devices=tuple(devices))


def in_whole_microbatches(problem: Problem, device: int) -> Iterator[Problem]:
    """Yield problems whose memory is how many microbatches of a stage of the device are in flight.

    That is from the start of F to the end of the backward, while the device's earlier stages of the
    route hold theirs, too. Every schedule of the problem is one of each; only where such a number
    leaves some of the slack over.
    """
    slack = problem.devices[device].slack
    if slack is None:
        return
    for stages in problem.chunks_on[device].values():
        held = 0
        for stage in stages:
            held += problem.stages[stage].held_after_F
            number = slack // held if held else 0
            if number and number * held < slack:
                yield _counting(problem, device, stage, number)


def _counting(problem: Problem, device: int, stage: int, number: int) -> Problem:
    """Return the problem in which the device has memory for so many microbatches of a stage."""
    stages = list(problem.stages)
    for s in problem.stages_on[device]:
        held = int(s == stage)
        stages[s] = replace(stages[s], held_after_F=held, held_after_B=0, held_in_backward=0)
    devices = list(problem.devices)
    devices[device] = Device(devices[device].name, memory=number)
    return replace(problem, devices=tuple(devices), stages=tuple(stages))
