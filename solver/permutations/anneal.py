"""Annealing over which microbatch takes which place, every step packed anew.

What an exchange of microbatches is worth shows only once ops have moved into the gaps that it
leaves. So a step exchanges one or two, packs the order forward and backward a few times
(:mod:`pipesat.solver.packing`), now and then with a phase put off, and is taken if it is no
longer, or by chance, the less likely the longer it is and the later it comes (Kirkpatrick et al.
1983, "Optimization by simulated annealing").
Steps cost a few passes over the ops: the order is translated once, exchanges only look up the
amounts of other classes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.microbatch_order import relabelled
from pipesat.core.ops import PHASE_OF, Phase
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order
from pipesat.solver.packing import Jobs, jobs_of, pack
from pipesat.solver.permutations.times import PermutedOrder, neighbours
from pipesat.solver.run.clock import Clock

_HEAT = 0.004  # of the makespan: what is taken with a chance of 1/e at the beginning
_EXCHANGES = (0, 1, 1, 2)  # at a step; with none, only packing differs
_TRIES = 8  # exchanges at a step, where memory is tight
_PASSES, _FIRST_PASSES = 3, 6
_PATIENCES = (0.0, 0.25, 0.5, 0.5, 1.0)
_SHIFTED = 0.4  # of the passes put one phase off:
_PHASES: tuple[Phase, ...] = ("W", "W", "F", "B")
_LATER = (0.02, 0.05, 0.1, 0.3)  # by so much of their device's row


@dataclass(frozen=True)
class _State:
    """An order: per device the items, and per place the microbatch that is there."""

    rows: list[list[int]]
    permutation: Ints
    makespan: int


class Annealing:
    """Steps from one order on. Items keep stage, kind and place; microbatches change places."""

    def __init__(self, problem: Problem, order: Order, seed: int) -> None:
        self.problem = problem
        self.places = PermutedOrder(problem, order)
        self.jobs, _ = jobs_of(problem, order)  # numbered as the ops of the places are
        self.ops = self.places.ops
        self.phase = [PHASE_OF[op.kind] for op in self.ops]
        self.chance = random.Random(seed)  # noqa: S311
        self.draws = np.random.default_rng(seed)
        first = self._jobs(self.jobs.rows, self.places.identity)
        self.here = self.best = self._settled(first, self.places.identity, _FIRST_PASSES)

    def improved(self, clock: Clock) -> Iterator[Order]:
        """Yield an order whenever its makespan is the least so far, until the clock is over."""
        yield self._order(self.best)
        while not clock.over:
            share = clock.left / clock.limit
            found = self._step()
            clock.count_ops(_PASSES * len(self.ops))
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
            permutation = self.here.permutation
            for _ in range(self.chance.choice(_EXCHANGES)):
                for exchanged in neighbours(self.places, permutation, self.draws, 1):
                    permutation = exchanged
            jobs = self._jobs(self.here.rows, permutation)
            if _fits(jobs):
                return self._settled(jobs, permutation, _PASSES)
        return None

    def _jobs(self, rows: list[list[int]], permutation: Ints) -> Jobs:
        """The items in these rows, with what the microbatches at their places need."""
        kinds = self.places.kind[permutation][self.places.place_of]
        amounts = self.places.amounts[np.arange(len(kinds)), kinds]
        length, taken, net, delay = amounts.T.tolist()
        return replace(
            self.jobs,
            rows=rows,
            duration=length,
            taken=taken,
            net=net,
            inputs=[[(x, delay[i]) for x, _ in own] for i, own in enumerate(self.jobs.inputs)],
            outputs=[[(x, delay[x]) for x, _ in own] for own in self.jobs.outputs],
        )

    def _settled(self, jobs: Jobs, permutation: Ints, passes: int) -> _State:
        """The shortest of some passes, forward and backward in turn."""
        best: _State | None = None
        forward = True
        for _ in range(passes):
            rank = self._shifted(jobs, forward) if self.chance.random() < _SHIFTED else None
            packed = pack(jobs, self.chance.choice(_PATIENCES), rank)
            if packed is None:
                raise ValueError("no search gave up")
            if best is None or packed.makespan < best.makespan:
                rows = packed.rows if forward else [row[::-1] for row in packed.rows]
                best = _State(rows, permutation, packed.makespan)
            jobs, forward = replace(jobs, rows=packed.rows).reversed(), not forward
        if best is None:
            raise ValueError("expected at least one pass")
        return best

    def _shifted(self, jobs: Jobs, forward: bool) -> list[float]:
        """Places in the guide, those of one phase, W more often than others, put off."""
        phase = self.chance.choice(_PHASES)
        later = self.chance.choice(_LATER) * (1 if forward else -1)
        rank = [0.0] * len(self.ops)
        for row in jobs.rows:
            for place, item in enumerate(row):
                rank[item] = place + (later * len(row) if self.phase[item] == phase else 0)
        return rank

    def _order(self, state: _State) -> Order:
        order = tuple(tuple(self.ops[item] for item in row) for row in state.rows)
        return relabelled(self.problem, order, self.places.by_route(state.permutation))


def _fits(jobs: Jobs) -> bool:
    """Whether the rows keep to memory, op by op."""
    for row, room in zip(jobs.rows, jobs.room, strict=True):
        held = 0
        for item in row if room is not None else ():
            if held + jobs.taken[item] > (room or 0):
                return False
            held += jobs.net[item]
    return True
