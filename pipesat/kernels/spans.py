"""The least span of an order: Bellman-Ford over devices, whose longest paths a pass finds.

x[d] is the start of device d's first item, L[d, e] the longest path from there to the end of e's
last one, T a span. Every pass raises x[e] to the largest x[d] + L[d, e] - T.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pipesat.kernels.arrays import NONE, UNLIMITED, Ints
from pipesat.kernels.compiled import compiled_meanwhile
from pipesat.kernels.timing import Sequence

TOO_LARGE: Final = -2


@compiled_meanwhile
def least_span_starts(sequence: Sequence, devices: int, most: int) -> tuple[int, Ints]:
    """Return the least span of a sequence's items, and the least starts of devices with it.

    -1 if it is more than ``most``; :data:`TOO_LARGE` if sums do not fit into 64 bits.
    """
    device, duration, before = sequence.device, sequence.duration, sequence.before
    begin, source, delay = sequence.begin, sequence.source, sequence.delay
    together, items = sequence.together, len(sequence.device)
    ends, origin = np.empty(items, np.int64), np.empty(items, np.int64)
    last, load = np.full(devices, NONE, np.int64), np.zeros(devices, np.int64)
    for number in range(items):
        if device[number] < devices:
            last[device[number]] = number
            load[device[number]] += duration[number]
    span = load.max()  # every mean of a cycle is a bound from below, and this is one of a loop
    x, parent = np.zeros(devices, np.int64), np.full(devices, NONE, np.int64)
    weight, seen = np.zeros(devices, np.int64), np.empty(devices, np.int64)
    while span <= most:
        for number in range(items):
            at, own = before[number], device[number]
            if at >= 0:
                start, whose = ends[at], origin[at]
            elif own < devices:
                start, whose = x[own], own
            else:
                start, whose = np.int64(0), np.int64(NONE)
            for place in range(begin[number], begin[number + 1]):
                reach = ends[source[place]] + delay[place]
                if reach > start or whose < 0:
                    start, whose = reach, origin[source[place]]
            ends[number], origin[number] = start + duration[number], whose
            first = together[number]
            if first >= 0:
                latest = number
                for member in range(first, number):
                    if ends[member] > ends[latest]:
                        latest = member
                ends[first : number + 1] = ends[latest]
                origin[first : number + 1] = origin[latest]
        grown = x.copy()
        for d in range(devices):
            if last[d] >= 0 and ends[last[d]] - span > x[d]:
                parent[d] = origin[last[d]]
                grown[d] = ends[last[d]] - span
                weight[d] = grown[d] - x[parent[d]]  # L less the span
        if (grown == x).all():
            return span, x
        if grown.max() >= UNLIMITED:
            return TOO_LARGE, x
        x = grown
        seen[:] = NONE
        for root in range(devices):
            d = root
            while d >= 0 and seen[d] < 0:
                seen[d] = root
                d = parent[d]
            if d >= 0 and seen[d] == root:  # a cycle that is longer than the span allows
                more, hops, first = np.int64(0), 0, d
                while hops == 0 or d != first:
                    more += weight[d]
                    hops += 1
                    d = parent[d]
                    if more >= UNLIMITED:
                        return TOO_LARGE, x
                span += -(-more // hops)
                x[:], parent[:] = 0, NONE
                break
    return NONE, x
