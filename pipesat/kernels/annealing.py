"""Annealing of an order in memory modes: ops change places, cells change modes, memory holds.

Kirkpatrick, Gelatt and Vecchi (1983). A cell has three items, the last one idle where its backward
is fused. There are neither pairs nor copies.
"""

from __future__ import annotations

from math import exp
from typing import Final, NamedTuple

import numpy as np

from pipesat.kernels.arrays import BW, NONE, B, Coded, F, Ints, ProblemArrays, W
from pipesat.kernels.compiled import compiled

SPLIT: Final = 1
FUSED: Final = 2
_REACH: Final = 8  # places that an item moves at most
_ENDS: Final = 0.1  # weight of the mean of the devices' ends, against the last one
_COOLED: Final = 0.02  # of the first temperature, at the end


class Levers(NamedTuple):
    """What may change.

    ``modes`` has the number of modes by stage, ``ways`` :data:`SPLIT`, :data:`FUSED` or both, by
    variant.
    """

    modes: Ints
    ways: Ints


class _State(NamedTuple):
    """An order; ``rows`` has ``3 * cell + phase``, ``mode`` and ``fused`` are by cell."""

    rows: Ints
    begin: Ints
    mode: Ints
    fused: Ints


@compiled
def _fits(a: ProblemArrays, state: _State, device: int) -> bool:
    """Whether a device's row fits into memory, copies counted as done at once."""
    held, room = 0, a.room[device]
    for at in range(state.begin[device], state.begin[device + 1]):
        cell, kind = state.rows[at] // 3, state.rows[at] % 3
        if state.fused[cell]:
            if kind == W:
                continue
            kind = BW if kind == B else kind
        row = a.variant_of[cell] + state.mode[cell]
        if held + a.taken[row, kind] > room:
            return False
        held += a.net[row, kind]
    return True


@compiled
def _length(a: ProblemArrays, state: _State, ended: Ints, at: Ints, free: Ints) -> float:
    """Earliest makespan, and a little of the mean of the devices' ends; infinite: it cannot run.

    ``ended`` has room for a time per event, the others for one number per device.
    """
    rows, begin, devices = state.rows, state.begin, len(free)
    asleep_for, ready = np.empty(devices, np.int64), np.empty(devices, np.int64)
    waiting, done = devices, 0
    for event in range(len(ended)):
        ended[event] = NONE
    for device in range(devices):
        at[device], free[device], asleep_for[device] = begin[device], 0, NONE
        ready[device] = devices - 1 - device
    while waiting:
        waiting -= 1
        device = ready[waiting]
        while at[device] < begin[device + 1]:
            cell, kind = rows[at[device]] // 3, rows[at[device]] % 3
            row, event, now = a.variant_of[cell] + state.mode[cell], 2 * cell + kind, free[device]
            if kind == W:
                if ended[2 * cell + B] < 0:
                    return np.inf
                free[device] += 0 if state.fused[cell] else a.time[row, W]
            else:
                awaited = a.awaited[cell, kind]
                if awaited >= 0:
                    if ended[awaited] < 0:
                        asleep_for[device] = awaited
                        break
                    now = max(now, ended[awaited] + a.delay[row, kind])
                now += a.time[row, BW if kind == B and state.fused[cell] else kind]
                free[device] = ended[event] = now
                for other in range(devices):
                    if asleep_for[other] == event:
                        asleep_for[other] = NONE
                        ready[waiting] = other
                        waiting += 1
            at[device] += 1
            done += 1
    last = total = 0
    for device in range(devices):
        last, total = max(last, free[device]), total + free[device]
    return last + _ENDS * total / devices if done == len(rows) else np.inf


@compiled
def _drawn(chance: Ints, below: int) -> int:
    """Draw a number by chance (Marsaglia's xorshift, 2003)."""
    x = chance[0]
    x ^= x << 13
    x ^= (x >> 7) & ((1 << 57) - 1)
    x ^= x << 17
    chance[0] = x
    return ((x >> 12) & ((1 << 51) - 1)) % below


@compiled
def _may_pass(a: ProblemArrays, rows: Ints, begin: int, end: int) -> bool:
    """Whether an item may move to another place of its row.

    It may not pass others of its cell, nor those of its stage and phase, which keep their order.
    """
    step = 1 if end > begin else -1
    cell, phase = rows[begin] // 3, rows[begin] % 3
    for at in range(begin + step, end + step, step):
        other = rows[at] // 3
        same = phase != W and rows[at] % 3 == phase and a.stage_of[other] == a.stage_of[cell]
        if other == cell or same:
            return False
    return True


@compiled
def _move(rows: Ints, begin: int, end: int) -> None:
    moved, step = rows[begin], 1 if end > begin else -1
    for at in range(begin, end, step):
        rows[at] = rows[at + step]
    rows[end] = moved


