"""Building blocks on p ranks with two chunks in a V, repeated, reordered at both ends, squeezed.

An op has a *place* in a rank's grid of slots: ``number << 3 | series``, -1 where no op is. Series
are F of chunk 0, F of chunk 1, B of chunk 1, B of chunk 0 and W; the number of a W is that of its
backward among all of the rank. ``at[rank, series, number]`` is the slot of an op, the last one of a
longer op.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pipesat.kernels.arrays import BW, NONE, Coded, Ints, in_devices_order
from pipesat.kernels.compiled import compiled, compiled_meanwhile

PERIOD: Final = 6
_FORWARDS: Final = 2  # series below are forwards
_B1, _B0, _W = range(_FORWARDS, 5)


class VShape(NamedTuple):
    """Ranks of a V that m microbatches pass.

    Attributes
    ----------
    device
        By rank.
    first
        By rank and series, F0 to B0: the code of microbatch 0's op.
    microbatches, shift
        m, and the bits of a code below the cell.
    """

    device: Ints
    first: Ints
    microbatches: int
    shift: int


@compiled_meanwhile
def block_order(v_shape: VShape, slots: Ints) -> Coded:
    """Repeat a block of one slot per op once per microbatch, reorder both ends, squeeze.

    ``slots`` are by rank and series. Warm-up and cool-down are reordered within the peak memory of
    the repeated block, which counts chunks. The steady state keeps the block's order.
    """
    at, grid = _repeated(slots, v_shape.microbatches)
    _run_weights(at, grid)
    _reorder_with_weights(at, grid)
    at, grid = _closed_gaps(at, grid)
    _reorder_before_weights(at, grid)
    at, grid = _closed_gaps(at, grid)
    return _coded(v_shape, grid, False)


@compiled_meanwhile
def pulled_order(v_shape: VShape, slots: Ints, more: Ints) -> Coded:
    """Repeat a block whose backwards take two slots; every op moves to the first with its inputs.

    ``slots`` are last ones. A forward only goes back through slots in which its rank holds less
    than the peak of all ranks and its own ``more``. A backward moves by its own length at least.
    """
    at, grid = _repeated(slots, v_shape.microbatches)
    p, length = grid.shape
    held, taken = _held(grid, _FORWARDS), np.zeros((p, length), np.bool_)
    most = held.max()
    for rank in range(p):
        for slot in range(length):
            if grid[rank, slot] >= 0:
                taken[rank, slot] = True
                if grid[rank, slot] & 7 >= _FORWARDS:
                    taken[rank, slot - 1] = True
    for slot in range(length):
        for rank in range(p):
            place = grid[rank, slot]
            if place < 0:
                continue
            series, number = place & 7, place >> 3
            forward = series < _FORWARDS
            before = 0 if forward else 1  # slots before its last one
            change = 1 if forward else -1
            start = _earliest(at, rank, series, number) + before
            if forward:
                start = _after_full(held, rank, start, slot, most + more[rank])
            for free in range(start, slot):
                if taken[rank, free] or taken[rank, free - before]:
                    continue
                for back in range(before + 1):
                    taken[rank, slot - back] = False
                for back in range(before + 1):
                    taken[rank, free - back] = True
                for moved in range(free, slot):
                    held[rank, moved] += change
                _move(at, grid, rank, slot, free)
                break
    return _coded(v_shape, grid, True)


@compiled
def _repeated(slots: Ints, m: int) -> tuple[Ints, Ints]:
    """Slots by rank, series and microbatch, and the grid; with place for W at the end."""
    p = len(slots)
    length = slots[:, :_W].max() + PERIOD * (m - 1) + 2 * m + 2
    at = np.empty((p, _W + 1, 2 * m), np.int64)
    grid = np.full((p, length), NONE, np.int64)
    for rank in range(p):
        for series in range(_W):
            for number in range(m):
                slot = slots[rank, series] + PERIOD * number
                at[rank, series, number] = slot
                grid[rank, slot] = number << 3 | series
    return at, grid


@compiled
def _move(at: Ints, grid: Ints, rank: int, slot: int, free: int) -> None:
    place = grid[rank, slot]
    grid[rank, slot], grid[rank, free] = NONE, place
    at[rank, place & 7, place >> 3] = free


@compiled
def _run_weights(at: Ints, grid: Ints) -> None:
    """Put every W into the first free slot after its backward, in the order of backwards."""
    p, length = grid.shape
    for rank in range(p):
        due = number = 0
        for slot in range(length):
            place = grid[rank, slot]
            if place < 0 and number < due:
                grid[rank, slot] = number << 3 | _W
                at[rank, _W, number] = slot
                number += 1
            elif place >= 0 and place & 7 >= _FORWARDS:
                due += 1


@compiled
def _earliest(at: Ints, rank: int, series: int, number: int) -> int:
    """First slot in which an op's inputs are there."""
    after = at[rank, series, number - 1] if number else NONE
    if series == _W:
        return 1 + max(after, _slot_of_backward(at, rank, number))
    neighbour = rank - 1 if series & 1 == 0 else rank + 1
    if 0 <= neighbour < len(at):
        return 1 + max(after, at[neighbour, series, number])
    if series:
        return 1 + max(after, at[rank, series - 1, number])
    return 1 + after


