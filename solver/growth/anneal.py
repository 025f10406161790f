"""Annealing over which microbatch takes which place, every step packed anew.

What an exchange of microbatches is worth shows only once ops have moved into the gaps that it
leaves. So a step exchanges one or two, packs the order forward and backward a few times
(:mod:`pipesat.solver.growth.packing`), now and then with a phase put off, and is taken if it is no
longer, or by chance, the less likely the longer it is and the later it comes (Kirkpatrick et al.
1983, "Optimization by simulated annealing").
Steps cost a few passes over the ops: the order is translated once, exchanges only look up the
amounts of other classes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipesat.core.arrays import Floats, Ints
from pipesat.kernels.arrays import B, F, W
from pipesat.kernels.packing import Jobs, over_slacks, pack
from pipesat.kernels.permutations import exchange
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Order
from pipesat.solver.growth.exchange_times import PermutedOrder
from pipesat.solver.lanes.clock import Clock

_HEAT = 0.004  # of the makespan: what is taken with a chance of 1/e at the beginning
_EXCHANGES = (0, 1, 1, 2)  # at a step; with none, only packing differs
_TRIES = 8  # exchanges at a step, where memory is tight
_PASSES, _FIRST_PASSES = 3, 6
_PATIENCES = (0.0, 0.25, 0.5, 0.5, 1.0)
_SHIFTED = 0.4  # of the passes put one phase off:
_PHASES = (W, W, F, B)
_LATER = (0.02, 0.05, 0.1, 0.3)  # by so much of their device's row


@dataclass(frozen=True)
class _State:
    """An order: the items in rows, and per place the microbatch that is there."""

    row: Ints
    permutation: Ints
    makespan: int


class Annealing:
    """Steps from one order on. Items keep stage, kind and place; microbatches change places."""

    def __init__(self, problem: Problem, order: Order, seed: int) -> None:
        self.order = PermutedOrder(problem, order)
        self.jobs = self.order.jobs
        self.waiting = np.repeat(np.arange(len(self.jobs.device)), np.diff(self.jobs.inputs.begin))
        lengths = np.diff(self.jobs.begin)
        self.row_length = lengths[self.jobs.device].astype(np.float64)
        self.chance = random.Random(seed)  # noqa: S311
        self.draws = np.array([self.chance.randrange(1, 1 << 62)])
        first = np.arange(len(self.jobs.device))
        identity = self.order.identity
        self.here = self.best = self._settled(self._jobs(identity), first, identity, _FIRST_PASSES)

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
            jobs = self._jobs(permutation)
            if over_slacks(jobs, self.here.row) < 0:
                return self._settled(jobs, self.here.row, permutation, _PASSES)
        return None

    def _jobs(self, permutation: Ints) -> Jobs:
        """The items with what the microbatches at their places need."""
        length, taken, net, delay = self.order.amounts(permutation).T.copy()
        inputs, outputs = self.jobs.inputs, self.jobs.outputs
        return self.jobs._replace(
            duration=length,
            taken=taken,
            net=net,
            inputs=inputs._replace(delay=delay[self.waiting]),
            outputs=outputs._replace(delay=delay[outputs.item]),
        )

    def _settled(self, jobs: Jobs, row: Ints, permutation: Ints, passes: int) -> _State:
        """The shortest of some passes, forward and backward in turn."""
        best: _State | None = None
        for number in range(passes):
            backward = number % 2 == 1
            later = self._later(backward)
            row, makespan = pack(jobs, row, backward, self.chance.choice(_PATIENCES), later)
            if best is None or makespan < best.makespan:
                best = _State(row, permutation, makespan)
        if best is None:
            raise ValueError("expected at least one pass")
        return best

    def _later(self, backward: bool) -> Floats:
        """By how many places items seem put off: now and then those of one phase, W most often."""
        if self.chance.random() >= _SHIFTED:
            return np.zeros(len(self.row_length))
        phase, share = self.chance.choice(_PHASES), self.chance.choice(_LATER)
        later: Floats = self.row_length * (-share if backward else share)
        return np.where(self.jobs.chain % 3 == phase, later, 0.0)

    def _order(self, state: _State) -> Order:
        order = self.order.items.order(state.row)
        return self.order.with_microbatches(order, state.permutation)
