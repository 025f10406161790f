"""All states that one device can be in, step by step: the loops of docs/proofs/search.md, "Ranks".

A *state* is a row of numbers. By kind of part (F, O, L, B, W of one variant of a stage): how many
microbatches in flight have started it. By resource (the device, its channels): the item that runs
there, or none; what runs on the device matters beside copies alone. An *item* is what runs at once:
a part, B and W as BW, or a pair. By stage: how many microbatches are through, and how many F's,
backwards and W's (or whole backwards) have started. By queue (F's that wait for those of a stage
before, backwards that wait for F's of their variant, ...): how many wait. Then come times: of the
last start, from when each resource is free, and, by queue and place, the earliest start. A state is
no worse than one with the same counts if none of its times is later.

States are followed layer by layer. Each part has a weight, and those of a stage's microbatch sum up
to the same in any variant, so that states of the same counts are of one layer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pipesat.kernels.arrays import NONE, Ints
from pipesat.kernels.compiled import compiled

RESOURCES: Final = 3
COPY: Final = -1
"""Row of a copy, the last one; others are 3 x stage + kind: F 0, backward 1, W 2."""
NEVER: Final = 1 << 60


class Parts(NamedTuple):
    """Parts of all variants, numbered variant after variant in the order in which they run.

    Attributes
    ----------
    after, resource, row
        What is held after it, until the next of its microbatch; where it runs; its stage and kind.
    before, then
        The parts of its variant before and after it, -1 for none.
    stage
        The place of its stage on the device.
    ends
        1 for a backward that no W follows.
    opens, waits
        Two each: the queues that its end makes longer, and those at whose head it is; -1 for none.
    """

    after: Ints
    resource: Ints
    row: Ints
    before: Ints
    then: Ints
    stage: Ints
    ends: Ints
    opens: Ints
    waits: Ints


class Runnable(NamedTuple):
    """What runs at once: each part alone, two of a microbatch as one, and pairs.

    Attributes
    ----------
    time, during, more, resource
        What it takes, holds while it runs, and holds then beyond what it leaves; where it runs.
    members, inner
        Its parts, -1 for none; and whether the part before is the member before.
    layers
        How many layers further it leads.
    cell, left
        What it adds to a state's cell, and to the time that is left, by each count. States of a
        cell have run as many F's of each stage, and have as many between F and backward, by
        variant, and between B and W.
    """

    time: Ints
    during: Ints
    more: Ints
    resource: Ints
    members: Ints
    inner: Ints
    layers: Ints
    cell: Ints
    left: Ints


class Limits(NamedTuple):
    """What bounds states: memory, and times by row and rank, the k-th F, backward or W of a stage.

    Attributes
    ----------
    slack, microbatches
        Memory, and how many microbatches there are, by stage.
    lag, column, waiting
        By queue: how long after the end of what opened it, the first of its times, and the row of
        what waits.
    origin, cell, through, left, work, gone
        The cell of the first state, and what a part that has started and a microbatch that is
        through add, by part and stage. The time that is left at first, at least, and what these add
        to it; by several counts, of which each is true.
    earliest, latest
        By row and rank: earliest start and latest end.
    cells, until
        A table of cells and of the latest time by which the device must be free for what is left;
        no other cell leads to the end. None are stated where that is not known.
    end
        The latest time by which it must be free at all.
    copies
        1 where there are copies.
    """

    slack: int
    microbatches: Ints
    lag: Ints
    column: Ints
    waiting: Ints
    origin: int
    cell: Ints
    through: Ints
    left: Ints
    work: Ints
    gone: Ints
    earliest: Ints
    latest: Ints
    cells: Ints
    until: Ints
    end: int
    copies: int


class Pool(NamedTuple):
    """States that are still to be followed.

    Attributes
    ----------
    states, key
        Rows for them, of which some may be free, and a number of the counts of each.
    next
        By row, and beyond these by the last bits of a key: the next state of such a key; -1 for
        none.
    layers, free, behind
        By layer the state that was put there last, and a row that is free; by row the next of its
        layer, or the next one that is free; -1 for none.
    used
        How many rows have been used; one more if there were too few.
    merged
        1 if states of the same counts were made one.
    """

    states: Ints
    key: Ints
    next: Ints
    layers: Ints
    free: Ints
    used: Ints
    behind: Ints
    merged: Ints


@compiled
def weighed(first: int, by_part: Ints, by_stage: Ints, state: Ints) -> int:
    """Return a sum over a state's counts: its cell, or the least time of what has not started."""
    n = len(by_part)
    found = first
    for part in range(n):
        found += by_part[part] * state[part]
    for stage in range(len(by_stage)):
        found += by_stage[stage] * state[n + RESOURCES + stage]
    return found


