"""All states that one device can be in, step by step: the loops of docs/proofs/search.md, "Ranks".

A *state* is a row of numbers. By part (F, O, L, B, W of a variant): how many microbatches in flight
have started it. By resource (the device, its channels): the part that runs there, or none. How many
microbatches are through. Then come times: of the last start, from when each resource is
free, and, by microbatch between F and backward, when its backward may start at the earliest.
A state is no worse than one with the same counts if none of its times is later.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pipesat.kernels.arrays import NONE, Ints
from pipesat.kernels.compiled import compiled, ready

RESOURCES: Final = 3
COPY: Final = 3
"""Kind of a part that is a copy; others are F 0, backwards 1, W 2."""
NEVER: Final = 1 << 60


class Parts(NamedTuple):
    """Parts of all variants, numbered variant after variant in the order in which they run.

    Attributes
    ----------
    time, during, after, resource, kind
        What a part takes, holds while it runs and after it, until the next of its microbatch; where
        it runs, and its kind.
    before, then
        The parts of its variant before and after it, -1 for none.
    since, lag, column
        The part after whose end it waits for so long (-1: none), and where states have these times.
    ends
        1 for a backward that no W follows.
    cell
        What it adds to a state's cell: states of one have run as many F's, and have as many between
        F and backward, by variant, and between B and W.
    """

    time: Ints
    during: Ints
    after: Ints
    resource: Ints
    kind: Ints
    before: Ints
    then: Ints
    since: Ints
    lag: Ints
    column: Ints
    ends: Ints
    cell: Ints


class Limits(NamedTuple):
    """What bounds states: memory, and times by kind and rank, the k-th F, backward or W.

    Attributes
    ----------
    microbatches, slack, waiting
        How many there are, memory for them, and how many may be between F and backward.
    origin, through
        The cell of the first state, and what a microbatch that is through adds.
    earliest, latest
        By kind and rank: earliest start and latest end.
    until
        By cell: the latest time by which the device must be free for what is left.
    """

    microbatches: int
    slack: int
    waiting: int
    origin: int
    through: int
    earliest: Ints
    latest: Ints
    until: Ints


@compiled
def counted(parts: Parts, state: Ints, total: Ints) -> None:
    """Put how many F's, backwards, W's (or whole backwards) and copies have started into total."""
    n = len(parts.time)
    total[:] = state[n + RESOURCES]
    for part in range(n):
        total[parts.kind[part]] += state[part]
        if parts.ends[part]:
            total[2] += state[part]


@compiled
def cell_of(parts: Parts, limits: Limits, state: Ints) -> int:
    """Return the cell of a state."""
    n = len(parts.time)
    found = limits.origin + limits.through * state[n + RESOURCES]
    for part in range(n):
        found += parts.cell[part] * state[part]
    return found


@compiled
def start_of(parts: Parts, limits: Limits, state: Ints, part: int, rank: int, held: int) -> int:
    """Return the earliest start of a part in a state in which ``held`` is held when all has ended.

    NEVER where it does not fit, or has nothing to start.
    """
    n = len(parts.time)
    now = n + RESOURCES + 1
    free = now + 1
    before = parts.before[part]
    start = max(state[now], state[free + parts.resource[part]])
    if before != NONE:
        held -= parts.after[before]
        of = parts.resource[before]
        waiting = state[before] - state[part]
        if waiting == 0:
            return NEVER
        if waiting == 1 and state[n + of] == before + 1:
            start = max(start, state[free + of])
    if parts.kind[part] != COPY:
        start = max(start, limits.earliest[parts.kind[part], rank])
    if parts.since[part] != NONE:
        start = max(start, state[parts.column[part]])
    held += parts.during[part]
    while True:
        more, next_end = held, NEVER
        for of in range(RESOURCES):
            runs = state[n + of] - 1
            if runs >= 0 and state[free + of] > start:
                more += parts.during[runs] - parts.after[runs]
                next_end = min(next_end, state[free + of])
        if more <= limits.slack:
            return start
        if next_end == NEVER:
            return NEVER
        start = next_end


@compiled
def begin(parts: Parts, limits: Limits, state: Ints, part: int, start: int, total: Ints) -> None:
    """Let a part start in a state; ``total`` counts it already."""
    n = len(parts.time)
    through = n + RESOURCES
    now = through + 1
    free = now + 1
    end = start + parts.time[part]
    state[part] += 1
    state[now] = start
    state[free + parts.resource[part]] = end
    state[n + parts.resource[part]] = part + 1
    if parts.since[part] != NONE:
        column = parts.column[part]
        for place in range(column, column + limits.waiting - 1):
            state[place] = state[place + 1]
        state[column + limits.waiting - 1] = 0
    for other in range(n):
        if parts.since[other] == part:
            place = parts.column[other] + state[part] - state[other] - 1
            state[place] = end + parts.lag[other]
    if parts.then[part] == NONE:
        one = part
        while one != NONE:
            state[one] -= 1
            one = parts.before[one]
        state[through] += 1
    for of in range(RESOURCES):
        if state[free + of] <= start:
            state[free + of] = start
            state[n + of] = 0
    for other in range(n):
        if parts.since[other] != NONE:
            column, kind = parts.column[other], parts.kind[other]
            for place in range(state[parts.since[other]] - state[other]):
                least = max(
                    state[free + parts.resource[other]],
                    limits.earliest[kind, total[kind] + place],
                )
                state[column + place] = max(state[column + place], least)


@compiled
def followers(parts: Parts, limits: Limits, states: Ints, most: int) -> Ints:
    """Return what states become when one part more starts; none if these are more than most."""
    n = len(parts.time)
    now = n + RESOURCES + 1
    found = np.empty((most, states.shape[1]), np.int64)
    total = np.zeros(COPY + 1, np.int64)
    count = 0
    for number in range(len(states)):
        state = states[number]
        held = 0
        cell = cell_of(parts, limits, state)
        counted(parts, state, total)
        started = state[n + RESOURCES]
        for part in range(n):
            then = parts.then[part]
            if then != NONE:
                held += (state[part] - state[then]) * parts.after[part]
            if parts.before[part] == NONE:
                started += state[part]
        for part in range(n):
            if parts.before[part] == NONE and started == limits.microbatches:
                continue
            kind = parts.kind[part]
            rank = total[kind]
            start = start_of(parts, limits, state, part, rank, held)
            if start == NEVER:
                continue
            busy = max(state[now + 1], start)
            if kind != COPY:
                busy = start + parts.time[part]
                if busy > limits.latest[kind, rank]:
                    continue
            if busy > limits.until[cell + parts.cell[part]]:
                continue
            if count == most:
                return found[:0]
            found[count] = state
            total[kind] += 1
            begin(parts, limits, found[count], part, start, total)
            total[kind] -= 1
            count += 1
    return found[:count]


@compiled
def keys(states: Ints, width: int) -> Ints:
    """Return a number for each state's first columns, the same for the same."""
    found = np.zeros(len(states), np.int64)
    for number in range(len(states)):
        key = 0
        for column in range(width):
            key = (key * 1_000_003 + states[number, column]) & ((1 << 40) - 1)
        found[number] = key
    return found


