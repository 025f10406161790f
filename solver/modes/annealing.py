"""Orders in modes, annealed: what windows do piece by piece, all over the order, by chance.

A walk of some hundred thousand moves (:mod:`pipesat.kernels.annealing`) takes a fraction of a
second. It knows neither pairs nor copies, keeps the order of the microbatches on every stage, and
leaves the last per cent to windows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import cycle

from pipesat.core.arrays_of import arrays_of, coded, order_of
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Order
from pipesat.kernels.compiled import why_interpreted
from pipesat.solver.run.incumbent import Incumbent

ANNEALED = "annealed with modes"
_MOVES, _MOST_MOVES = 60_000_000, 400_000  # of a first walk: so many over the number of ops
_SECONDS = 0.2  # that these take, in the terms of a deterministic clock
_HEATS = (0.001, 0.0003)  # of the order's length: what is so much longer may be kept at first
_LINES = 6  # orders that are annealed round by round


def annealing_applies(problem: Problem, objective: Objective) -> bool:
    """Whether modes of a problem can be annealed, and that is not much slower than usual."""
    free = problem.has_modes and problem.mode_choice == "microbatch"
    seen = objective == "makespan" and problem.overlap is None and not problem.has_copies
    return free and seen and not why_interpreted()


class Annealer:
    """Walks from orders of one problem without pairs and copies."""

    def __init__(self, problem: Problem, incumbent: Incumbent, seed: int) -> None:
        import numpy as np  # importing pipesat stays fast

        from pipesat.kernels.annealing import FUSED, SPLIT, Levers

        self.problem, self.incumbent = problem, incumbent
        self.arrays, self.chance = arrays_of(problem), random.Random(seed)  # noqa: S311
        ways = np.zeros(len(self.arrays.time), np.int64)
        for stage, first in enumerate(self.arrays.first_cell[:-1].tolist()):
            for number in range(problem.microbatches[stage]):
                for mode in problem.modes_of(stage):
                    amounts = problem.amounts(stage, number, mode)
                    fused = amounts.may_fuse and (amounts.fusing_may_pay or not amounts.may_split)
                    ways[self.arrays.variant_of[first + number] + mode] = (
                        SPLIT * amounts.may_split + FUSED * fused
                    )
        counts = [len(problem.modes_of(stage)) for stage in range(len(problem.stages))]
        self.levers = Levers(np.array(counts, np.int64), ways)
        self.turns, self.heats = 1, cycle(_HEATS)

    def walk(self, order: Order, length: int, turns: int) -> tuple[int, Order]:
        """Return the best order of a walk that is ``turns`` times as long as usual; offer it."""
        from pipesat.kernels.annealing import annealed

        moves = turns * min(_MOST_MOVES, 1 + _MOVES // self.problem.op_count)
        heat, seed = next(self.heats) * length, self.chance.randrange(1 << 30)
        self.incumbent.clock.count(_SECONDS * turns)
        codes = coded(self.problem, order)[1]
        found = annealed(self.arrays, self.levers, codes, moves, heat, seed)
        order = order_of(self.problem, self.arrays, found)
        value = self.incumbent.offer(order, ANNEALED)
        return length if value is None else value, order

    def by_turns(self, orders: Sequence[tuple[int, Order]], over: Callable[[], bool]) -> None:
        """Anneal orders that fit, with their lengths: the shorter half of them twice as long."""
        lines, turns = sorted(orders, key=lambda line: line[0])[:_LINES], 1
        while lines and not over():
            walked = [self.walk(order, length, turns) for length, order in lines if not over()]
            lines = sorted(walked, key=lambda line: line[0])[: len(lines) // 2]
            turns *= 2

    def step(self) -> bool:
        """Walk from the incumbent; there is always another walk, with other chances."""
        schedule = self.incumbent.schedule
        if schedule is not None:
            self.walk(schedule.order, schedule.makespan, self.turns)
            self.turns = min(self.turns + 1, _LINES)
        return True
