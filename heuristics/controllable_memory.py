"""V schedules for less memory, or for any.

V-Half, V-Min and the search behind ``v-auto``: Qi et al., "Pipeline Parallelism with Controllable
Memory", NeurIPS 2024, section 3 and appendix A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice, permutations, product
from typing import Final, NamedTuple, TypeAlias

from pipesat.core.errors import NotApplicable
from pipesat.core.event_engine import fits_in_order
from pipesat.core.problem import Problem, Route
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import time_order
from pipesat.heuristics.registry import GiveUp, published, unless_given_up
from pipesat.heuristics.shared.building_blocks import PERIOD, order_by_block
from pipesat.heuristics.shared.refit import refitted
from pipesat.heuristics.zero_bubble import zb_v
from pipesat.placement.geometry import Ranks, ranks_of


@published("v-half", placement="vee", splits=True, source="Qi et al., NeurIPS 2024")
def v_half(problem: Problem) -> Schedule:
    """Two chunks per rank in a V at about half of 1F1B's memory: ``2 ((p + 2) // 2)`` chunks.

    The order is made for equal F, B and W; a steady state without bubbles survives other times,
    because the block leaves two slots for the way out of either chunk's F or B.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V.
    """
    order = order_by_block(problem, ranks_of(problem, "vee"), _half_block)
    return time_order(problem, order, source="v-half")


def _half_block(p: int, rank: int) -> tuple[int, int, int, int]:
    """Two slots per rank on the way to a turning point of chunk 0's F and chunk 1's B, else one.

    On even p both F's of a rank would meet both B's in one slot modulo 6 without three more
    between the last F and the first B.
    """
    turn = 0 if p % 2 else 3
    first = 3 * p - rank - 2
    return 2 * rank, first, 3 * p + turn - 1 + 2 * rank, 3 * p + turn + first


@published("v-min", placement="vee", splits=True, source="Qi et al., NeurIPS 2024")
def v_min(problem: Problem) -> Schedule:
    """Two chunks per rank in a V at about a third of 1F1B's memory: ``2 ((p + 4) // 3)`` chunks.

    A microbatch passes every rank in one slot, so its lifespan is the least there is. The order is
    made for equal F, B and W; where they differ, the steady state has bubbles too.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V.
    """
    order = order_by_block(problem, ranks_of(problem, "vee"), _min_block)
    return time_order(problem, order, source="v-min")


def _min_block(p: int, rank: int) -> tuple[int, int, int, int]:
    """One slot per rank all the way.

    Where p is a multiple of 3, a rank's F's would meet its B's in one slot modulo 6 without two
    more between the last F and the first B.
    """
    turn = 2 if p % 3 == 0 else 0
    back = 2 * p - rank - 1
    return rank, back, 2 * p + turn + rank, 2 * p + turn + back


Hops: TypeAlias = tuple[int, int, int, int]
"""Slots from one rank to the next of F0, F1, B1 and B0."""

_HOPS: Final[tuple[Hops, ...]] = (
    (1, 1, 1, 1),  # V-Min's
    (2, 1, 2, 1),  # V-Half's
    (1, 2, 1, 2),
    (2, 2, 2, 2),
    (3, 3, 3, 3),
    (4, 2, 4, 2),
    (2, 4, 2, 4),
)
_TURNS: Final = sorted(product(range(4), range(6), range(4)), key=sum)
_PATIENCE: Final = (1.0, 0.25)
_MOST_OPS: Final = 60_000  # of all candidates together: a few seconds
_FEWEST: Final = 2
_FINALISTS: Final = 2
_CUTS: Final = 8
_FULLEST: Final = 1.1  # times the room: reordering may take less than the estimate


class _Found(NamedTuple):
    makespan: int
    order: Order


@published(
    "v-auto",
    placement="vee",
    source="after Qi et al., NeurIPS 2024",
    splits=True,
    slow=True,
    equal=True,
)
def v_auto(problem: Problem, give_up: GiveUp) -> Schedule:
    """The best of ZB-V and many building blocks that keeps within memory; refitted to the times.

    A block passes the ranks in some number of slots per hop, and from a rank on in another; the
    fullest that memory allows are tried first. Each order is tried as it is, and refitted
    (:mod:`pipesat.heuristics.shared.refit`). A device without a capacity may hold what ZB-V
    holds, p activations of either chunk. Long runs are judged by their first 2p microbatches.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V; if none of the orders fits into memory; or if
        told to give up.
    """
    ranks = ranks_of(problem, "vee")
    room = _room(problem, ranks)
    trial = _shortened(problem, 2 * len(ranks))
    most = max(_FEWEST, _MOST_OPS // trial.op_count)
    orders = [
        lambda problem: zb_v(problem).order,
        *islice(_block_orders(problem, ranks, room, give_up), most),
    ]
    found = [_best(trial, order_of(trial), room, give_up) for order_of in orders]
    ranking = sorted((f.makespan, number) for number, f in enumerate(found) if f)
    if trial is not problem:
        finalists = _FINALISTS if problem.op_count <= _MOST_OPS else 1
        again = [orders[number](problem) for _, number in ranking[:finalists]]
        found = [_best(problem, order, room, give_up) for order in again]
    best = min((f for f in found if f), key=lambda f: f.makespan, default=None)
    if best is None:
        raise NotApplicable("no building block fits into memory")
    return time_order(problem, best.order, source="v-auto")


def _shortened(problem: Problem, m: int) -> Problem:
    (route,) = problem.routes
    if m >= route.microbatches:
        return problem
    return replace(problem, routes=(Route(route.stages, m),))


def _room(problem: Problem, ranks: Ranks) -> list[int]:
    """Per device; without a capacity what ZB-V takes."""
    room = []
    for device, stages in zip(problem.devices, problem.stages_on, strict=True):
        chunks = [problem.stages[s] for s in stages]
        both = sum(max(chunk.held_after_F, chunk.held_after_B) for chunk in chunks)
        room.append(len(ranks) * both if device.room is None else device.room)
    return room


def _best(problem: Problem, order: Order, room: Sequence[int], give_up: GiveUp) -> _Found | None:
    """The best of an order and its refitted ones, of those that fit."""
    unless_given_up(give_up)
    found = []
    if all(map(partial(fits_in_order, problem), order, room)):
        found.append(_Found(time_order(problem, order).makespan, order))
    for patience in _PATIENCE:
        changed = refitted(problem, order, room, patience)
        if changed.fits:
            found.append(_Found(changed.end, changed.order))
    return min(found, key=lambda f: f.makespan, default=None)


def _block_orders(
    problem: Problem, ranks: Ranks, room: Sequence[int], give_up: GiveUp
) -> Iterator[Callable[[Problem], Order]]:
    """Functions that make an order: blocks without a change of pace, then the fullest ones."""
    p = len(ranks)
    steady = [(hops, hops, p) for hops in _HOPS]
    cuts = sorted({1 + (p - 2) * i // _CUTS for i in range(_CUTS)})
    mixed = [(near, far, cut) for near, far in permutations(_HOPS, 2) for cut in cuts]
    seen: set[tuple[Hops, ...]] = set()
    for family in (steady, mixed):  # the second is only looked at if the first leaves time
        ranking = []
        for near, far, cut in family:
            unless_given_up(give_up)
            slots = _without_conflicts([near if d < cut else far for d in range(p - 1)])
            if slots is not None and slots not in seen:
                seen.add(slots)
                fullness = _fullness(problem, ranks, room, slots)
                if fullness <= _FULLEST:
                    ranking.append((abs(1 - fullness), slots))
        for _, slots in sorted(ranking):
            yield partial(_order_of_slots, ranks, slots)


def _order_of_slots(ranks: Ranks, slots: tuple[Hops, ...], problem: Problem) -> Order:
    return order_by_block(problem, ranks, lambda _, rank: slots[rank])


def _without_conflicts(hops: list[Hops]) -> tuple[Hops, ...] | None:
    """Slots per rank with the least turns that let no two ops of a rank meet modulo the period."""
    down, up, back, home = (
        list(accumulate((hop[series] for hop in hops), initial=0)) for series in range(4)
    )
    for turns in _TURNS:
        f1 = down[-1] + 1 + turns[0]  # on the last rank; B1 is on the first, B0 on the last
        b1 = f1 + up[-1] + 1 + turns[1]
        b0 = b1 + back[-1] + 1 + turns[2]
        slots = tuple(
            (down[d], f1 + up[-1] - up[d], b1 + back[d], b0 + home[-1] - home[d])
            for d in range(len(down))
        )
        if all(len({slot % PERIOD for slot in place}) == 4 for place in slots):
            return slots
    return None


def _fullness(
    problem: Problem, ranks: Ranks, room: Sequence[int], slots: tuple[Hops, ...]
) -> float:
    """Lifespans over the period, times what is held, over the room: the largest of all ranks."""
    worst = 0.0
    for rank, (f0, f1, b1, b0) in enumerate(slots):
        first, second = (problem.stages[s].held_after_F for s in ranks.stages[rank])
        held = ((b0 - f0 + 1) * first + (b1 - f1 + 1) * second) / PERIOD
        worst = max(worst, held / room[ranks.device[rank]] if room[ranks.device[rank]] else 0)
    return worst
