"""Local search over which microbatch takes which place of an order.

An order that is good for one sequence of microbatches is packed anew after they have changed
places, so two moves alternate: exchange microbatches while the order of ops stays (thousands of
permutations a second, :mod:`pipesat.solver.permutations.times`), then let ops run earlier where the
new sequence leaves gaps (:mod:`pipesat.solver.packing`). Exchanges are swaps and shifts; where none
helps, a few random ones lead away from the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import time_order
from pipesat.solver.packing.justify import justified
from pipesat.solver.permutations.times import PermutedOrder
from pipesat.solver.run.clock import Clock

SOURCE = "microbatch order"
_AT_ONCE = 192  # permutations valued together
_STALE = 4  # rounds without an improvement before an order is packed anew
_ROUND = 6.0  # seconds at most between two packings
_KICK = 3  # exchanges at random that lead away from the best
_PASSES = 12
_LARGEST_VALUE = np.iinfo(np.int64).max


def permutations_apply(problem: Problem) -> bool:
    """Whether microbatches differ and may change places."""
    return not problem.alike and problem.order != "given"


def permuted_schedules(
    problem: Problem, starts: Sequence[Schedule], *, clock: Clock, seed: int
) -> Iterator[Schedule]:
    """Yield schedules from several starts in turn, each of smaller makespan than its start's last.

    Goes on until the clock is over; a start that has not improved for a while waits longer.
    """
    chance = np.random.default_rng(seed)
    orders = [start.order for start in starts if PermutedOrder.applies(problem, start.order)]
    best = [time_order(problem, order).makespan for order in orders]
    turn = 0
    while orders and not clock.over:
        which = _next(best, turn)
        turn += 1
        for schedule in _round(problem, orders[which], clock, chance):
            if schedule.makespan <= best[which]:
                orders[which] = schedule.order
                if schedule.makespan < best[which]:
                    best[which] = schedule.makespan
                    yield schedule


def _next(best: Sequence[int], turn: int) -> int:
    """Every start in its turn first, then the best one every other time."""
    if turn < len(best) or turn % 2:
        return turn % len(best) if turn < len(best) else (turn // 2) % len(best)
    return min(range(len(best)), key=best.__getitem__)


def _round(
    problem: Problem, order: Order, clock: Clock, chance: np.random.Generator
) -> Iterator[Schedule]:
    """One exchange of microbatches, then one packing."""
    part = clock.part(_ROUND)
    exchanged = PermutedOrder(problem, order)
    order = exchanged.permuted(_exchange(exchanged, part, chance, _STALE)[0])
    yield from justified(
        problem,
        order,
        seed=int(chance.integers(1 << 30)),
        clock=part,
        passes=_PASSES,
        source=SOURCE,
    )


def best_places(
    problem: Problem, order: Order, *, clock: Clock, seed: int, enough: int = 0
) -> Schedule | None:
    """Return an order with its microbatches in the best places that exchanges have led to.

    Ops keep their places. Ends when the clock is over, or at a makespan of ``enough``; with no
    places found in which the order fits into memory, there is none.
    """
    exchanged = PermutedOrder(problem, order)
    chance = np.random.default_rng(seed)
    best, value = _exchange(exchanged, clock, chance, None, enough)
    return None if value == _LARGEST_VALUE else time_order(problem, exchanged.permuted(best))


def _exchange(
    order: PermutedOrder,
    clock: Clock,
    chance: np.random.Generator,
    patience: int | None,
    enough: int = 0,
) -> tuple[Ints, int]:
    """Return the best permutation that exchanges lead to from the present one, and its makespan.

    Ends after ``patience`` rounds in vain; ``None``: when the clock is over.
    """
    best = here = order.identity
    value = least = int(_values(order, here[None])[0])
    stale = 0
    while (patience is None or stale < patience) and least > enough and not clock.over:
        tried = _neighbours(order, here, chance)
        if not len(tried):
            break
        values = _values(order, tried)
        clock.count_ops(len(tried))
        winner = int(values.argmin())
        if values[winner] < value or (values[winner] == value and chance.random() < 0.5):
            stale += values[winner] == value
            here, value = tried[winner], int(values[winner])
            if value < least:
                best, least, stale = here, value, 0
        else:
            stale += 1
            here = best
            for _ in range(_KICK):
                kicked = _neighbours(order, here, chance, 1)
                if order.fits(kicked)[0]:
                    here = kicked[0]
            value = int(_values(order, here[None])[0])
    return best, least


def _values(order: PermutedOrder, tried: Ints) -> Ints:
    """Makespan of each permutation; the largest number if it exceeds memory."""
    values: Ints = np.where(order.fits(tried) > 0, order.makespans(tried), _LARGEST_VALUE)
    return values


def _neighbours(
    order: PermutedOrder, here: Ints, chance: np.random.Generator, count: int = _AT_ONCE
) -> Ints:
    """Permutations one swap, or one shift, away; places of one route, of different classes."""
    routes = [r for r in order.routes() if len(set(order.kind[r.start : r.stop])) > 1]
    if not routes:
        return np.empty((0, len(here)), dtype=np.int64)
    tried = np.repeat(here[None], count, axis=0)
    for row in tried:
        route = routes[int(chance.integers(len(routes)))]
        while True:
            a, b = chance.integers(route.start, route.stop, 2)
            if order.kind[row[a]] != order.kind[row[b]]:
                break
        if chance.random() < 0.5:
            row[[a, b]] = row[[b, a]]
        elif a < b:
            row[a : b + 1] = np.roll(row[a : b + 1], -1)
        else:
            row[b : a + 1] = np.roll(row[b : a + 1], 1)
    return tried
