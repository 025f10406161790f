"""Packing: let ops of an order run earlier where a device idles and memory stays safe.

The order is the guide. A device that falls idle may take any op whose input is there; it prefers
the one that comes first in the guide, and takes a later one only if, with that op moved to the
front, its remaining row in guide order still fits into memory. So the invariant holds that "what
was done, then the rest in guide order" is a valid order: packing cannot deadlock and cannot exceed
a capacity, and if nothing can be moved the result is the guide itself.

Packing the time-reversed order moves ops later instead. Alternating the two ("justification", as it
is called for project schedules: Wiest 1964; Li and Willis 1992) shortens warm-up and cool-down by
turns. It works on any valid order, be it unrolled from a repetend or made by a heuristic. Passes
differ in patience and in small disturbances of the guide, drawn by chance. After some passes
without improvement the walk returns to the best order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.kernels.arrays import NONE, Coded, ProblemArrays
from pipesat.kernels.packing import Fusing, Jobs, Joins, Waits, pack
from pipesat.kernels.timing import sequenced
from pipesat.problem.problem import Problem
from pipesat.schedule.arrays_of import coded, order_of
from pipesat.schedule.schedule import Order, Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.lanes.clock import Clock


class Items(NamedTuple):
    """The items of an order, numbered by their places in its codes."""

    problem: Problem
    arrays: ProblemArrays
    codes: Coded

    def order(self, row: Ints) -> Order:
        """Return the order of the items that has these numbers, device after device."""
        first, second, begin = self.codes
        return order_of(self.problem, self.arrays, Coded(first[row], second[row], begin))


def jobs_of(problem: Problem, order: Order) -> tuple[Jobs, Items]:
    """Translate an order that can run; the items come in the numbers' order."""
    arrays, codes = coded(problem, order)
    found = sequenced(arrays, codes)
    number, place = found.item, np.argsort(found.item)
    waiting, awaited = np.repeat(number, np.diff(found.begin)), number[found.source]
    taken, net = np.zeros((2, len(number)), np.int64)
    for code in (codes.first, codes.second):
        some = code >= 0
        own = code[some]
        rows = arrays.variant_of[own >> arrays.shift] + ((own & (1 << arrays.shift) - 1) >> 2)
        taken[some] += arrays.taken[rows, own & 3]
        net[some] += arrays.net[rows, own & 3]
    last = np.where(codes.second < 0, codes.first, codes.second)
    phase = np.array([0, 1, 2, 1])[last & 3]
    none = np.full(len(number), NONE)
    jobs = Jobs(
        begin=codes.begin,
        slack=arrays.slack,
        device=found.device[place],
        duration=found.duration[place],
        taken=taken,
        net=net,
        chain=3 * arrays.stage_of[last >> arrays.shift] + phase,
        inputs=_waits(waiting, awaited, found.delay, len(number)),
        outputs=_waits(awaited, waiting, found.delay, len(number)),
        joins=Joins(
            none,
            none,
            arrays.pair_by,
            arrays.pair_num,
            arrays.pair_den,
            reach=0.0,
            wait=0.0,
            fusing=Fusing(none, *np.zeros((5, len(number)), np.int64)),
        ),
    )
    return jobs, Items(problem, arrays, codes)


def _waits(own: Ints, other: Ints, delay: Ints, items: int) -> Waits:
    by_item = np.argsort(own, kind="stable")
    begin = np.searchsorted(own[by_item], np.arange(items + 1))
    return Waits(begin, other[by_item], delay[by_item])


_PATIENCES = (0.5, 0.0, 0.25, 0.75, 1.0)
_DISTURBANCES = (0.0, 0.0, 1.5, 4.0)  # places of the guide that an item may seem away from its own
_STALE = 12  # passes without improvement before the walk returns to the best order
_FIRST_PASSES = 6  # without disturbance: turn by turn, these improve most


def justified(
    problem: Problem,
    order: Order,
    *,
    seed: int,
    clock: Clock,
    passes: int | None = None,
    source: str = "",
) -> Iterator[Schedule]:
    """Yield schedules, timed as early as possible, each of smaller makespan than all before.

    The first is the given order's own. Ends after so many passes, or when the clock is over.
    """
    best = time_order(problem, order, source=source)
    yield best
    walk = Walk(*jobs_of(problem, order), random.Random(seed))  # noqa: S311 (not secrecy)
    least, kept, done, stale = math.inf, walk.row, 0, 0
    while (passes is None or done < passes) and not clock.over:
        makespan = walk.step()
        clock.count_ops(problem.op_count)
        done += 1
        stale += 1
        if makespan < least:
            least, kept, stale = makespan, walk.row, 0
            if makespan < best.makespan:
                best = time_order(problem, walk.order, source=source)
                yield best
        elif stale > _STALE:
            walk.row, stale = kept, 0


class Walk:
    """Passes over an order, forward and backward in turn; the first ``early`` are not disturbed.

    ``row`` is what the last pass left.
    """

    def __init__(
        self, jobs: Jobs, items: Items, chance: random.Random, early: int = _FIRST_PASSES
    ) -> None:
        self.jobs, self.items, self.chance, self.early = jobs, items, chance, early
        self.row, self.steps = np.arange(len(jobs.device)), 0
        self.draws = np.random.default_rng(chance.getrandbits(64))

    def step(self) -> int:
        """Run one pass and return its makespan."""
        patience, disturbance = _PATIENCES[0], 0.0
        if self.steps >= self.early:
            patience = self.chance.choice(_PATIENCES)
            disturbance = self.chance.choice(_DISTURBANCES)
        later = np.zeros(len(self.row))
        if disturbance:
            later = disturbance * self.draws.random(len(self.row))
        self.row, _, _, makespan = pack(self.jobs, self.row, self.steps % 2 == 1, patience, later)
        self.steps += 1
        return makespan

    @property
    def order(self) -> Order:
        """The order that the last pass left."""
        return self.items.order(self.row)
