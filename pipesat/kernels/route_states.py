"""States of all devices of a route at once: the loops of docs/proofs/search.md, "Whole routes".

A *step* of a route is one stage's F or backward: a microbatch takes all steps in turn. A *state* is
a row of numbers: how many microbatches have entered, how many W's wait, by stage whose W's count,
and the next step of each microbatch in flight, the oldest first, -1 for none. Then come times: from
when each device is free, and from when the next step of each in flight may start.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pipesat.kernels.arrays import NONE, Ints
from pipesat.kernels.compiled import compiled, compiled_within, ready
from pipesat.kernels.device_states import NEVER, alike, no_later

ENTERED: Final = 0
"""Column of the microbatches that have entered."""


class Steps(NamedTuple):
    """What a microbatch does on a route, step by step, and W's that count.

    Attributes
    ----------
    device, time, delay
        By step: where it runs, how long, and how much later the next one may start.
    taken, unsafe
        By step: memory while it runs beyond what was held before; and whether others on its device
        may no longer fit if it runs before them.
    held, reach
        By step and device: what a microbatch holds there before it, W's apart, and the least time
        from its start until the microbatch is at that device, NEVER if it does not come there.
    weight
        By step: the number of the W that follows, -1 for none that counts.
    w_device, w_time, w_held
        By W.
    slack
        Memory by device.
    """

    device: Ints
    time: Ints
    delay: Ints
    taken: Ints
    unsafe: Ints
    held: Ints
    reach: Ints
    weight: Ints
    w_device: Ints
    w_time: Ints
    w_held: Ints
    slack: Ints


@compiled_within
def candidate(
    steps: Steps, state: Ints, number: int, flight: int, microbatches: int, held: Ints
) -> tuple[int, int, int]:
    """Return where and when one of what may run next starts, and how long it runs.

    Numbers below ``flight``, how many are in flight, are their next steps, this one is to enter,
    further ones are W's. Nowhere (-1) if it waits for others of its stage or for memory.
    """
    waiting, slots = len(steps.w_time), state_slots(steps, state)
    position = 1 + waiting
    free = position + slots
    if number > flight:
        weight = number - flight - 1
        device = steps.w_device[weight]
        if state[1 + weight] == 0:
            return NONE, 0, 0
        return device, state[free + device], steps.w_time[weight]
    step = 0
    if number < flight:
        step = state[position + number]
    elif state[ENTERED] == microbatches or flight == slots:
        return NONE, 0, 0
    if number and state[position + number - 1] <= step:
        return NONE, 0, 0
    device = steps.device[step]
    if held[device] + steps.taken[step] > steps.slack[device]:
        return NONE, 0, 0
    start = state[free + device]
    if number < flight:
        start = max(start, state[free + len(steps.slack) + number])
    return device, start, steps.time[step]


@compiled_within
def state_slots(steps: Steps, state: Ints) -> int:
    """Return how many microbatches may be in flight."""
    return (len(state) - 1 - len(steps.w_time) - len(steps.slack)) // 2


@compiled_within
def in_flight(steps: Steps, state: Ints) -> int:
    """Return how many microbatches are in flight."""
    position = 1 + len(steps.w_time)
    slots = state_slots(steps, state)
    flight = 0
    while flight < slots and state[position + flight] != NONE:
        flight += 1
    return flight


@compiled_within
def take(steps: Steps, state: Ints, number: int, flight: int, end: int) -> None:
    """Let one of what may run next run until ``end``."""
    waiting, slots = len(steps.w_time), state_slots(steps, state)
    position = 1 + waiting
    free = position + slots
    ready_at = free + len(steps.slack)
    if number > flight:
        weight = number - flight - 1
        state[free + steps.w_device[weight]] = end
        state[1 + weight] -= 1
        return
    step = 0
    if number == flight:
        state[ENTERED] += 1
    else:
        step = state[position + number]
    state[free + steps.device[step]] = end
    if steps.weight[step] != NONE:
        state[1 + steps.weight[step]] += 1
    if step + 1 < len(steps.time):
        state[position + number] = step + 1
        state[ready_at + number] = end + steps.delay[step]
        return
    for place in range(slots - 1):
        state[position + place] = state[position + place + 1]
        state[ready_at + place] = state[ready_at + place + 1]
    state[position + slots - 1] = NONE
    state[ready_at + slots - 1] = 0


@compiled_within
def settle(steps: Steps, state: Ints, microbatches: int) -> None:
    """Raise times before which nothing can run: steps wait for devices, devices for steps."""
    waiting, slots = len(steps.w_time), state_slots(steps, state)
    position = 1 + waiting
    free = position + slots
    ready_at = free + len(steps.slack)
    flight = in_flight(steps, state)
    for number in range(flight):
        device = steps.device[state[position + number]]
        state[ready_at + number] = max(state[ready_at + number], state[free + device])
    entry = NEVER
    if state[ENTERED] < microbatches:
        entry = state[free + steps.device[0]]
    for device in range(len(steps.slack)):
        least, now = NEVER, state[free + device]
        for weight in range(waiting):
            if steps.w_device[weight] == device and state[1 + weight]:
                least = now
        if entry != NEVER and steps.reach[0, device] != NEVER:
            least = min(least, entry + steps.reach[0, device])
        for number in range(flight):
            if least <= now:
                break
            way = steps.reach[state[position + number], device]
            if way != NEVER:
                least = min(least, state[ready_at + number] + way)
        if least != NEVER:
            state[free + device] = max(now, least)


@compiled
def followers(steps: Steps, states: Ints, microbatches: int, most: int) -> tuple[Ints, Ints, Ints]:
    """Return what states become when one step or W more runs, or more than most of these.

    And of which state each is a follower, and what has run: a step, or a W, numbered behind these.
    """
    waiting, width = len(steps.w_time), states.shape[1]
    found = np.empty((2 * len(states) + 8, width), np.int64)
    origin, ran = np.empty((2, len(found)), np.int64)
    held, barred = np.zeros(len(steps.slack), np.int64), np.zeros(len(steps.slack), np.bool_)
    most_of = state_slots(steps, states[0]) + 1 + waiting
    where, start, end, step = np.zeros((4, most_of), np.int64)
    count = 0
    for place in range(len(states)):
        state = states[place]
        flight = in_flight(steps, state)
        held[:] = 0
        for weight in range(waiting):
            held[steps.w_device[weight]] += state[1 + weight] * steps.w_held[weight]
        for number in range(flight):
            at = state[1 + waiting + number]
            for device in range(len(held)):
                held[device] += steps.held[at, device]
        barred[:] = False
        some = flight + 1 + waiting
        for number in range(some):
            where[number], start[number], time = candidate(
                steps, state, number, flight, microbatches, held
            )
            end[number] = start[number] + time
            step[number] = len(steps.time) + number - flight - 1
            if number <= flight:
                step[number] = 0
            if number < flight:
                step[number] = state[1 + waiting + number]
        while True:
            first, chosen, before = NEVER, NONE, NEVER
            for number in range(some):
                at = where[number]
                if at != NONE and not barred[at] and end[number] < first:
                    first, chosen = end[number], at
            for number in range(some):
                safe = number > flight or not steps.unsafe[step[number]]
                if where[number] == chosen and chosen != NONE and safe:
                    before = min(before, end[number])
            for number in range(some):
                if chosen == NONE or where[number] != chosen or start[number] >= before:
                    continue
                if count == len(found):
                    if count > most:
                        return found, origin, ran
                    found = np.concatenate((found, np.empty_like(found)))
                    origin = np.concatenate((origin, np.empty_like(origin)))
                    ran = np.concatenate((ran, np.empty_like(ran)))
                for column in range(width):
                    found[count, column] = state[column]
                take(steps, found[count], number, flight, end[number])
                settle(steps, found[count], microbatches)
                origin[count], ran[count] = place, step[number]
                count += 1
            if chosen == NONE or before == first:
                break  # if not, what is not there yet may have to come first on this device
            barred[chosen] = True
    return found[:count], origin[:count], ran[:count]


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
def unbeaten(states: Ints, order: Ints, width: int) -> Ints:
    """Return those of states, ordered by their first columns, that no other one is as good as."""
    found = np.empty(len(order), np.int64)
    count = first = 0
    for number in order:
        if count and not alike(states[found[count - 1]], states[number], width):
            first = count
        beaten = False
        for place in range(first, count):
            if no_later(states[found[place]], states[number], width):
                beaten = True
                break
        if not beaten:
            found[count] = number
            count += 1
    return found[:count]


@compiled
def when_empty(steps: Steps, states: Ints) -> Ints:
    """Return by when all W's, then all in flight, the oldest first, can have ended, by state.

    NEVER where they do not fit so.
    """
    found = np.zeros(len(states), np.int64)
    waiting = len(steps.w_time)
    free_at, held = np.zeros((2, len(steps.slack)), np.int64)
    for place in range(len(states)):
        state = states[place]
        flight, free = in_flight(steps, state), 1 + waiting + state_slots(steps, state)
        for device in range(len(held)):
            free_at[device], held[device] = state[free + device], 0
            for number in range(flight):
                held[device] += steps.held[state[1 + waiting + number], device]
        for weight in range(waiting):
            free_at[steps.w_device[weight]] += state[1 + weight] * steps.w_time[weight]
        for number in range(flight):
            at = state[free + len(held) + number]
            for step in range(state[1 + waiting + number], len(steps.time)):
                device = steps.device[step]
                if held[device] + steps.taken[step] > steps.slack[device]:
                    found[place] = NEVER
                end = max(at, free_at[device]) + steps.time[step]
                free_at[device], at = end, end + steps.delay[step]
                if step + 1 < len(steps.time):
                    held[device] += steps.held[step + 1, device] - steps.held[step, device]
                else:
                    held[device] -= steps.held[step, device]
                if steps.weight[step] != NONE:
                    free_at[device] += steps.w_time[steps.weight[step]]
        found[place] = max(found[place], free_at.max())
    return found


@compiled
def least_shift(before: Ints, states: Ints, width: int, devices: int) -> int:
    """Return by how much states are no better than some that were before; both are in key order.

    The most t such that each state has one before with the same counts (from column 1 to width) of
    which every time, t later, is no later. NONE if there is no t.
    """
    found, low = NEVER, 0
    slots = states.shape[1] - width - devices
    for place in range(len(states)):
        state = states[place]
        while low < len(before) and less(before[low], state, width):
            low += 1
        most, at = NONE, low
        while at < len(before) and not less(state, before[at], width):
            least = NEVER
            for column in range(width, len(state)):
                slot = column - width - devices
                if slot < 0 or state[width - slots + slot] != NONE:
                    least = min(least, state[column] - before[at, column])
            most = max(most, least)
            at += 1
        found = min(found, most)
    return found


@compiled
def less(one: Ints, other: Ints, width: int) -> bool:
    """Whether a state comes first by its counts, those that have entered apart."""
    for column in range(1, width):
        if one[column] != other[column]:
            return one[column] < other[column]
    return False


def loops_ready(steps: Steps, states: Ints) -> bool:
    """Whether all loops would run at once; those that would not are compiled from now on."""
    waits = [
        ready(followers, steps, states, 1, 1),
        ready(keys, states, 1),
        ready(unbeaten, states, states[0], 1),
        ready(when_empty, steps, states),
        ready(least_shift, states, states, 1, 1),
    ]
    return all(waits)
