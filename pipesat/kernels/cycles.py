"""Orders of ops that come again every period: what period they take, and shorter ones by chance."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from pipesat.kernels.arrays import NONE, UNLIMITED, Floats, Ints
from pipesat.kernels.compiled import compiled, compiled_meanwhile
from pipesat.kernels.permutations import drawn

_ROUNDS: Final = 200  # of policy iteration: it takes a few
_EXACT: Final = 1e-9  # times all work: less is the same time
_FAR: Final = 6  # neighbours that an op passes at most at a step
_OTHERS: Final = 10  # one in so many steps is of any op, not of one on the slowest circle
_FINE: Final = 1 << 30


class Cycle(NamedTuple):
    """Ops of which each comes once a period, on its device; all arrays are by op but two.

    Attributes
    ----------
    begin
        By device: its ops are at ``begin[d]`` to ``begin[d + 1]`` of a row.
    slack
        By device.
    device, stage, kind, number
        Where an op runs, its kind (0 F, 1 backward, 2 W), and of which microbatch it is at first.
    length, source, delay
        Its time, the op of another stage that it waits for (-1: none), and for how long that takes
        and travels.
    taken, net
        Memory that it takes at its start, and what is held more after it.
    """

    begin: Ints
    slack: Ints
    device: Ints
    stage: Ints
    kind: Ints
    number: Ints
    length: Ints
    source: Ints
    delay: Ints
    taken: Ints
    net: Ints


@compiled
def fits(c: Cycle, row: Ints, turn: Ints, device: int) -> bool:
    """Whether a device's ops keep to its memory, whatever the period.

    An op is as many periods later as its turn says, so as much less of what it nets is held.
    """
    if c.slack[device] == UNLIMITED:
        return True
    held = 0
    for at in range(c.begin[device], c.begin[device + 1]):
        held -= c.net[row[at]] * turn[row[at]]
    for at in range(c.begin[device], c.begin[device + 1]):
        if held + c.taken[row[at]] > c.slack[device]:
            return False
        held += c.net[row[at]]
    return True


@compiled
def period_of(
    c: Cycle, row: Ints, turn: Ints, waits: Ints, value: Floats, circle: Ints, most: float
) -> float:
    """Return the least period of an order: the time over the turns of its slowest circle of ops.

    Infinite if it is above ``most``, or if ops wait for each other. ``circle`` gets the number of
    ops on that circle, then these. By policy iteration (Cochet-
    Terrasson et al. 1998): each op waits for one thing, for its source if ``waits`` is 1, else for
    what is before it on its device. That and the ops' times are where it begins and ends.
    """
    ops, work = len(row), c.length.sum()
    first, earlier = np.zeros(ops, np.int64), np.empty((2, ops), np.int64)
    for device in range(len(c.slack)):
        begin, end = c.begin[device], c.begin[device + 1]
        for at in range(begin, end):
            earlier[0, row[at]] = row[at - 1 if at > begin else end - 1]
        if begin < end:
            first[row[begin]] = 1
    later, takes = np.empty((2, ops), np.int64), np.empty((2, ops), np.int64)
    for op in range(ops):
        earlier[1, op] = c.source[op]
        later[0, op], takes[0, op] = first[op], c.length[earlier[0, op]]
        later[1, op], takes[1, op] = turn[op] - turn[c.source[op]], c.delay[op]
    rate, seen, path = np.empty(ops), np.empty(ops, np.int64), np.empty(ops, np.int64)
    for _ in range(_ROUNDS):
        slowest = 0.0
        seen[:] = NONE
        for begin in range(ops):
            op, steps = begin, 0
            while seen[op] < 0:
                seen[op], path[steps] = begin, op
                steps, op = steps + 1, earlier[waits[op], op]
            if seen[op] == begin:  # a circle
                time, turns, end = 0, 0, steps
                while True:
                    steps -= 1
                    other = path[steps]
                    time += takes[waits[other], other]
                    turns += later[waits[other], other]
                    if other == op:
                        break
                if turns <= 0 or time > most * turns:
                    return math.inf
                rate[op] = time / turns
                if rate[op] > slowest:
                    slowest, circle[0] = rate[op], end - steps
                    circle[1 : 1 + end - steps] = path[steps:end]
                steps = end
            for at in range(steps - 1, -1, -1):
                other = path[at]
                how = waits[other]
                before = earlier[how, other]
                if other != op:
                    rate[other] = rate[before]
                    value[other] = value[before] + takes[how, other] - rate[op] * later[how, other]
        changed = False
        for op in range(ops):
            if c.source[op] >= 0 and rate[earlier[1 - waits[op], op]] > rate[op] + _EXACT * work:
                waits[op], changed = 1 - waits[op], True
        for op in range(0 if changed else ops):
            how = 1 - waits[op]
            if c.source[op] >= 0:
                start = value[earlier[how, op]] + takes[how, op] - rate[op] * later[how, op]
                if start > value[op] + _EXACT * work:
                    waits[op], changed = how, True
        if not changed:
            return slowest
    return math.inf


@compiled
def moved(c: Cycle, row: Ints, turn: Ints, at: int, steps: int) -> int:
    """Let an op pass its neighbours on its device, later ones or (steps < 0) earlier ones.

    It stops before one that waits for it, or that it waits for, and before one of its own kind and
    stage. Past the end of a row ops are of another turn. Returns how many it has passed.
    """
    device = c.device[row[at]]
    begin, count = c.begin[device], c.begin[device + 1] - c.begin[device]
    for done in range(abs(steps)):
        there = begin + (at - begin + (1 if steps > 0 else -1)) % count
        one, other = (at, there) if steps > 0 else (there, at)
        a, b = row[one], row[other]
        wraps = 1 if other < one else 0
        if c.stage[a] == c.stage[b] and (
            c.kind[a] == c.kind[b] or (c.number[a] == c.number[b] and turn[a] == turn[b] - wraps)
        ):
            return done
        row[one], row[other] = b, a
        turn[a] += wraps
        turn[b] -= wraps
        at = there
    return abs(steps)


@compiled_meanwhile
def anneal(
    c: Cycle, row: Ints, turn: Ints, best: Ints, known: Floats, state: Ints, steps: int, heat: float
) -> None:
    """Take steps from one order to another, longer ones by chance; keep the best.

    ``known`` has the period here, and the best; ``best`` its row and turns. An op or two pass some
    neighbours at a step, mostly ones on the slowest circle: no other makes the period shorter. A
    period longer by a share of ``heat`` is taken with a chance of 1/e.
    """
    waits, value = np.zeros(len(row), np.int64), np.zeros(len(row))
    circle, place = np.zeros(len(row) + 1, np.int64), np.argsort(row)
    known[0] = period_of(c, row, turn, waits, value, circle, math.inf)
    if known[0] < known[1]:
        known[1] = known[0]
        best[0][:] = row
        best[1][:] = turn
    tried, turned, waited, found = row.copy(), turn.copy(), waits.copy(), circle.copy()
    for _ in range(steps):
        passed, safe = 0, True
        for _ in range(1 + drawn(state, 2)):
            at, far = drawn(state, len(row)), 1
            if drawn(state, _OTHERS):
                at = place[circle[1 + drawn(state, circle[0])]]
            while far < _FAR and drawn(state, 2):
                far += 1
            passed += moved(c, tried, turned, at, far if drawn(state, 2) else -far)
            safe = safe and fits(c, tried, turned, c.device[tried[at]])
        period = math.inf
        if passed and safe:
            chance = (1 + drawn(state, _FINE)) / _FINE
            most = known[0] * (1 + _EXACT - heat * math.log(chance))
            period = period_of(c, tried, turned, waited, value, found, most)
        if period < math.inf:
            known[0] = period
            row[:] = tried
            turn[:] = turned
            waits[:] = waited
            circle[:] = found
            place[row] = np.arange(len(row))
            if period < known[1]:
                known[1] = period
                best[0][:] = row
                best[1][:] = turn
        else:
            tried[:] = row
            turned[:] = turn
            waited[:] = waits