@compiled
def place_of(cells: Ints, until: Ints, cell: int) -> int:
    """Return the place of a cell in a table, or a free one."""
    place = (cell ^ (cell >> 20)) & (len(cells) - 1)
    while until[place] != -1 and cells[place] != cell:
        place = (place + 1) & (len(cells) - 1)
    return place


@compiled
def until_of(limits: Limits, cell: int) -> int:
    """Return by when the device must be free in a cell; -1 where it does not lead to the end."""
    if not len(limits.cells):
        return NEVER
    return limits.until[place_of(limits.cells, limits.until, cell)]


@compiled
def table_of(cells: Ints, until: Ints, before: Ints, known: Ints) -> tuple[Ints, Ints]:
    """Return where :func:`place_of` finds cells, and by then the latest time of each; else -1.

    If there is a table before, those that it has too, with times no later than there.
    """
    size = 1
    while size < 2 * len(np.unique(cells)):
        size *= 2
    found, latest = np.empty(size, np.int64), np.full(size, -1)
    for number in range(len(cells)):
        cell, time = cells[number], until[number]
        if len(before):
            time = min(time, known[place_of(before, known, cell)])
        place = place_of(found, latest, cell)
        if time > latest[place]:
            found[place], latest[place] = cell, time
    return found, latest


@compiled
def start_of(
    parts: Parts, items: Runnable, limits: Limits, state: Ints, item: int, held: int
) -> int:
    """Return the earliest start of an item in a state in which ``held`` is held when all has ended.

    NEVER where it does not fit, has nothing to start, or would end too late.
    """
    n = len(parts.row)
    rows = n + RESOURCES + len(limits.through)
    queues = rows + 3 * len(limits.through)
    now = queues + len(limits.lag)
    free = now + 1
    start = max(state[now], state[free + items.resource[item]])
    for place in range(items.members.shape[1]):
        part = items.members[item, place]
        if part == NONE:
            break
        before, row = parts.before[part], parts.row[part]
        if before == NONE:
            if state[rows + row + parts.ends[part]] == limits.microbatches[parts.stage[part]]:
                return NEVER
        elif not items.inner[item, place]:
            held -= parts.after[before]
            of = parts.resource[before]
            waiting = state[before] - state[part]
            if waiting == 0:
                return NEVER
            runs = state[n + of] - 1
            if waiting == 1 and runs != NONE and (items.members[runs] == before).any():
                start = max(start, state[free + of])
        if row != COPY:
            start = max(start, limits.earliest[row, state[rows + row]])
        for queue in parts.waits[part]:
            if queue != NONE:
                if state[queues + queue] == 0:
                    return NEVER
                start = max(start, state[limits.column[queue]])
    held += items.during[item]
    while True:
        more, next_end = held, NEVER
        for of in range(RESOURCES):
            if state[n + of] and state[free + of] > start:
                more += items.more[state[n + of] - 1]
                next_end = min(next_end, state[free + of])
        if more <= limits.slack:
            break
        if next_end == NEVER:
            return NEVER
        start = next_end
    for part in items.members[item]:
        row = COPY if part == NONE else parts.row[part]
        if row != COPY and start + items.time[item] > limits.latest[row, state[rows + row]]:
            return NEVER
    return start


@compiled
def begin(
    parts: Parts, items: Runnable, limits: Limits, state: Ints, item: int, start: int, ends: Ints
) -> None:
    """Let an item start in a state; ``ends`` has the least ends by row and rank."""
    n = len(parts.row)
    through = n + RESOURCES
    rows = through + len(limits.through)
    queues = rows + 3 * len(limits.through)
    now = queues + len(limits.lag)
    free = now + 1
    end = start + items.time[item]
    state[now] = start
    state[free + items.resource[item]] = end
    state[n + items.resource[item]] = (item + 1) * limits.copies
    for part in items.members[item]:
        if part == NONE:
            break
        for queue in parts.waits[part]:
            if queue != NONE:
                state[queues + queue] -= 1
                column = limits.column[queue]
                last = column + state[queues + queue]
                for place in range(column, last):
                    state[place] = state[place + 1]
                state[last] = 0
    for part in items.members[item]:
        if part == NONE:
            break
        row = parts.row[part]
        if row != COPY:
            rank = state[rows + row]
            ends[row, rank] = min(ends[row, rank], end)
            state[rows + row] += 1
            state[rows + row + 1] += parts.ends[part]
        state[part] += 1
        for queue in parts.opens[part]:
            if queue != NONE:
                place = limits.column[queue] + state[queues + queue]
                state[place] = end + limits.lag[queue]
                state[queues + queue] += 1
        if parts.then[part] == NONE:
            one = part
            while one != NONE:
                state[one] -= 1
                one = parts.before[one]
            state[through + parts.stage[part]] += 1
    for of in range(RESOURCES):
        if state[free + of] <= start:
            state[free + of] = start
            state[n + of] = 0
    for queue in range(len(limits.lag)):
        column, row = limits.column[queue], limits.waiting[queue]
        for place in range(state[queues + queue]):
            least = max(state[free], limits.earliest[row, state[rows + row] + place])
            state[column + place] = max(state[column + place], least)


