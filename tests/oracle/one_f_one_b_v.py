"""1F1B-V: two chunks per rank in a V, full backwards, two thirds of 1F1B's memory.

A building block (:mod:`pipesat.heuristics.shared.building_blocks`) whose backwards are full: F
takes one slot, BW two, and a microbatch enters every six. Forwards pass a rank per slot. Backwards
pass a rank every two slots, and wait three more after every third rank: so no two ops of a rank
meet modulo six.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from pipesat.core.errors import NotApplicable
from pipesat.core.event_engine import fits_in_order
from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import GiveUp, published, unless_given_up
from pipesat.heuristics.shared.building_blocks import PERIOD, Lane, earliest, places_by_slot
from pipesat.heuristics.shared.rows import full_backward, schedule_by_rank
from pipesat.placement.geometry import ranks_of

NAME: Final = "1f1b-v"
_FORWARDS: Final = 2  # of the four series of a rank: F0, F1, B1, B0
_WAIT: Final = 3


@published(NAME, placement="vee", source="Qi et al., NeurIPS 2024")
def one_f_one_b_v(problem: Problem) -> Schedule:
    """Two chunks per rank in a V with full backwards; a rank holds at most ``2 (2p // 3 + 1)``.

    Made for BW = 2 F; both ends are filled within the peak of the repeated block.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V.
    """
    return pulled_ahead(problem, 0)


@published("1f1b-v-auto", placement="vee", slow=True, source="OLMo-core 3.0, 2026")
def one_f_one_b_v_auto(problem: Problem, give_up: GiveUp) -> Schedule:
    """The shortest 1F1B-V that fits, of those with 0, 1, 2, 4, ... up to p more chunks per rank.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V; if none fits into memory; or if told to give
        up.
    """
    p = len(ranks_of(problem, "vee"))
    found = []
    for more in (0, *(2**n for n in range(p.bit_length()))):
        unless_given_up(give_up)
        made = pulled_ahead(problem, more)
        rows = zip(made.order, problem.devices, strict=True)
        if all(fits_in_order(problem, row, device.room) for row, device in rows):
            found.append(made)
    if not found:
        raise NotApplicable(f"no {NAME} fits into memory")
    return min(found, key=lambda made: made.makespan)


def pulled_ahead(problem: Problem, more: int) -> Schedule:
    """1F1B-V whose forwards may come early until a rank holds the block's peak and ``more`` chunks.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V.
    """
    ranks = ranks_of(problem, "vee")
    lanes = _filled(len(ranks), problem.routes[0].microbatches, more)

    def row(rank: int) -> list[Item]:
        first, second = ranks.stages[rank]
        items: list[Item] = []
        for _, series, number in sorted(
            (slot, series, number)
            for series, slots in enumerate(lanes[rank])
            for number, slot in enumerate(slots)
        ):
            stage = (first, second, second, first)[series]
            forward = series < _FORWARDS
            items += [Op(stage, "F", number)] if forward else full_backward(problem, stage, number)
        return items

    return schedule_by_rank(problem, ranks, row, f"{NAME}, {more} more" if more else NAME)


def _block(p: int) -> list[tuple[int, int, int, int]]:
    """Last slots of a microbatch's F0, F1, B1 and B0 on every rank.

    Where p is a multiple of 3, the turn waits as well.
    """
    ends, slot = [], 2 * p + 1 + _WAIT * (p % 3 == 0)
    for hop in range(2 * p):
        ends.append(slot)
        slot += 2 + _WAIT * ((hop - 1 - p) % 3 == 0)
    return [(d, 2 * p - 1 - d, ends[d], ends[2 * p - 1 - d]) for d in range(p)]


def _filled(p: int, m: int, more: int) -> list[Lane]:
    """The repeated block, where every op has moved to the first slots with its inputs, if free.

    A forward only goes back through slots in which its rank holds less than the peak of all ranks
    and ``more``. A backward moves by its own length at least.
    """
    lanes = [[[end + PERIOD * n for n in range(m)] for end in ends] for ends in _block(p)]
    length = 1 + max(slots[-1] for lane in lanes for slots in lane)
    held, taken = [[0] * length for _ in lanes], [[False] * length for _ in lanes]
    places = places_by_slot(lanes)
    for slot, rank, series, _ in places:
        forward = series < _FORWARDS
        held[rank][slot] = 1 if forward else -1
        taken[rank][slot] = taken[rank][slot - (not forward)] = True
    held = [[*accumulate(changes)] for changes in held]
    most = max(map(max, held)) + more
    for place in places:
        slot, rank, series, number = place
        forward = series < _FORWARDS
        before, change = (0, 1) if forward else (1, -1)  # slots before its last one
        own, now = taken[rank], held[rank]
        for free in range(earliest(lanes, place) + before, slot):
            if any(own[free - before : free + 1]) or (forward and max(now[free:slot]) >= most):
                continue
            own[slot - before : slot + 1] = own[free - before : free + 1]
            own[free - before : free + 1] = [True] * (1 + before)
            now[free:slot] = [chunks + change for chunks in now[free:slot]]
            lanes[rank][series][number] = free
            break
    return lanes