@compiled
def _slot_of_backward(at: Ints, rank: int, number: int) -> int:
    """Slot of the backward before which the rank runs so many; both series are sorted."""
    m = at.shape[2] // 2
    of_b1 = number // 2
    of_b0 = number - of_b1
    while of_b1 > 0 and of_b0 < m and at[rank, _B1, of_b1 - 1] > at[rank, _B0, of_b0]:
        of_b1, of_b0 = of_b1 - 1, of_b0 + 1
    while of_b0 > 0 and of_b1 < m and at[rank, _B0, of_b0 - 1] > at[rank, _B1, of_b1]:
        of_b1, of_b0 = of_b1 + 1, of_b0 - 1
    if of_b1 == m:
        return at[rank, _B0, of_b0]
    if of_b0 == m:
        return at[rank, _B1, of_b1]
    return min(at[rank, _B1, of_b1], at[rank, _B0, of_b0])


@compiled
def _held(grid: Ints, freeing: int) -> Ints:
    """Chunks that a rank holds after every slot, if series from ``freeing`` on free one."""
    held = np.empty_like(grid)
    for rank in range(len(grid)):
        now = 0
        for slot in range(grid.shape[1]):
            place = grid[rank, slot]
            if place >= 0:
                now += 1 if place & 7 < _FORWARDS else -1 if place & 7 >= freeing else 0
            held[rank, slot] = now
    return held


@compiled
def _after_full(held: Ints, rank: int, start: int, slot: int, most: int) -> int:
    """First slot from ``start`` on from which to ``slot`` less than ``most`` is held."""
    for full in range(slot - 1, start - 1, -1):
        if held[rank, full] >= most:
            return full + 1
    return start


