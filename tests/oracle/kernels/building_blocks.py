"""Building blocks by their definition, with sorted slots: what the compiled loops do as well."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

from pipesat.heuristics.shared.building_blocks import Slots
from pipesat.heuristics.shared.rows import full_backward, split_backward
from pipesat.problem.geometry import Ranks
from pipesat.problem.ops import Item, Op
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Order

PERIOD: Final = 6

_F0, _F1, _B1, _B0, _W = range(5)
Lane: TypeAlias = list[list[int]]
"""A rank's slots: the four series, and maybe that of W; of longer ops, their last slots."""


class Place(NamedTuple):
    """An op of a series on a rank, by its slot."""

    slot: int
    rank: int
    series: int
    number: int


def order_by_block(problem: Problem, ranks: Ranks, block: list[Slots]) -> Order:
    """Repeat a block once per microbatch, reorder both ends, squeeze."""
    lanes = squeezed(block, problem.routes[0].microbatches)
    return _order(ranks, lanes, lambda stages, lane: _row(problem, stages, lane))


def order_pulled_ahead(
    problem: Problem, ranks: Ranks, block: list[Slots], more: list[int]
) -> Order:
    """Repeat a block with backwards of two slots, every op moved to the first with its inputs."""
    lanes = _filled(block, problem.routes[0].microbatches, more)
    return _order(ranks, lanes, lambda stages, lane: _whole_row(problem, stages, lane))


def _order(
    ranks: Ranks, lanes: list[Lane], row: Callable[[tuple[int, ...], Lane], list[Item]]
) -> Order:
    rows: list[tuple[Item, ...]] = [() for _ in lanes]
    for device, stages, lane in zip(ranks.device, ranks.stages, lanes, strict=True):
        rows[device] = tuple(row(stages, lane))
    return tuple(rows)


def _whole_row(problem: Problem, stages: tuple[int, ...], lane: Lane) -> list[Item]:
    first, second = stages
    items: list[Item] = []
    for _, series, number in sorted(
        (slot, series, number)
        for series, slots in enumerate(lane)
        for number, slot in enumerate(slots)
    ):
        stage = (first, second, second, first)[series]
        items += (
            [Op(stage, "F", number)]
            if series in (_F0, _F1)
            else full_backward(problem, stage, number)
        )
    return items


def _row(problem: Problem, stages: tuple[int, ...], lane: Lane) -> list[Item]:
    first, second = stages
    home = (first, second, second, first)
    items: list[Item] = []
    due: list[list[Item]] = []
    for _, series, number in sorted(
        (slot, series, number)
        for series, slots in enumerate(lane)
        for number, slot in enumerate(slots)
    ):
        if series == _W:
            items += due[number]
        elif series in (_F0, _F1):
            items.append(Op(home[series], "F", number))
        else:
            now, later = split_backward(problem, home[series], number)
            items += now
            due.append(later)
    return items


def squeezed(block: list[Slots], m: int) -> list[Lane]:
    """Slots of m microbatches on p ranks; the fifth series of a rank is that of its W.

    Warm-up and cool-down are reordered within the peak memory of the repeated block. The steady
    state keeps the block's order.
    """
    lanes: list[Lane] = [
        [list(range(slot, slot + PERIOD * m, PERIOD)) for slot in slots] for slots in block
    ]
    for lane in lanes:
        lane.append(_weight_slots(lane))
    lanes = _close_gaps(_reordered_with_weights(lanes))
    return _close_gaps(_reordered_before_weights(lanes))


def peak_chunks(lane: Lane) -> int:
    """Most chunk activations held at once, each from its F to its W."""
    return max(_held(lane, 0))


def _weight_slots(lane: Lane) -> list[int]:
    """The first free slot after each B, in the order of the B's."""
    taken = {slot for series in lane[:_W] for slot in series}
    slots, slot = [], 0
    for backward in sorted(lane[_B1] + lane[_B0]):
        slot = max(slot, backward + 1)
        while slot in taken:
            slot += 1
        slots.append(slot)
        slot += 1
    return slots


def _held(lane: Lane, length: int) -> list[int]:
    """Chunk activations after each slot; at least ``length`` slots."""
    changes = [0] * max(length, 1 + max(series[-1] for series in lane))
    for slot in lane[_F0] + lane[_F1]:
        changes[slot] += 1
    for slot in lane[_W]:
        changes[slot] -= 1
    return list(accumulate(changes))


def earliest(lanes: list[Lane], place: Place) -> int:
    """First slot in which an op's inputs are there."""
    _, rank, series, number = place
    lane = lanes[rank]
    after = lane[series][number - 1] if number else -1
    if series == _W:
        return 1 + max(after, sorted(lane[_B1] + lane[_B0])[number])
    neighbour = rank - 1 if series in (_F0, _B1) else rank + 1
    if 0 <= neighbour < len(lanes):
        after = max(after, lanes[neighbour][series][number])
    elif series:
        after = max(after, lane[series - 1][number])
    return 1 + after


