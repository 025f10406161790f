"""Modes along an order: how long it is in them, and which give way where it does not fit."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pipesat.kernels.arrays import BW, B, F, Ints
from pipesat.kernels.compiled import compiled
from pipesat.kernels.permutations import drawn
from pipesat.kernels.timing import Sequence

_TRIES = 20  # to draw one that changes for another
_SWAPS, _TWO, _OF = 15, 18, 20  # of so many changes those of two for each other, and of any two
_FINE = 1 << 30


class Along(NamedTuple):
    """An order of which *groups* of cells choose their modes, all cells of a group alike.

    Attributes
    ----------
    sequence
        Its items in an order in which they can run; what follows is numbered so.
    begin, row
        The items of device d are those in ``row`` from ``begin[d]`` to ``begin[d + 1]``.
    slack, channels
        By device; how many copy channels it has.
    cell, kind
        By item and member, -1: none.
    look
        By item its row in ``time``, ``taken``, ``net``, which are by that and its members' modes.
    out, back
        By cell and mode: times of copies.
    group, device, modes
        By cell its group; by group its device, and how many modes there are. The last group has
        the cells without modes.
    """

    sequence: Sequence
    begin: Ints
    row: Ints
    slack: Ints
    channels: Ints
    cell: Ints
    kind: Ints
    look: Ints
    time: Ints
    taken: Ints
    net: Ints
    out: Ints
    back: Ints
    group: Ints
    device: Ints
    modes: Ints


@compiled
def _looked_up(x: Along, chosen: Ints, item: int) -> tuple[int, int, int]:
    one, other = x.cell[item, 0], x.cell[item, 1]
    return x.look[item], chosen[x.group[one]], chosen[x.group[other]] if other >= 0 else 0


@compiled
def length_along(x: Along, chosen: Ints) -> int:
    """Earliest makespan in these modes; a device's copies run in its order, memory is no matter."""
    sequence, length = x.sequence, 0
    ends, there = np.empty(len(x.look), np.int64), np.zeros(len(x.group), np.int64)
    free = np.zeros((len(x.channels), 2), np.int64)
    for item in range(len(ends)):
        before, device = sequence.before[item], sequence.device[item]
        start = ends[before] if before >= 0 else 0
        for at in range(sequence.begin[item], sequence.begin[item + 1]):
            start = max(start, ends[sequence.source[at]] + sequence.delay[at])
        channel = x.channels[device] - 1
        for member in range(2):
            cell, kind = x.cell[item, member], x.kind[item, member]
            back = x.back[cell, chosen[x.group[cell]]] if kind in (B, BW) else 0
            if back:
                free[device, channel] = max(free[device, channel], there[cell]) + back
                start = max(start, free[device, channel])
        ends[item] = start + x.time[_looked_up(x, chosen, item)]
        length = max(length, ends[item])
        for member in range(2):
            cell, kind = x.cell[item, member], x.kind[item, member]
            out = x.out[cell, chosen[x.group[cell]]] if kind == F else 0
            if out:
                there[cell] = free[device, 0] = max(free[device, 0], ends[item]) + out
    return length


@compiled
def excess_along(x: Along, chosen: Ints, device: int) -> int:
    """Sum over a device's items of what does not fit while they run; copies count as done."""
    held = excess = 0
    for at in range(x.begin[device], x.begin[device + 1]):
        look = _looked_up(x, chosen, x.row[at])
        excess += max(0, held + x.taken[look] - x.slack[device])
        held += x.net[look]
    return excess


@compiled
def give_way(x: Along, chosen: Ints, device: int) -> int:
    """Change a mode for which least time is lost per memory that a device lacks; how many might.

    0: no change leaves it less short of memory.
    """
    length, excess, tried = length_along(x, chosen), excess_along(x, chosen, device), 0
    least, best, best_mode = math.inf, 0, 0
    for group in range(len(x.device)):
        before = chosen[group]
        for mode in range(x.modes[group] if x.device[group] == device else 0):
            chosen[group] = mode
            freed = excess - excess_along(x, chosen, device)
            if freed > 0:
                tried += 1
                rate = (length_along(x, chosen) - length + 1) / freed
                if rate < least:
                    least, best, best_mode = rate, group, mode
        chosen[group] = before
    if tried:
        chosen[best] = best_mode
    return tried


@compiled
def _change(x: Along, chosen: Ints, group: int, state: Ints) -> None:
    chosen[group] = (chosen[group] + 1 + drawn(state, x.modes[group] - 1)) % x.modes[group]


@compiled
def anneal_along(
    x: Along, here: Ints, best: Ints, known: Ints, steps: int, heat: float, state: Ints
) -> None:
    """Change modes, mostly one for another, and now and then for longer, all of which fit.

    ``known`` are the lengths here and at best; these change, as ``here`` and ``best`` do.
    """
    groups = len(x.device) - 1
    for _ in range(steps):
        one, other, how = drawn(state, groups), drawn(state, groups), drawn(state, _OF)
        for _ in range(_TRIES if how < _SWAPS else 0):
            if x.device[other] == x.device[one] and (here[other] > 0) != (here[one] > 0):
                break
            other = drawn(state, groups)
        other = one if how >= _TWO else other
        before, there = here[one], here[other]
        _change(x, here, one, state)
        if other != one:
            _change(x, here, other, state)
        if excess_along(x, here, x.device[one]) + excess_along(x, here, x.device[other]) == 0:
            longer = length_along(x, here) - known[0]
            if longer <= 0 or drawn(state, _FINE) < math.exp(-longer / heat) * _FINE:
                known[0] += longer
                if known[0] < known[1]:
                    known[1] = known[0]
                    best[:] = here
                continue
        here[one], here[other] = before, there