@compiled
def limit_ends(limits: Limits, items: Runnable, state: Ints, until: Ints) -> None:
    """Put by when the device must be free after each item into ``until``."""
    until[:] = limits.end
    for count in range(len(limits.left)):
        left = weighed(limits.left[count], limits.work[count], limits.gone[count], state)
        for item in range(len(until)):
            until[item] = min(until[item], limits.end - left - items.left[count, item])


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
def put(pool: Pool, state: Ints, layer: int, width: int, most: int) -> None:
    """Put a state into the pool, if no other one is as good; at most some of the same counts.

    Beyond that it is made one with the nearest: each time is the earlier one.
    """
    key = 0
    for column in range(width):
        key = (key * 1_000_003 + state[column]) & ((1 << 40) - 1)
    bucket = len(pool.key) + (key & (len(pool.next) - len(pool.key) - 1))
    row, count, nearest, least = pool.next[bucket], 0, NONE, NEVER
    while row != NONE:
        other = pool.states[row]
        if pool.key[row] == key and alike(other, state, width):
            if no_later(other, state, width):
                return
            if no_later(state, other, width):
                other[width:] = state[width:]
                return
            count += 1
            apart = abs(other[width] - state[width]) + abs(other[width + 1] - state[width + 1])
            if apart < least:
                nearest, least = row, apart
        row = pool.next[row]
    if count >= most:
        other = pool.states[nearest]
        for column in range(width, len(state)):
            other[column] = min(other[column], state[column])
        pool.merged[0] = 1
        return
    row = pool.free[0]
    if row != NONE:
        pool.free[0] = pool.behind[row]
    else:
        row = pool.used[0]
        pool.used[0] = row + 1
        if row >= len(pool.key):
            return
    pool.states[row] = state
    pool.key[row], pool.next[row], pool.next[bucket] = key, pool.next[bucket], row
    pool.behind[row], pool.layers[layer] = pool.layers[layer], row


@compiled
def take(pool: Pool, layer: int, state: Ints) -> None:
    """Take the state that was put into a layer last out of the pool."""
    row = pool.layers[layer]
    state[:] = pool.states[row]
    before = len(pool.key) + (pool.key[row] & (len(pool.next) - len(pool.key) - 1))
    while pool.next[before] != row:
        before = pool.next[before]
    pool.next[before] = pool.next[row]
    pool.layers[layer] = pool.behind[row]
    pool.behind[row], pool.free[0] = pool.free[0], row


@compiled
def followers(
    parts: Parts, items: Runnable, limits: Limits, pool: Pool, ends: Ints, layer: int, most: int
) -> Ints:
    """Replace the states of a layer by what they become when one item more starts.

    Returns, for each state, its cell, when the device is free there, and how many follow it. The
    least end by row and rank is kept in ``ends``.
    """
    n = len(parts.row)
    counts = n + RESOURCES + 4 * len(limits.through) + len(limits.lag)
    state, after = np.empty_like(pool.states[:2])
    until = np.zeros(len(items.time), np.int64)
    found, number = np.zeros((3, pool.used[0]), np.int64), -1
    while pool.layers[layer] != NONE and pool.used[0] <= len(pool.key):
        number += 1
        take(pool, layer, state)
        cell = weighed(limits.origin, limits.cell, limits.through, state)
        found[0, number], found[1, number] = cell, state[counts + 1]
        limit_ends(limits, items, state, until)
        held = 0
        for part in range(n):
            then = parts.then[part]
            if then != NONE:
                held += (state[part] - state[then]) * parts.after[part]
        for item in range(len(items.time)):
            start = start_of(parts, items, limits, state, item, held)
            if start == NEVER:
                continue
            busy = max(state[counts + 1], start)
            if items.resource[item] == 0:
                busy = start + items.time[item]
            if busy > until[item] or busy > until_of(limits, cell + items.cell[item]):
                continue
            found[2, number] += 1
            after[:] = state
            begin(parts, items, limits, after, item, start, ends)
            put(pool, after, layer + items.layers[item], counts, most)
    return found[:, : number + 1]
