"""Starts of problems with memory modes: along guides, then packed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence

from pipesat.core.errors import Deadlock
from pipesat.kernels.timing import makespan_of
from pipesat.problem.problem import Problem
from pipesat.schedule.arrays_of import coded
from pipesat.schedule.schedule import Order, Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.along import ModesAlong
from pipesat.solver.growth.mode_starts import Start, by_length, orders_from, pack_by_turns
from pipesat.solver.lanes.clock import CONSTRAINTS_PER_SECOND
from pipesat.solver.lanes.incumbent import Incumbent, failure_note
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.model.times import LARGEST

_STARTS = 0.2  # of the time left, at most, goes into starts along guides
_MODELS, _MODEL = 0.3, 0.6  # into models of modes along them, and of that into one at most
_PACKED, _PACKING = 12, 0.12  # starts that are packed, and the share of the time left for that
_PER_OP = 3  # constraints of such a model, per op
_MOST = 4  # times a guide's length without modes, where nothing is known
PACKED = "packed with modes"


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
    reached: dict[str, int] = {}  # least length by the guide's source

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
            guide = start.source.rpartition(", ")[0]
            reached[guide] = min(length, reached.get(guide, length))
    for start in _modelled(incumbent, guides, reached, seed):
        length = _offer(problem, incumbent, start)
        if length is not None:
            best = [(length, start.order), *best[: _PACKED - 1]]
    clock = incumbent.part(_PACKING)

    def offer(packed: Order) -> int | None:
        clock.count_ops(problem.op_count, checked=True)
        return _offer(problem, incumbent, Start(packed, PACKED))

    chance = random.Random(seed)  # noqa: S311 (not secrecy)
    pack_by_turns(problem, [order for _, order in best], chance, offer, lambda: clock.over)


def _modelled(
    incumbent: Incumbent, guides: Sequence[Schedule], reached: Mapping[str, int], seed: int
) -> Iterator[Start]:
    """Yield guides in their best modes by a model, those first of which most has come."""
    problem, objective = incumbent.problem, incumbent.objective
    clock = incumbent.part(_MODELS)
    runner, least = Runner(clock), _PER_OP * problem.op_count / CONSTRAINTS_PER_SECOND
    known = by_length(problem, guides)
    known.sort(key=lambda one: reached.get(one[1].source, math.inf))
    for length, guide in known:
        value = incumbent.value or _MOST * length
        if clock.over or clock.left < least or value > LARGEST:
            return
        if objective == "makespan" and length >= value:
            continue
        model = ModesAlong(problem, guide.order, value, objective)
        order = model.solved(runner, limit=_MODEL * clock.left, seed=seed)
        if order is not None:
            yield Start(order, f"{guide.source}, modes by a model")


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
