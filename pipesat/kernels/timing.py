"""From an order to one sequence and its times: who waits for whom, earliest ends, longest tails."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pipesat.kernels.arrays import (
    NONE,
    Coded,
    Floats,
    Ints,
    ProblemArrays,
    W,
    time_together,
    variant,
)
from pipesat.kernels.compiled import compiled, compiled_meanwhile

UNREACHABLE: Final = -(1 << 62)


class Sequence(NamedTuple):
    """An order in one sequence in which every item stands after all that it waits for.

    Attributes
    ----------
    item
        The order's items, by their places in :class:`pipesat.kernels.arrays.Coded`; what waits in a
        circle, or for what the order lacks, is not there.
    device, duration, before
        By place in the sequence: device, time (-1: a pair that is none), and the place of the item
        before it on its device (-1: none).
    begin, source, delay
        From ``begin[i]`` to ``begin[i + 1]``: the places whose ends item i waits for besides, and
        the delays.
    together
        By place: the first item of a group that ends together if this is its last one, else -1.
    reached
        By device, how many of its items are in the sequence.
    """

    item: Ints
    device: Ints
    duration: Ints
    before: Ints
    begin: Ints
    source: Ints
    delay: Ints
    together: Ints
    reached: Ints


@compiled_meanwhile
def sequenced(a: ProblemArrays, order: Coded) -> Sequence:
    """Put an order into one sequence. O(items).

    Devices take turns: each runs its list until an item waits for one that has not run; the device
    is woken when that one does.
    """
    firsts, seconds, begins = order.first, order.second, order.begin
    first_input, sources, delays = a.begin, a.source, a.delay
    times, variant_of, shift, modes = a.time, a.variant_of, a.shift, (1 << a.shift) - 1
    devices, items = len(begins) - 1, len(firsts)
    item, device_of = np.empty(items, np.int64), np.empty(items, np.int64)
    duration, before = np.empty(items, np.int64), np.empty(items, np.int64)
    most = 0
    for codes in (firsts, seconds):
        for at in range(items):
            if codes[at] >= 0:
                event = 2 * (codes[at] >> shift) + (codes[at] & 1)
                most += 1 if codes[at] & 3 == W else first_input[event + 1] - first_input[event]
    begin, source = np.zeros(items + 1, np.int64), np.empty(most, np.int64)
    delay, together = np.empty(most, np.int64), np.full(items, NONE, np.int64)
    reached = np.zeros(devices, np.int64)
    done = np.full(2 * len(variant_of), NONE, np.int64)  # by event, the item that completes it
    asleep_for = np.full(devices, NONE, np.int64)  # by device, the event that it is asleep for
    asleep = np.empty(devices, np.int64)  # those that are, in the order in which they fell asleep
    sleeping, number = 0, 0
    last = np.full(devices, NONE, np.int64)
    ready, waiting = np.arange(devices - 1, -1, -1), devices
    while waiting:
        waiting -= 1
        device = ready[waiting]
        at = begins[device] + reached[device]
        while at < begins[device + 1]:
            code, other = firsts[at], seconds[at]
            inputs = begin[number]
            while code >= 0:
                cell, kind = code >> shift, code & 3
                own = 2 * cell + (kind & 1)
                one, last_one = first_input[own], first_input[own + 1]
                event, wait = 2 * cell + 1, np.int64(0)
                if kind == W:
                    last_one = one + 1
                while one < last_one:
                    if kind != W:
                        event, wait = sources[one], delays[one]
                    if done[event] < 0:
                        asleep_for[device] = event
                        asleep[sleeping] = device
                        sleeping += 1
                        break
                    source[inputs], delay[inputs] = done[event], wait
                    inputs += 1
                    one += 1
                if asleep_for[device] >= 0:
                    break
                code, other = other, NONE
            if asleep_for[device] >= 0:
                break
            code, other = firsts[at], seconds[at]
            begin[number + 1] = inputs
            item[number], device_of[number], before[number] = at, device, last[device]
            row = variant_of[code >> shift] + ((code & modes) >> 2)
            duration[number] = times[row, code & 3] if other < 0 else time_together(a, code, other)
            last[device] = number
            at += 1
            while code >= 0:
                if code & 3 != W:
                    event = 2 * (code >> shift) + (1 if code & 3 else 0)
                    done[event] = number
                    kept = 0
                    for place in range(sleeping):
                        one = asleep[place]
                        if asleep_for[one] == event:
                            asleep_for[one] = NONE
                            ready[waiting] = one
                            waiting += 1
                        else:
                            asleep[kept] = one
                            kept += 1
                    sleeping = kept
                code, other = other, NONE
            number += 1
        reached[device] = at - begins[device]
    inputs = begin[number]
    return Sequence(
        item[:number],
        device_of[:number],
        duration[:number],
        before[:number],
        begin[: number + 1],
        source[:inputs],
        delay[:inputs],
        together[:number],
        reached,
    )


@compiled_meanwhile
def ends_of(sequence: Sequence, release: Ints) -> Ints:
    """Earliest ends of a sequence's items if device d does not start before ``release[d]``.

    What lies in a row beyond the devices' waits for its inputs alone.
    """
    ends = np.empty(len(sequence.device), np.int64)
    for number in range(len(ends)):
        before, device = sequence.before[number], sequence.device[number]
        start = ends[before] if before >= 0 else release[device] if device < len(release) else 0
        for at in range(sequence.begin[number], sequence.begin[number + 1]):
            start = max(start, ends[sequence.source[at]] + sequence.delay[at])
        ends[number] = start + sequence.duration[number]
        first = sequence.together[number]
        if first >= 0:
            ends[first : number + 1] = ends[first : number + 1].max()
    return ends


@compiled_meanwhile
def value_of(a: ProblemArrays, order: Coded) -> tuple[int, int]:
    """Earliest makespan of an order and the span of that timing; -1 if it cannot run.

    Whether it fits into memory or not; nothing has to end together.
    """
    sequence, devices = sequenced(a, order), len(order.begin) - 1
    if len(sequence.item) < len(order.first):
        return NONE, NONE
    ends = ends_of(sequence, np.zeros(devices, np.int64))
    first = np.full(devices, NONE, np.int64)
    makespan = span = 0
    for number in range(len(ends)):
        device, end = sequence.device[number], ends[number]
        if first[device] < 0:
            first[device] = end - sequence.duration[number]
        makespan, span = max(makespan, end), max(span, end - first[device])
    return makespan, span


@compiled
def last_ends(
    sequence: Sequence, lengths: Floats, delay: Floats, devices: int, each: bool
) -> Floats:
    """Ends of the devices' last items in many cases; shape (cases, 1 or D, D), -inf: never.

    ``lengths`` has shape (cases, items). ``delay`` has one of every input, as the sequence. All
    begin at 0; with ``each``, the second axis is the one device that does: what waits for none of
    its items never ends.
    """
    devices_of, before, begins = sequence.device, sequence.before, sequence.begin
    sources, together = sequence.source, sequence.together
    found = np.full((len(lengths), devices if each else 1, devices), -np.inf)
    ends = np.empty(len(devices_of))
    for case in range(len(lengths)):
        for origin in range(devices if each else 1):
            for number in range(len(ends)):
                device = devices_of[number]
                start = 0.0 if not each or device == origin else -np.inf
                if before[number] >= 0:
                    start = ends[before[number]]
                for at in range(begins[number], begins[number + 1]):
                    start = max(start, ends[sources[at]] + delay[at])
                ends[number] = start + lengths[case, number]
                first = together[number]
                if first >= 0:
                    for member in range(first, number):
                        ends[number] = max(ends[number], ends[member])
                for member in range(first if first >= 0 else number, number + 1):
                    ends[member] = ends[number]
                    if 0 <= devices_of[member] < devices:
                        found[case, origin, devices_of[member]] = ends[number]
    return found


@compiled_meanwhile
def makespan_of(a: ProblemArrays, order: Coded) -> int:
    """Earliest makespan of an order, whether it fits into memory or not; -1 if it cannot run."""
    makespan, _ = value_of(a, order)
    return makespan


@compiled_meanwhile
def over_slack(a: ProblemArrays, order: Coded) -> int:
    """Return the first device on which an order's items exceed the slack, copies counted as done.

    -1: all fit. One item runs after the other, so what one frees at its end is free for the next.
    """
    for device in range(len(order.begin) - 1):
        held = 0
        for at in range(order.begin[device], order.begin[device + 1]):
            taken = net = 0
            for code in (order.first[at], order.second[at]):
                if code >= 0:
                    row = variant(a, code)
                    taken += a.taken[row, code & 3]
                    net += a.net[row, code & 3]
            if held + taken > a.slack[device]:
                return device
            held += net
    return NONE


@compiled
def tails_of(sequence: Sequence, begin: Ints) -> Ints:
    """Longest path from each item's end to the end of a device's last, less ``begin`` of that."""
    tails = np.full(len(sequence.device), UNREACHABLE, np.int64)
    last = np.full(len(begin), NONE, np.int64)
    for number in range(len(tails)):
        if sequence.device[number] < len(begin):
            last[sequence.device[number]] = number
    for device in range(len(begin)):
        if last[device] >= 0:
            tails[last[device]] = -begin[device]
    for number in range(len(tails) - 1, -1, -1):
        first = sequence.together[number]
        if first >= 0:
            tails[first : number + 1] = tails[first : number + 1].max()
        reach = tails[number] + sequence.duration[number]
        before = sequence.before[number]
        if before >= 0:
            tails[before] = max(tails[before], reach)
        for at in range(sequence.begin[number], sequence.begin[number + 1]):
            source = sequence.source[at]
            tails[source] = max(tails[source], reach + sequence.delay[at])
    return tails