@compiled
def alike(one: Ints, other: Ints, width: int) -> bool:
    """Whether two states agree in their first columns."""
    column = 0
    while column < width and one[column] == other[column]:
        column += 1
    return column == width


@compiled
def no_later(one: Ints, other: Ints, width: int) -> bool:
    """Whether none of the times beyond these columns is later in the first state."""
    column = width
    while column < len(one) and one[column] <= other[column]:
        column += 1
    return column == len(one)


@compiled
def best(states: Ints, order: Ints, width: int, most: int) -> tuple[Ints, int]:
    """Return those of ordered states that no other one is as good as; most of them of a key.

    Those beyond, counted too, are made one with the last of them: each time is the earlier one.
    """
    kept = np.empty(len(order), np.int64)
    count = first = merged = 0
    for number in order:
        state = states[number]
        if count and not alike(states[kept[count - 1]], state, width):
            first = count
        beaten = False
        for place in range(first, count):
            if no_later(states[kept[place]], state, width):
                beaten = True
                break
        if beaten:
            continue
        if count - first < most:
            kept[count] = number
            count += 1
        else:
            last = states[kept[count - 1]]
            last[width:] = np.minimum(last[width:], state[width:])
            merged += 1
    return kept[:count], merged


@compiled
def noted(parts: Parts, limits: Limits, states: Ints, ends: Ints, free: Ints) -> None:
    """Keep the least end by kind and rank, and when the device is free at the earliest, by cell."""
    n = len(parts.time)
    total = np.zeros(COPY + 1, np.int64)
    for number in range(len(states)):
        state = states[number]
        counted(parts, state, total)
        end = state[n + RESOURCES + 2]
        cell = cell_of(parts, limits, state)
        free[cell] = min(free[cell], end)
        if state[n]:
            kind = parts.kind[state[n] - 1]
            ends[kind, total[kind] - 1] = min(ends[kind, total[kind] - 1], end)


def loops_ready(parts: Parts, limits: Limits, states: Ints, ends: Ints, free: Ints) -> bool:
    """Whether all loops would run at once; those that would not are compiled from now on."""
    waits = [
        ready(followers, parts, limits, states, 1),
        ready(keys, states, 1),
        ready(best, states, free, 1, 1),
        ready(noted, parts, limits, states, ends, free),
    ]
    return all(waits)