def places_by_slot(lanes: list[Lane]) -> list[Place]:
    """All ops by slot."""
    return sorted(
        Place(slot, rank, series, number)
        for rank, lane in enumerate(lanes)
        for series, slots in enumerate(lane)
        for number, slot in enumerate(slots)
    )


def _ends(lanes: list[Lane]) -> tuple[list[Place], list[Place]]:
    """Ops of the warm-up, until rank 0's first B of chunk 0, and those after its last F of it."""
    warm = Place(lanes[0][_B0][0], 0, _B0, 0)
    last = len(lanes[0][_F0]) - 1
    cool = Place(lanes[0][_F0][last], 0, _F0, last)
    places = places_by_slot(lanes)
    return [x for x in places if x < warm and x <= cool], [x for x in places if x > cool]


def _reordered_with_weights(lanes: list[Lane]) -> list[Lane]:
    """Move ops of both ends to the first free slot that inputs and memory allow, W's too."""
    length = 1 + max(series[-1] for lane in lanes for series in lane)
    held = [_held(lane, length) for lane in lanes]
    peak = max(map(max, held))
    taken = [{slot for series in lane for slot in series} for lane in lanes]
    warm_up, cool_down = _ends(lanes)
    for place in warm_up + cool_down:
        slot, rank, series, number = place
        taking = {_F0: 1, _F1: 1, _W: -1}.get(series, 0)
        for free in range(earliest(lanes, place), slot):
            if free in taken[rank]:
                continue
            if taking > 0 and max(held[rank][free:slot]) == peak:
                continue
            for moved in range(free, slot):
                held[rank][moved] += taking
            lanes[rank][series][number] = free
            taken[rank] ^= {free, slot}
            break
    return lanes


def _reordered_before_weights(lanes: list[Lane]) -> list[Lane]:
    """Move F and B of the cool-down as early as memory allows; W's take what is then free."""
    peak = max(peak_chunks(lane) for lane in lanes)
    lanes = [lane[:_W] for lane in lanes]
    taken = [{slot for series in lane for slot in series} for lane in lanes]
    for place in _ends(lanes)[1]:
        slot, rank, series, number = place
        lane = lanes[rank]
        for free in range(earliest(lanes, place), slot):
            if free in taken[rank]:
                continue
            lane[series][number] = free
            if peak_chunks([*lane, _weight_slots(lane)]) <= peak:
                taken[rank] ^= {free, slot}
                break
            lane[series][number] = slot
    return [[*lane, _weight_slots(lane)] for lane in lanes]


def _close_gaps(lanes: list[Lane]) -> list[Lane]:
    """Run every op as early as its rank's order and its inputs allow ("squeezing")."""
    result = [[[0] * len(series) for series in lane] for lane in lanes]
    free = [0] * len(lanes)
    for place in places_by_slot(lanes):
        _, rank, series, number = place
        slot = free[rank]
        if series != _W:  # whose input, a B of its own rank, is before it anyway
            slot = max(slot, earliest(result, place))
        result[rank][series][number] = slot
        free[rank] = slot + 1
    return result


def _filled(block: list[Slots], m: int, more: list[int]) -> list[Lane]:
    """The repeated block, where every op has moved to the first slots with its inputs, if free.

    A forward only goes back through slots in which its rank holds less than the peak of all ranks
    and its ``more``. A backward moves by its own length at least.
    """
    lanes = [[[end + PERIOD * n for n in range(m)] for end in ends] for ends in block]
    length = 1 + max(slots[-1] for lane in lanes for slots in lane)
    held, taken = [[0] * length for _ in lanes], [[False] * length for _ in lanes]
    places = places_by_slot(lanes)
    for slot, rank, series, _ in places:
        forward = series < 2
        held[rank][slot] = 1 if forward else -1
        taken[rank][slot] = taken[rank][slot - (not forward)] = True
    held = [[*accumulate(changes)] for changes in held]
    peak = max(map(max, held))
    for place in places:
        slot, rank, series, number = place
        forward = series < 2
        before, change = (0, 1) if forward else (1, -1)  # slots before its last one
        own, now, most = taken[rank], held[rank], peak + more[rank]
        for free in range(earliest(lanes, place) + before, slot):
            if any(own[free - before : free + 1]) or (forward and max(now[free:slot]) >= most):
                continue
            own[slot - before : slot + 1] = own[free - before : free + 1]
            own[free - before : free + 1] = [True] * (1 + before)
            now[free:slot] = [chunks + change for chunks in now[free:slot]]
            lanes[rank][series][number] = free
            break
    return lanes
