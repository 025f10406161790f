"""Justification: pack an order forward and backward by turns, with chance, and keep the best.

It works on any valid order, be it unrolled from a repetend or made by a heuristic: each pass is
greedy (:mod:`pipesat.solver.packing.pack`), costs time proportional to the ops, and cannot make an
order invalid. Passes differ in patience and in small disturbances of the guide, drawn by chance;
after some passes without improvement the walk returns to the best order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import time_order
from pipesat.solver.packing.pack import Jobs, jobs_of, pack
from pipesat.solver.run.clock import Clock

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
    counted: bool = True,
    passes: int | None = None,
    source: str = "",
) -> Iterator[Schedule]:
    """Yield schedules, timed as early as possible, each of smaller makespan than all before.

    The first is the given order's own. Ends after so many passes, or when the clock is over.
    With ``counted``, a deterministic clock counts them.
    """
    best = time_order(problem, order, source=source)
    yield best
    walk = _Walk(problem, order, random.Random(seed))  # noqa: S311 (chance, not secrecy)
    done = 0
    while (passes is None or done < passes) and not clock.over:
        found = walk.step(lambda: clock.over)
        if counted:
            clock.count_ops(len(walk.items))
        done += 1
        if found is not None and walk.makespan < best.makespan:
            best = time_order(problem, found(), source=source)
            yield best


class _Walk:
    """A walk through orders, one pass a step. ``forward`` says which way time runs in ``jobs``."""

    def __init__(self, problem: Problem, order: Order, chance: random.Random) -> None:
        self.jobs, self.items = jobs_of(problem, order)
        self.forward = True
        self.chance = chance
        self.steps = self.stale = 0
        self.makespan: float = float("inf")
        self.best = (self.jobs, self.forward)

    def step(self, give_up: Callable[[], bool]) -> Callable[[], Order] | None:
        """Run one pass; if its makespan is the least so far, return what gives its order."""
        early = self.steps < _FIRST_PASSES
        patience = _PATIENCES[0] if early else self.chance.choice(_PATIENCES)
        disturbance = 0.0 if early else self.chance.choice(_DISTURBANCES)
        rank = disturbed(self.jobs, disturbance, self.chance) if disturbance else None
        packed = pack(self.jobs, patience, rank, give_up)
        if packed is None:
            return None
        self.steps += 1
        done, forward = replace(self.jobs, rows=packed.rows), self.forward
        self.jobs, self.forward = done.reversed(), not forward
        if packed.makespan < self.makespan:
            self.makespan, self.best, self.stale = packed.makespan, (done, forward), 0
            return lambda: self._order(done, forward)
        self.stale += 1
        if self.stale > _STALE:
            jobs, forward = self.best
            self.jobs, self.forward, self.stale = jobs.reversed(), not forward, 0
        return None

    def _order(self, jobs: Jobs, forward: bool) -> Order:
        rows = jobs.rows if forward else [row[::-1] for row in jobs.rows]
        return tuple(tuple(self.items[item] for item in row) for row in rows)


def disturbed(jobs: Jobs, most: float, chance: random.Random) -> list[float]:
    """Places of the guide, each moved back by up to ``most``."""
    rank = [0.0] * len(jobs.duration)
    for row in jobs.rows:
        for place, item in enumerate(row):
            rank[item] = place + most * chance.random()
    return rank
