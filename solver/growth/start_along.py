"""Starts of problems with memory modes: along guides, then packed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from pipesat.core.errors import Deadlock
from pipesat.kernels.timing import makespan_of
from pipesat.problem.problem import Problem
from pipesat.schedule.arrays_of import coded
from pipesat.schedule.schedule import Order, Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.along import ModesAlong
from pipesat.solver.growth.mode_starts import Start, by_length, orders_from, pack_by_turns
from pipesat.solver.lanes.incumbent import Incumbent, failure_note

_STARTS = 0.2  # of the time left, at most, goes into starts along guides
_ANNEALING, _FEW = 0.1, 4  # into better modes along so many guides
_PACKED, _PACKING = 12, 0.12  # starts that are packed, and the share of the time left for that
PACKED, ANNEALED = "packed with modes", "modes by annealing"


def start_along(incumbent: Incumbent, guides: Sequence[Schedule], seed: int) -> list[str]:
    """Offer starts along guides, schedules without modes, valid or not; pack the best of them.

    Returns what failed. They are nearly as short as what windows find in a minute.
    """
    try:
        _start_along(incumbent, guides, seed)
    except Exception as error:
        return [failure_note("a start with modes", error)]
    return []


def _start_along(incumbent: Incumbent, guides: Sequence[Schedule], seed: int) -> None:
    problem = incumbent.problem
    clock = incumbent.part(_STARTS)
    best: list[tuple[int, Order]] = []

    def worth(length: int) -> bool:
        value = incumbent.value
        return incumbent.objective == "span" or value is None or length < value

    for start in orders_from(problem, guides, worth):
        if clock.over:
            break
        length = _offer(problem, incumbent, start)
        clock.count_ops(problem.op_count, checked=True)
        if length is not None and length not in [known for known, _ in best]:
            best = sorted([*best, (length, start.order)], key=lambda found: found[0])[:_PACKED]
    for start in _annealed(incumbent, guides, seed):
        length = _offer(problem, incumbent, start)
        if length is not None:
            best.append((length, start.order))
    best = sorted(best, key=lambda found: found[0])[:_PACKED]
    clock = incumbent.part(_PACKING)

    def offer(packed: Order) -> int | None:
        clock.count_ops(problem.op_count, checked=True)
        return _offer(problem, incumbent, Start(packed, PACKED))

    chance = random.Random(seed)  # noqa: S311 (not secrecy)
    pack_by_turns(problem, [order for _, order in best], chance, offer, lambda: clock.over)


def _annealed(incumbent: Incumbent, guides: Sequence[Schedule], seed: int) -> Iterator[Start]:
    """Yield those guides in better and better modes that become shortest."""
    problem, clock = incumbent.problem, incumbent.part(_ANNEALING)
    found: list[tuple[int, int, ModesAlong]] = []
    for length, guide in by_length(problem, guides):
        if clock.left > clock.limit / 2 and 0 <= length < (incumbent.value or length + 1):
            modes = ModesAlong(problem, guide.order)
            if modes.fitted(clock):
                found.append((modes.length, len(found), modes))
    found = sorted(found)[:_FEW]
    for number, (_, _, modes) in enumerate(found):
        part = clock.part(clock.left / (len(found) - number))
        yield Start(modes.annealed(part, seed), ANNEALED)


def _offer(problem: Problem, incumbent: Incumbent, start: Start) -> int | None:
    """Offer an order; return its value if valid.

    One that is too long even without copies is not offered; returned is how long it is without.
    """
    try:
        if incumbent.objective == "makespan" and incumbent.value is not None:
            least = makespan_of(*coded(problem, start.order))
            if least >= incumbent.value:
                return least
        timed = time_order(problem, start.order, incumbent.objective, start.source)
    except Deadlock:
        return None
    return incumbent.offer_timed(timed)
