"""Gap filling on a chain: one greedy run that places F and backwards by their starts, W in gaps."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pipesat.kernels.arrays import BW, NONE, B, Coded, F, Ints, W, in_devices_order
from pipesat.kernels.compiled import compiled, compiled_meanwhile

DEPTHS: Final = ("memory", "1f1b", "eager", "slope", "slope+1", "least idle")
PATTERNS: Final = ("free", "alternate", "skip")
CRITICAL: Final = ("never", "idle", "load", "end")
_MEMORY, _LIMITED, _EAGER, _SLOPE, _STEEPER, _LEAST_IDLE = range(len(DEPTHS))
_FREE, _ALTERNATE, _SKIP = range(len(PATTERNS))
_NEVER, _IDLE, _LOAD, _END = range(len(CRITICAL))


class Chain(NamedTuple):
    """A chain of p ranks that m microbatches pass; arrays by rank.

    Attributes
    ----------
    device, first
        The rank's device, and the code of its F of microbatch 0.
    time
        By rank and kind.
    held, kept, running, slack
        What a microbatch holds after F, after B and while a backward runs, and the memory for all.
    may_split, may_fuse
        1 where the stage may.
    delay, delay_back
        From the rank's F to the next rank's, and from that one's backward to the rank's.
    head, load, first_backward
        Earliest start of the first F, time of all ops, earliest start of the first backward.
    least_idle
        How many F before the first backward leave the least idling.
    microbatches, shift
        m, and the bits of a code below the cell.
    """

    device: Ints
    first: Ints
    time: Ints
    held: Ints
    kept: Ints
    running: Ints
    slack: Ints
    may_split: Ints
    may_fuse: Ints
    delay: Ints
    delay_back: Ints
    head: Ints
    load: Ints
    first_backward: Ints
    least_idle: Ints
    microbatches: int
    shift: int


class Filled(NamedTuple):
    """An order with the makespan and the span of its earliest timing; -1: it stopped on the way."""

    makespan: int
    span: int
    order: Coded


@compiled_meanwhile
def filled(
    chain: Chain,
    depth: int,
    pattern: int,
    critical: int,
    late_first: bool,
    spare: bool,
    short: bool,
    part: float,
    fused: Ints,
) -> Filled:
    """Build one order, O(p) per op; switches are places in the tuples above, ``fused`` is by rank.

    See :class:`pipesat.heuristics.shared.gap_filling.Switches`.
    """
    p, m, shift = len(chain.device), chain.microbatches, chain.shift
    time, firsts, delay, delay_back = chain.time, chain.first, chain.delay, chain.delay_back
    may_fuse, slack, held, kept = chain.may_fuse, chain.slack, chain.held, chain.kept
    first_backward = chain.first_backward
    whole, limit = np.empty(p, np.bool_), np.empty(p, np.int64)
    # what B takes beside F's, and what BW does
    excess, excess_fused = np.empty(p, np.int64), np.empty(p, np.int64)
    exact = np.full(p, NONE, np.int64)
    for d in range(p):
        whole[d] = may_fuse[d] == 1 and (fused[d] == 1 or chain.may_split[d] == 0)
        excess_fused[d] = max(0, chain.running[d] - held[d])
        excess[d] = max(excess_fused[d], kept[d] - held[d])
        most = m
        if held[d]:
            splits = not whole[d] and not (short and may_fuse[d] == 1)
            extra = excess[d] if splits else excess_fused[d]
            most = max(1, min(m, (slack[d] - extra) // held[d]))
        slope = -(-most * (p - d) // p)
        if depth == _LIMITED:
            limit[d] = min(most, p - d)
        elif depth == _EAGER:
            limit[d] = min(most, 2 * (p - 1 - d) + 1)
        elif depth == _SLOPE:
            limit[d] = min(most, slope)
        elif depth == _STEEPER:
            limit[d] = min(most, slope + 1)
        else:
            limit[d] = most
    if depth == _LEAST_IDLE:  # none warms up deeper than the one that feeds it
        deepest = limit[0]
        for d in range(p):
            exact[d] = deepest = min(deepest, limit[d], chain.least_idle[d])
    warm_up = limit.copy()  # microbatches held when the first backward starts
    debt = np.zeros(p, np.int64)
    if critical == _LOAD:
        debt += chain.load
    elif critical == _END:
        debt += chain.head + chain.load
    worst = debt.max()

    # counts are of ops placed already
    forwards, backwards = np.zeros(p, np.int64), np.zeros(p, np.int64)
    free_at, first_start = np.zeros(p, np.int64), np.zeros(p, np.int64)
    used = np.zeros(p, np.int64)
    due, oldest, newest = np.empty((p, m), np.int64), np.zeros(p, np.int64), np.zeros(p, np.int64)
    activation, activations = np.zeros((p, m), np.int64), np.zeros(p, np.int64)  # when they arrive
    gradient, gradients = np.empty((p, m), np.int64), np.zeros(p, np.int64)
    activations[0] = m
    items, placed = np.empty((p, 3 * m), np.int64), np.zeros(p, np.int64)
    step, kinds, drains = np.full(p, NONE, np.int64), np.empty(p, np.int64), np.empty(p, np.int64)
    here, there = 0, 0  # ranks whose next step is to be chosen
    while True:
        for d in range(min(here, there), max(here, there) + 1):
            now, number, back = free_at[d], forwards[d], backwards[d]
            length, waiting, space = time[d, W], newest[d] - oldest[d], slack[d] - used[d]

            backward, kind, freed = NONE, B, 0
            if back < gradients[d]:
                freed = _drained(excess[d], space, kept[d], waiting)
                backward = max(now + freed * length, gradient[d, back])
                if may_fuse[d] == 1 and (whole[d] or freed > 0):
                    first = _drained(excess_fused[d], space, kept[d], waiting)
                    fusing = max(now + first * length, gradient[d, back])
                    sooner = fusing + time[d, BW] <= backward + time[d, B]
                    if whole[d] or (first <= waiting and (sooner or freed > waiting)):
                        backward, kind, freed = fusing, BW, first

            forward, drained = NONE, _drained(held[d], space, kept[d], waiting)
            flying = number - back
            if number < activations[d] and flying < limit[d] and drained <= waiting:
                forward = max(now + drained * length, activation[d, number])
                if back:
                    if pattern != _FREE and flying >= warm_up[d]:
                        forward = NONE
                elif number and not late_first and exact[d] < 0:
                    early = forward + time[d, F] <= first_backward[d]
                    forward = forward if early else NONE

            due_for_forward = pattern != _FREE and back > 0
            if due_for_forward:
                due_for_forward = flying < warm_up[d] - (pattern == _SKIP)
            if exact[d] >= 0 and back == 0:
                goes_forward = number < exact[d]
            elif forward < 0:
                goes_forward = due_for_forward and activations[d] == number < m  # waits for it
            elif backward < 0 or due_for_forward:
                goes_forward = True
            else:
                end = forward + (time[d, F] if spare else 0)
                goes_forward = forward < backward and end <= backward
            if goes_forward:
                step[d], kinds[d], drains[d] = forward, F, drained
            else:
                step[d], kinds[d], drains[d] = backward, kind, freed

        d = NONE  # later ranks first among equals
        for rank in range(p - 1, -1, -1):
            if step[rank] >= 0 and (d < 0 or step[rank] < step[d]):
                d = rank
        if d < 0:
            break
        start, kind, length, at = step[d], kinds[d], time[d, W], placed[d]
        if at == 0:
            free_at[d] = first_start[d] = start
        now, left = free_at[d], drains[d]
        while oldest[d] < newest[d]:  # those that memory needs, that the gap holds, one that pays
            gap, last = start - now, False
            if left > 0:
                left -= 1
            elif gap < length:
                hurts = critical != _NEVER and debt[d] + gap > worst
                if gap <= 0 or not (hurts or gap >= part * length):
                    break
                last = True
            items[d, at] = firsts[d] + (due[d, oldest[d]] << shift) + W
            at += 1
            oldest[d] += 1
            now += length
            used[d] -= kept[d]
            if last:
                break
        debt[d] += max(0, start - now)
        worst = max(worst, debt[d])
        now = free_at[d] = max(start, now) + time[d, kind]
        here = there = d
        if kind == F:
            items[d, at] = firsts[d] + (forwards[d] << shift)
            forwards[d] += 1
            used[d] += held[d]
            if d + 1 < p:
                there = d + 1
                activation[there, activations[there]] = now + delay[d]
                activations[there] += 1
            else:
                gradient[d, gradients[d]] = now
                gradients[d] += 1
        else:
            if backwards[d] == 0:
                warm_up[d] = forwards[d]
            items[d, at] = firsts[d] + (backwards[d] << shift) + kind
            used[d] -= held[d]
            if kind == B:
                used[d] += kept[d]
                due[d, newest[d]] = backwards[d]
                newest[d] += 1
            backwards[d] += 1
            if d:
                there = d - 1
                gradient[there, gradients[there]] = now + delay_back[there]
                gradients[there] += 1
        placed[d] = at + 1
    return _completed(chain, items, placed, due, oldest, newest, backwards, free_at, first_start)


@compiled
def _drained(amount: int, space: int, kept: int, waiting: int) -> int:
    """How many W have to run before there is space; more than wait: it will not do."""
    if amount <= space:
        return 0
    return -((space - amount) // kept) if kept else waiting + 1


@compiled
def _completed(
    chain: Chain,
    items: Ints,
    placed: Ints,
    due: Ints,
    oldest: Ints,
    newest: Ints,
    backwards: Ints,
    free_at: Ints,
    first_start: Ints,
) -> Filled:
    """Run the W that are still due, and put the ranks' items into the order of their devices."""
    makespan = span = 0
    for d in range(len(chain.device)):
        for place in range(oldest[d], newest[d]):
            items[d, placed[d]] = chain.first[d] + (due[d, place] << chain.shift) + W
            placed[d] += 1
            free_at[d] += chain.time[d, W]
        makespan = max(makespan, free_at[d])
        span = max(span, free_at[d] - first_start[d])
    if backwards.min() < chain.microbatches:
        makespan = span = NONE
    return Filled(makespan, span, in_devices_order(items, placed, chain.device))