@compiled
def _reorder_with_weights(at: Ints, grid: Ints) -> None:
    """Move ops of both ends to the first free slot that inputs and memory allow, W's too.

    The ends are what runs until rank 0's first backward of chunk 0, and after its last F of it.
    """
    p, length = grid.shape
    held = _held(grid, _W)
    peak = held.max()
    warm, cool = at[0, _B0, 0], at[0, 0, at.shape[2] // 2 - 1]
    for slot in range(length):
        for rank in range(p):
            place = grid[rank, slot]
            in_steady_state = slot >= warm and (slot < cool or (slot == cool and rank == 0))
            if place < 0 or in_steady_state:
                continue
            series = place & 7
            taking = 1 if series < _FORWARDS else -1 if series == _W else 0
            start = _earliest(at, rank, series, place >> 3)
            if taking > 0:
                start = _after_full(held, rank, start, slot, peak)
            for free in range(start, slot):
                if grid[rank, free] < 0:
                    for moved in range(free, slot):
                        held[rank, moved] += taking
                    _move(at, grid, rank, slot, free)
                    break


@compiled
def _reorder_before_weights(at: Ints, grid: Ints) -> None:
    """Move F and B of the cool-down as early as memory allows; W's take what is then free."""
    p, length = grid.shape
    peak = _held(grid, _W).max()
    grid[:] = np.where(grid & 7 == _W, NONE, grid)
    # chunks held, and W's due, before every slot
    held, due = np.zeros((p, length + 1), np.int64), np.zeros((p, length + 1), np.int64)
    tried = np.empty((2, length), np.int64)
    for rank in range(p):
        _fits(grid, held, due, tried, rank, 0, 0, peak)
    cool = at[0, 0, at.shape[2] // 2 - 1]
    for slot in range(cool, length):
        for rank in range(1 if slot == cool else 0, p):
            place = grid[rank, slot]
            if place < 0:
                continue
            for free in range(_earliest(at, rank, place & 7, place >> 3), slot):
                if grid[rank, free] >= 0:
                    continue
                _move(at, grid, rank, slot, free)
                if _fits(grid, held, due, tried, rank, free, slot, peak):
                    break
                _move(at, grid, rank, free, slot)
    _run_weights(at, grid)


@compiled
def _fits(
    grid: Ints, held: Ints, due: Ints, tried: Ints, rank: int, start: int, end: int, peak: int
) -> bool:
    """Whether a rank's chunks keep within the peak if W's take free slots; if so, note counts.

    They are known before ``start``, and after ``end`` once both are what they were.
    """
    now, waiting, stop = held[rank, start], due[rank, start], grid.shape[1]
    for slot in range(start, stop):
        if slot > end > 0 and now == held[rank, slot] and waiting == due[rank, slot]:
            stop = slot
            break
        tried[0, slot], tried[1, slot] = now, waiting
        place = grid[rank, slot]
        if place < 0:
            if waiting:
                waiting -= 1
                now -= 1
        elif place & 7 >= _FORWARDS:
            waiting += 1
        else:
            now += 1
            if now > peak:
                return False
    for slot in range(start, stop):
        held[rank, slot], due[rank, slot] = tried[0, slot], tried[1, slot]
    return True


@compiled
def _closed_gaps(at: Ints, grid: Ints) -> tuple[Ints, Ints]:
    """Run every op as early as its rank's order and its inputs allow ("squeezing")."""
    p, length = grid.shape
    new, result = np.full((p, length), NONE, np.int64), np.empty_like(at)
    free = np.zeros(p, np.int64)
    for slot in range(length):
        for rank in range(p):
            place = grid[rank, slot]
            if place < 0:
                continue
            series, number = place & 7, place >> 3
            now = free[rank]
            if series != _W:  # whose input, a B of its own rank, is before it anyway
                now = max(now, _earliest(result, rank, series, number))
            result[rank, series, number] = now
            new[rank, now] = place
            free[rank] = now + 1
    return result, new


@compiled
def _coded(v_shape: VShape, grid: Ints, at_once: bool) -> Coded:
    """Return the ranks' rows as an order; a W follows its B at once, or stands in the grid."""
    p, length = grid.shape
    first, shift = v_shape.first, v_shape.shift
    items, count = np.empty((p, 6 * v_shape.microbatches), np.int64), np.zeros(p, np.int64)
    weights = np.empty(2 * v_shape.microbatches, np.int64)  # by number; -1: fused
    for rank in range(p):
        backwards = 0
        for slot in range(length):
            place = grid[rank, slot]
            if place < 0:
                continue
            series, number = place & 7, place >> 3
            code = weights[number] if series == _W else first[rank, series] + (number << shift)
            if code < 0:
                continue
            items[rank, count[rank]] = code
            count[rank] += 1
            if _B1 <= series <= _B0:
                weight = NONE if code & 3 == BW else code + 1
                if at_once and weight >= 0:
                    items[rank, count[rank]] = weight
                    count[rank] += 1
                weights[backwards] = weight
                backwards += 1
    return in_devices_order(items, count, v_shape.device)


@compiled
def without_conflicts(hops: Ints, turns: Ints) -> Ints:
    """Slots by rank and series of a block that passes from rank to rank in so many slots.

    ``hops`` are by rank and series, ``turns`` the further slots at the three turning points. The
    first turns are taken that let no two ops of a rank meet modulo the period; empty if none do.
    """
    p = len(hops) + 1
    way, slots = np.zeros((p, _W), np.int64), np.empty((p, _W), np.int64)
    for rank in range(1, p):
        way[rank] = way[rank - 1] + hops[rank - 1]
    for turn in range(len(turns)):
        # the forward of chunk 1 and the backward of chunk 0 begin on the last rank
        f1 = way[p - 1, 0] + 1 + turns[turn, 0]
        b1 = f1 + way[p - 1, 1] + 1 + turns[turn, 1]
        b0 = b1 + way[p - 1, _B1] + 1 + turns[turn, 2]
        meet = False
        for rank in range(p):
            slots[rank, 0] = way[rank, 0]
            slots[rank, 1] = f1 + way[p - 1, 1] - way[rank, 1]
            slots[rank, _B1] = b1 + way[rank, _B1]
            slots[rank, _B0] = b0 + way[p - 1, _B0] - way[rank, _B0]
            met = 0
            for series in range(_W):
                bit = 1 << slots[rank, series] % PERIOD
                meet = meet or met & bit > 0
                met |= bit
            if meet:
                break
        if not meet:
            return slots
    return slots[:0]
