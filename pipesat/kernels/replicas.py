"""One order of ops under many cases of what its microbatches cost; cases are the last axis."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesat.kernels.arrays import UNLIMITED, B, F, Ints, W
from pipesat.kernels.compiled import compiled


class RouteOps(NamedTuple):
    """Ops of one route, each after what it waits for.

    Attributes
    ----------
    device, kind, at
        Device and kind of each op, and the place of its microbatch.
    length, delay, held
        The columns of costs that have its time, the delay of its input (-1: none), and the first of
        three in a row: what is held after F, after B, and while a backward runs (-1: no matter).
    before, source
        Numbers, from 1, of the op before it on its device, and of its input; 0: there is none.
    """

    device: Ints
    kind: Ints
    at: Ints
    length: Ints
    delay: Ints
    held: Ints
    before: Ints
    source: Ints


@compiled
def ends_in_cases(ops: RouteOps, costs: Ints) -> Ints:
    """Earliest end of every op; shape (columns, m, cases) in, (1 + ops, cases) out, from 0 on."""
    at, length, delay = ops.at, ops.length, ops.delay
    cases = costs.shape[2]
    ends = np.zeros((1 + len(at), cases), costs.dtype)
    for op in range(len(at)):
        before, source, place = ops.before[op], ops.source[op], at[op]
        for case in range(cases):
            arrival = ends[source, case]
            if delay[op] >= 0:
                arrival += costs[delay[op], place, case]
            ends[op + 1, case] = max(arrival, ends[before, case]) + costs[length[op], place, case]
    return ends


@compiled
def excess_in_cases(ops: RouteOps, costs: Ints, slack: Ints) -> Ints:
    """Most by which each case exceeds a device's slack, op by op; 0: it fits."""
    cases = costs.shape[2]
    found, held = np.zeros(cases, np.int64), np.zeros((len(slack), cases), np.int64)
    for op in range(len(ops.at)):
        device, kind, column, place = ops.device[op], ops.kind[op], ops.held[op], ops.at[op]
        if slack[device] == UNLIMITED:
            continue
        for case in range(cases):
            after_F, after_B = costs[column, place, case], costs[column + 1, place, case]
            most = costs[column + 2, place, case]
            taken = net = after_F
            if kind == W:
                taken, net = 0, -after_B
            elif kind == B:
                taken, net = max(most, after_B, after_F) - after_F, after_B - after_F
            elif kind != F:
                taken, net = max(most, after_F) - after_F, -after_F
            found[case] = max(found[case], held[device, case] + taken - slack[device])
            held[device, case] += net
    return found
