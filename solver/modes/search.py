"""Starts of problems with memory modes: along guides, then packed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pipesat.core.arrays_of import coded
from pipesat.core.errors import Deadlock
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import time_order
from pipesat.kernels.timing import makespan_of
from pipesat.solver.modes.starts import Start, orders_from, pack_by_turns
from pipesat.solver.run.incumbent import Incumbent, failure_note

_STARTS = 0.2  # of the time left, at most, goes into starts along guides
_PACKED, _PACKING = 12, 0.12  # starts that are packed, and the share of the time left for that
PACKED = "packed with modes"


def start_along(incumbent: Incumbent, guides: Sequence[Schedule], seed: int) -> list[str]:
    """Offer starts along guides, schedules without modes, valid or not; pack the best of them.

    Returns what failed. They are nearly as short as what windows find in a minute.
    """
    try:
        _start_along(incumbent, guides, random.Random(seed))  # noqa: S311 (not secrecy)
    except Exception as error:
        return [failure_note("a start with modes", error)]
    return []


def _start_along(incumbent: Incumbent, guides: Sequence[Schedule], chance: random.Random) -> None:
    problem = incumbent.problem
    clock = incumbent.clock.part(_STARTS * incumbent.clock.left, stop=lambda: incumbent.proven)
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
    clock = incumbent.clock.part(_PACKING * incumbent.clock.left, stop=lambda: incumbent.proven)

    def offer(packed: Order) -> int | None:
        clock.count_ops(problem.op_count, checked=True)
        return _offer(problem, incumbent, Start(packed, PACKED))

    pack_by_turns(problem, [order for _, order in best], chance, offer, lambda: clock.over)


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