@compiled
def _state_of(a: ProblemArrays, order: Coded) -> _State:
    """Read an order without pairs."""
    rows, begin = np.empty(3 * len(a.stage_of), np.int64), np.zeros_like(order.begin)
    mode, fused = np.zeros(len(a.stage_of), np.int64), np.zeros(len(a.stage_of), np.int64)
    number, modes = 0, (1 << a.shift) - 1
    for device in range(len(order.begin) - 1):
        for at in range(order.begin[device], order.begin[device + 1]):
            code = order.first[at]
            cell, kind = code >> a.shift, code & 3
            mode[cell] = (code & modes) >> 2
            rows[number] = 3 * cell + (B if kind == BW else kind)
            number += 1
            if kind == BW:
                fused[cell] = 1
                rows[number] = 3 * cell + W
                number += 1
        begin[device + 1] = number
    return _State(rows, begin, mode, fused)


@compiled
def _coded(a: ProblemArrays, state: _State) -> Coded:
    """Write an order."""
    first, begin = np.empty(len(state.rows), np.int64), np.zeros_like(state.begin)
    number = 0
    for device in range(len(state.begin) - 1):
        for at in range(state.begin[device], state.begin[device + 1]):
            cell, kind = state.rows[at] // 3, state.rows[at] % 3
            if state.fused[cell] and kind != F:
                if kind == W:
                    continue
                kind = BW
            first[number] = cell << a.shift | state.mode[cell] << 2 | kind
            number += 1
        begin[device + 1] = number
    second = np.empty(number, np.int64)
    for at in range(number):
        second[at] = NONE
    return Coded(first[:number], second, begin)


@compiled
def annealed(
    a: ProblemArrays, levers: Levers, order: Coded, moves: int, heat: float, seed: int
) -> Coded:
    """Return the shortest order met on a walk of so many moves from one that fits into memory.

    A move puts an item elsewhere in its row, a cell into another mode, or two of a device's cells,
    one into what the other was in. What is longer by x is kept with the chance exp(-x / heat); the
    heat falls as the walk goes on.
    """
    state, shortest = _state_of(a, order), _state_of(a, order)
    rows, begin, mode, fused = state
    cells, devices = len(mode), len(a.room)
    chance, ended = np.empty(1, np.int64), np.empty(2 * cells, np.int64)
    chance[0] = 88172645463325252 + 7919 * seed
    reached, free = np.empty(devices, np.int64), np.empty(devices, np.int64)
    value = best = np.inf
    for move in range(-1, moves):  # the first one does nothing
        at = to = _drawn(chance, len(rows))
        cell = other = rows[at] // 3
        device, kind = a.device[a.stage_of[cell]], _drawn(chance, 6)
        old, old_way, partner, partner_way = mode[cell], fused[cell], mode[cell], fused[cell]
        if move >= 0 and kind < 2:
            new, way = _drawn(chance, levers.modes[a.stage_of[cell]]), _drawn(chance, 2)
            ways = levers.ways[a.variant_of[cell] + new]
            mode[cell], fused[cell] = new, way if ways == SPLIT + FUSED else ways == FUSED
            if kind == 1:  # another one in its place
                span = begin[device + 1] - begin[device]
                other = rows[begin[device] + _drawn(chance, span)] // 3
                if other == cell or old >= levers.modes[a.stage_of[other]]:
                    mode[cell], fused[cell] = old, old_way
                    continue
                partner, partner_way = mode[other], fused[other]
                ways = levers.ways[a.variant_of[other] + old]
                mode[other] = old
                fused[other] = old_way if ways == SPLIT + FUSED else ways == FUSED
        elif move >= 0:
            to = at + (1 + _drawn(chance, _REACH)) * (1 - 2 * _drawn(chance, 2))
            idle = rows[at] % 3 == W and fused[cell]
            inside = begin[device] <= to < begin[device + 1]
            if idle or not inside or not _may_pass(a, rows, at, to):
                continue
            _move(rows, at, to)
        if _fits(a, state, device):
            found = _length(a, state, ended, reached, free)
            if found > value:
                now = heat * _COOLED ** (move / moves)
                keep = _drawn(chance, 1 << 30) < exp((value - found) / now) * (1 << 30)
            else:
                keep = True
            if keep:
                value = found
                if value < best:
                    best = value
                    for number in range(len(rows)):
                        shortest.rows[number] = rows[number]
                    for number in range(cells):
                        shortest.mode[number], shortest.fused[number] = mode[number], fused[number]
                continue
        _move(rows, to, at)
        mode[other], fused[other] = partner, partner_way
        mode[cell], fused[cell] = old, old_way
    return _coded(a, shortest)
