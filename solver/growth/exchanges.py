"""Local search over which microbatch takes which place of an order.

Two ways: exchange microbatches while the order of ops stays (a permutation costs microseconds,
:mod:`pipesat.kernels.permutations`), by swaps and shifts, where none helps a few at random
that lead away from the best; or exchange one or two and let ops run earlier where the new sequence
leaves gaps, step by step (:mod:`pipesat.solver.growth.anneal`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.kernels.arrays import UNLIMITED
from pipesat.kernels.permutations import AT_ONCE, improve, value_of
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Order, Schedule, pairs_in
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.anneal import Annealing
from pipesat.solver.growth.exchange_times import PermutedOrder
from pipesat.solver.growth.packing import justified
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.model.pairing import gains

SOURCE = "microbatch order"
_SLICE = 4_000_000  # ops of permutations between two looks at the clock
_OPS_PER_SECOND = 1e8  # of permutations
_STALE = 4  # rounds without an improvement before an order is packed anew
_ROUND, _QUICK = 3.0, 0.3  # seconds, and share of the time for all, of a start's first round
_RUNS = 2  # of annealing, from the best starts
_PASSES = 12


def permutations_apply(problem: Problem) -> bool:
    """Whether microbatches differ or ops may pair.

    They may change places, or where they are given or alike, ops may move.
    """
    return problem.chains_only and (not problem.alike or bool(gains(problem)))


def permuted_schedules(
    problem: Problem, starts: Sequence[Schedule], *, clock: Clock, seed: int
) -> Iterator[Schedule]:
    """Yield schedules from several starts, each of smaller makespan than all before of its start.

    One exchange and packing of every start, but for pairs; then annealing from the best of what
    came out, a few times or, where microbatches are alike, once, until the clock is over.
    """
    chance = np.random.default_rng(seed)
    loose = bool(gains(problem))  # annealing alone sees what pairs do
    orders = [start.order for start in starts if not (loose or pairs_in(start.order))]
    found = [*starts] if loose else []
    for number, order in enumerate(orders):
        part = clock.part(min(_ROUND, _QUICK * clock.left / (len(orders) - number)))
        last = None
        for last in _round(problem, order, part, chance):
            yield last
        if last is not None:
            found.append(last)
    found.sort(key=lambda schedule: schedule.makespan)
    runs = 1 if problem.alike else _RUNS  # a long one gains more
    for left in range(runs, 0, -1) if found else ():
        best = found[(runs - left) % len(found)]
        run = Annealing(problem, best.order, int(chance.integers(1 << 30)))
        for improved in run.improved(clock.part(clock.left / left)):
            yield time_order(problem, improved, source=SOURCE)


def _round(
    problem: Problem, order: Order, clock: Clock, chance: np.random.Generator
) -> Iterator[Schedule]:
    """One exchange of microbatches, then one packing."""
    exchanged = PermutedOrder(problem, order)
    order = exchanged.permuted(_exchange(exchanged, clock, chance, _STALE)[0])
    yield from justified(
        problem,
        order,
        seed=int(chance.integers(1 << 30)),
        clock=clock,
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
    return None if value == UNLIMITED else time_order(problem, exchanged.permuted(best))


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
    here, best = order.identity, order.identity
    known = np.array([value_of(order.places, here)] * 2 + [0])
    state = chance.integers(1, 1 << 62, size=1)
    ops = AT_ONCE * max(1, len(order.places.sequence))
    rounds, most = 1 + _SLICE // ops, 1 << 62 if patience is None else patience
    while order.may_change and not clock.over:
        done = improve(order.places, here, best, known, state, rounds, most, enough)
        clock.count(done * ops / _OPS_PER_SECOND)
        if done < rounds:
            break
    return best, int(known[1])
