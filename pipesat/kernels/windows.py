"""What a window's order and times must be, before there is a model: heads, tails, memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesat.kernels.arrays import UNLIMITED, Ints
from pipesat.kernels.compiled import compiled
from pipesat.kernels.timing import UNREACHABLE

_ROUNDS = 6  # more hardly ever finds anything


class WindowNodes(NamedTuple):
    """The nodes of a window; those of segment s from ``begin[s]`` to ``begin[s + 1]``.

    Attributes
    ----------
    low, high, least
        Earliest start and latest end, which are raised and lowered, and least length.
    present
        1 if it is there in every solution.
    taken, net
        Least memory that it takes at its start, and that is held more once it has ended.
    before, after, delay
        Waits: one starts ``delay`` after another's end, or later; in the sequence of ``after``.
    slack, held
        By segment, the device's memory, and the least that is held at the beginning.
    apart
        1 if no two run at once on a device.
    """

    low: Ints
    high: Ints
    least: Ints
    present: Ints
    taken: Ints
    net: Ints
    before: Ints
    after: Ints
    delay: Ints
    begin: Ints
    slack: Ints
    held: Ints
    apart: Ints


Matrix = NDArray[np.uint8]


@compiled
def settle(n: WindowNodes, first: Matrix) -> None:
    """Tighten limits, and say of two nodes of a segment that one ends before the other starts.

    ``first[i, j]`` says so of i, wherever it is there, and j, by their places in their segment,
    segments one below the other. Loads: before j, all that must come first runs in turn. Memory:
    if j does not fit unless i has ended, i has.
    """
    changed, rounds = True, 0
    while changed and rounds < _ROUNDS:
        changed = False
        rounds += 1
        for w in range(len(n.before)):
            i, j = n.before[w], n.after[w]
            if n.low[i] + n.least[i] + n.delay[w] > n.low[j]:
                n.low[j] = n.low[i] + n.least[i] + n.delay[w]
                changed = True
        for w in range(len(n.before) - 1, -1, -1):
            i, j = n.before[w], n.after[w]
            if n.high[j] - n.least[j] - n.delay[w] < n.high[i]:
                n.high[i] = n.high[j] - n.least[j] - n.delay[w]
                changed = True
        for s in range(len(n.begin) - 1):
            a, b = n.begin[s], n.begin[s + 1]
            own = first[a:b]
            found = _by_time(n, a, b, own)
            if n.slack[s] < UNLIMITED:
                found |= _by_memory(n, s, own)
            if found or rounds == 1:
                _close(n, a, b, own)
            found |= _by_load(n, a, b, own)
            changed |= found


@compiled
def _by_time(n: WindowNodes, a: int, b: int, first: Matrix) -> bool:
    found = False
    for i in range(a, b):
        for j in range(a, b):
            if i == j or first[i - a, j - a]:
                continue
            sure = n.high[i] <= n.low[j]
            if n.apart[0] and n.present[i] and n.present[j]:
                sure |= n.low[j] + n.least[j] > n.high[i] - n.least[i]
            if sure and not first[j - a, i - a]:
                first[i - a, j - a] = 1
                found = True
    return found


@compiled
def _by_memory(n: WindowNodes, s: int, first: Matrix) -> bool:
    """If i did not end by the start of e, nor what comes after i, would e fit: else it did."""
    a, b = n.begin[s], n.begin[s + 1]
    found = False
    for e in range(a, b):
        if n.taken[e] <= 0 or not n.present[e]:
            continue
        least = n.held[s] + n.taken[e]
        for i in range(a, b):
            if i != e and not first[e - a, i - a]:
                net = n.net[i]
                least += net if first[i - a, e - a] and n.present[i] else min(net, 0)
        for i in range(a, b):
            if i == e or not n.present[i] or first[i - a, e - a] or first[e - a, i - a]:
                continue
            more = least - min(n.net[i], 0)
            for k in range(a, b):
                if first[i - a, k - a] and not (first[k - a, e - a] or first[e - a, k - a]):
                    more -= min(n.net[k], 0)
            if more > n.slack[s]:
                first[i - a, e - a] = 1
                found = True
    return found


@compiled
def _close(n: WindowNodes, a: int, b: int, first: Matrix) -> None:
    """What comes before what comes before comes before."""
    count = b - a
    for k in range(count):
        if n.present[a + k]:
            for i in range(count):
                if first[i, k]:
                    for j in range(count):
                        first[i, j] |= first[k, j]


@compiled
def _by_load(n: WindowNodes, a: int, b: int, first: Matrix) -> bool:
    low, high, least, present, apart = n.low, n.high, n.least, n.present, n.apart[0]
    known, order = np.empty(b - a, np.int64), np.empty(b - a, np.int64)
    found = False
    _sort(low, a, known, order)  # the order is that of what is known now
    for j in range(a, b):
        ready = UNREACHABLE
        for at in range(b - a):
            i = order[at]
            if first[i, j - a] and present[a + i]:
                begin = max(known[i], ready) if apart else known[i]
                ready = max(ready, begin + least[a + i])
        if ready > low[j]:
            low[j] = ready
            found = True
    _sort(high, a, known, order)
    for j in range(a, b):
        if not present[j]:
            continue  # where it is absent, it may stand later
        ready = -UNREACHABLE
        for at in range(b - a - 1, -1, -1):
            i = order[at]
            if first[j - a, i] and present[a + i]:
                end = min(known[i], ready) if apart else known[i]
                ready = min(ready, end - least[a + i])
        if ready < high[j]:
            high[j] = ready
            found = True
    return found


@compiled
def _sort(limits: Ints, a: int, known: Ints, order: Ints) -> None:
    """Copy the limits from ``a`` on, and say in which order they rise.

    By insertion: they are few, and numba's own sort takes half a second to compile.
    """
    for number in range(len(known)):
        known[number] = limits[a + number]
        at = number
        while at > 0 and known[order[at - 1]] > known[number]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = number
