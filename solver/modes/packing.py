"""Packing with modes: let ops run earlier, or later, where memory with all copies done allows.

The packer (:mod:`pipesat.solver.packing`) counts memory op by op. Here an offloaded microbatch
holds, between its F and its backward, what it holds between its copies; ``spare`` is memory that is
left for copies under way. What comes out is timed with its copies, which shows what they cost.
How short a start is says little of how short it gets, so many are packed a little, and the shorter
half of them goes on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product

from pipesat.core.problem import Problem
from pipesat.core.schedule import Order
from pipesat.solver.modes.starts import largest_held
from pipesat.solver.packing import Jobs, Walk, jobs_of

_EARLY = 2  # passes without disturbance
_SPARES = (1.0, 0.0)  # activations of memory left for copies
_PASSES, _MOST_PASSES = 2, 16  # per order in the first round, and in the last


def _shortest(
    walk: Walk, passes: int, offer: Callable[[Order], int | None], over: Callable[[], bool]
) -> float:
    """Run some passes, offer what comes out, and return the least of their lengths."""
    least = math.inf
    for _ in range(passes):
        if over() or walk.step() is None:
            break
        length = offer(walk.order)
        least = least if length is None else min(least, length)
    return least


def pack_by_turns(
    problem: Problem,
    orders: Iterable[Order],
    rng: random.Random,
    offer: Callable[[Order], int | None],
    over: Callable[[], bool],
) -> None:
    """Pack some orders round by round, the shorter half of them with twice as many passes.

    ``offer`` takes an order that comes out and returns how long it is, ``None`` if it is not valid.
    """
    spares = [[int(share * most) for most in largest_held(problem)] for share in _SPARES]
    lines = [packer(problem, order, spare, rng) for order, spare in product(orders, spares)]
    passes = _PASSES
    while lines and passes <= _MOST_PASSES and not over():
        lengths = [_shortest(walk, passes, offer, over) for walk in lines]
        ranked = sorted(range(len(lines)), key=lengths.__getitem__)
        lines = [lines[number] for number in ranked[: len(lines) // 2]]
        passes *= 2


def packer(problem: Problem, order: Order, spare: Sequence[int], rng: random.Random) -> Walk:
    """Passes over one order in modes."""
    jobs, items = jobs_of(problem, order)
    return Walk(_with_spare(jobs, spare), items, rng, _EARLY)


def _with_spare(jobs: Jobs, spare: Sequence[int]) -> Jobs:
    """Leave room for copies under way, where the order allows that."""
    rooms: list[int | None] = []
    for device, row in enumerate(jobs.rows):
        room = jobs.room[device]
        held = most = 0
        for number in row:
            most = max(most, held + jobs.taken[number])
            held += jobs.net[number]
        rooms.append(None if room is None else min(room, max(most, room - spare[device])))
    return replace(jobs, room=rooms)
