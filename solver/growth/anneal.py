"""Annealing over which microbatch takes which place, every step packed anew.

What an exchange of microbatches is worth shows only once ops have moved into the gaps that it
leaves. So a step exchanges one or two, packs the order forward and backward a few times
(:mod:`pipesat.solver.growth.packing`), now and then with a phase put off, and is taken if it is no
longer, or by chance, the less likely the longer it is and the later it comes (Kirkpatrick et al.
1983, "Optimization by simulated annealing").
Where ops may pair, a step also frees some pairs and changes which backwards are fused: what is free
is joined anew. Steps cost a few passes over the ops: the order is translated once, exchanges only
look up the amounts of other classes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipesat.core.arrays import Floats, Ints
from pipesat.kernels.arrays import NONE, B, F, W
from pipesat.kernels.packing import Jobs, over_slacks, pack
from pipesat.kernels.permutations import exchange
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Order
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.exchange_times import PermutedOrder
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.model.pairing import gains

_HEAT = 0.004  # of the makespan: what is taken with a chance of 1/e at the beginning
_EXCHANGES = (0, 1, 1, 2)  # at a step; with none, only packing differs
_TRIES = 8  # exchanges at a step, where memory is tight
_PASSES, _FIRST_PASSES = 3, 6
_PATIENCES = (0.0, 0.25, 0.5, 0.5, 1.0)
_SHIFTED = 0.4  # of the passes put one phase off:
_PHASES = (W, W, F, B)
_LATER = (0.02, 0.05, 0.1, 0.3)  # by so much of their device's row
# Of loose orders:
_FREED = (0.0, 0.05, 0.2, 0.5, 1.0)  # of the members of pairs may join others at a step
_CHANGES = (0, 0, 1, 2, 4)  # backwards that become fused or split at a step
_REACHES = (4.0, 10.0, 20.0, math.inf)
_WAITS = (0.0, 0.25, 0.5, 1.0, 2.0)
_PUT_OFF, _MIXED = 0.2, 0.2  # of the passes put one microbatch off, or each item by chance:
_FAR, _LITTLE = (0.05, 0.1, 0.3, 0.6), (0.02, 0.05, 0.1)  # by so much of their device's row


@dataclass(frozen=True)
class _State:
    """An order: the items in rows, per place the microbatch that is there, and who joined whom."""

    row: Ints
    joined: Ints
    permutation: Ints
    fused: Ints
    makespan: int


class Annealing:
    """Steps from one order on. Items keep stage, kind and place; microbatches change places."""

    def __init__(self, problem: Problem, order: Order, seed: int) -> None:
        self.order = PermutedOrder(problem, order, loose=bool(gains(problem)))
        lengths = np.diff(self.order.jobs.begin)
        self.row_length = lengths[self.order.jobs.device].astype(np.float64)
        self.chance = random.Random(seed)  # noqa: S311
        self.draws = np.array([self.chance.randrange(1, 1 << 62)])
        self.free = np.random.default_rng(seed)
        first, here = np.arange(len(self.row_length)), self.order.identity
        fused, joined = self.order.fused, self.order.joined
        given = _State(first, joined, here, fused, time_order(problem, order).makespan)
        jobs = self.order.jobs_in(here, fused, joined)
        packed = self._settled(jobs, first, here, _FIRST_PASSES)
        self.here = self.best = min(given, packed, key=lambda state: state.makespan)

    def improved(self, clock: Clock) -> Iterator[Order]:
        """Yield an order whenever its makespan is the least so far, until the clock is over."""
        yield self._order(self.best)
        while not clock.over:
            share = clock.left / clock.limit
            found = self._step()
            clock.count_ops(_PASSES * len(self.row_length))
            if found is None or not self._taken(found, share):
                continue
            self.here = found
            if found.makespan < self.best.makespan:
                self.best = found
                yield self._order(found)

    def _taken(self, found: _State, share: float) -> bool:
        longer = found.makespan - self.here.makespan
        heat = _HEAT * self.here.makespan * share
        return longer <= 0 or (heat > 0 and self.chance.random() < math.exp(-longer / heat))

    def _step(self) -> _State | None:
        """The order after some exchanges, packed; ``None`` if none of those tried fits."""
        for _ in range(_TRIES):
            permutation = self.here.permutation.copy()
            for _ in range(self.chance.choice(_EXCHANGES) if self.order.may_change else 0):
                exchange(self.order.places, permutation, self.draws)
            fused, joined = self.here.fused, self.here.joined
            if self.order.loose:
                fused, joined = self._changed(fused, joined)
            jobs = self.order.jobs_in(permutation, fused, joined)
            if over_slacks(jobs, self.here.row) < 0:
                return self._settled(jobs, self.here.row, permutation, _PASSES)
        return None

    def _changed(self, fused: Ints, joined: Ints) -> tuple[Ints, Ints]:
        """Let some backwards become fused or split, and free some pairs."""
        fused, either = fused.copy(), np.flatnonzero(self.order.weight >= 0)
        for _ in range(self.chance.choice(_CHANGES) if len(either) else 0):
            fused[self.chance.choice(either)] ^= 1
        freed = self.free.random(len(joined)) < self.chance.choice(_FREED)
        return fused, np.where(freed | freed[joined], NONE, joined)

    def _settled(self, jobs: Jobs, row: Ints, permutation: Ints, passes: int) -> _State:
        """The shortest of some passes, forward and backward in turn."""
        if self.order.loose:
            reach, wait = self.chance.choice(_REACHES), self.chance.choice(_WAITS)
            jobs = jobs._replace(joins=jobs.joins._replace(reach=reach, wait=wait))
        best: _State | None = None
        for number in range(passes):
            backward = number % 2 == 1
            later = self._later(backward)
            patience = self.chance.choice(_PATIENCES)
            row, joined, fused, makespan = pack(jobs, row, backward, patience, later)
            fusing = jobs.joins.fusing._replace(fused=fused)
            jobs = jobs._replace(joins=jobs.joins._replace(fusing=fusing))
            if best is None or makespan < best.makespan:
                best = _State(row, joined, permutation, fused, makespan)
        if best is None:
            raise ValueError("expected at least one pass")
        return best

    def _later(self, backward: bool) -> Floats:
        """By how many places items seem put off: now and then those of one phase, W most often.

        In a loose order also those of one microbatch, or each item by chance.
        """
        drawn = self.chance.random()
        if drawn < _SHIFTED:
            phase, share = self.chance.choice(_PHASES), self.chance.choice(_LATER)
            later: Floats = self.row_length * (-share if backward else share)
            return np.where(self.order.jobs.chain % 3 == phase, later, 0.0)
        if self.order.loose and drawn < _SHIFTED + _PUT_OFF:
            one = self.order.places.place == self.chance.randrange(len(self.order.places.kind))
            far = self.chance.choice(_FAR) * self.chance.choice((-1, 1))
            return np.where(one, far * self.row_length, 0.0)
        if self.order.loose and drawn < _SHIFTED + _PUT_OFF + _MIXED:
            little = self.chance.choice(_LITTLE) * self.row_length
            return little * self.free.random(len(little))
        return np.zeros(len(self.row_length))

    def _order(self, state: _State) -> Order:
        return self.order.packed(state.row, state.joined, state.fused, state.permutation)
