"""A grid of slots: when microbatches may enter it, and what runs in which order.

In each slot of a grid every device has place for a forward and a backward. A grid is an array of
their cells, :data:`pipesat.kernels.arrays.NONE` where nothing runs: the forward of slot t on device
d of D stands at ``2 * (t * D + d)``, the backward behind it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesat.kernels.arrays import BW, NO_PAIR, NONE, B, F, Ints, ProblemArrays, W, pair_time
from pipesat.kernels.compiled import compiled


class Shapes(NamedTuple):
    """What microbatches want from a grid, from the slot on in which they enter.

    Attributes
    ----------
    ops, length
        By route: how many ops a microbatch has but W's, and slots from entering to leaving.
    wanted, first_cell
        By route and op of a microbatch, in the order in which they run: the place in the grid, and
        the first cell of its stage.
    shape_of
        By cell of a route's first stage: the row of ``held``.
    held
        By class of microbatches that hold the same; then by slot and device: what is held there.
    fits
        Whether each fits alone.
    """

    ops: Ints
    length: Ints
    wanted: Ints
    first_cell: Ints
    shape_of: Ints
    held: Ints
    fits: bool


@compiled
def shapes_of(a: ProblemArrays, backward: Ints, stops: Ints) -> Shapes:
    """Return what microbatches want that run a backward alone as ``backward`` says, by stage.

    ``stops`` has, by route and op of a microbatch, the slots that it waits before it.
    """
    devices, routes, most = len(a.slack), len(stops), stops.shape[1]
    entry, ops = np.zeros(routes, np.int64), np.zeros(routes, np.int64)
    for stage in range(len(a.device)):
        ops[a.route[stage]] += 2
        if a.previous[stage] < 0:
            entry[a.route[stage]] = stage
    slot, length = np.zeros((routes, most), np.int64), np.zeros(routes, np.int64)
    wanted, first_cell = np.zeros((routes, most), np.int64), np.zeros((routes, most), np.int64)
    shape_of, shapes, longest = np.full(len(a.stage_of), NONE, np.int64), 0, 0
    one_of = np.empty(len(a.time), np.int64)  # a microbatch of each shape
    for route in range(routes):
        at, stage = NONE, entry[route]
        for place in range(ops[route]):
            at += 1 + stops[route, place]
            slot[route, place] = at
            wanted[route, place] = 2 * (at * devices + a.device[stage])
            wanted[route, place] += 2 * place >= ops[route]
            first_cell[route, place] = a.first_cell[stage]
            if 2 * place + 2 < ops[route]:
                stage = a.following[stage]
            elif 2 * place + 2 > ops[route]:
                stage = a.previous[stage]
        length[route], longest = at + 1, max(longest, at + 1)
        known = np.full(len(a.time), NONE, np.int64)
        for cell in range(a.first_cell[entry[route]], a.first_cell[entry[route] + 1]):
            row = a.variant_of[cell]
            if known[row] < 0:
                known[row], one_of[shapes] = shapes, cell
                shapes += 1
            shape_of[cell] = known[row]
    held, fits = np.zeros((shapes, longest * devices), np.int64), True
    for shape in range(shapes):
        stage = a.stage_of[one_of[shape]]
        route, number = a.route[stage], one_of[shape] - a.first_cell[stage]
        for place in range(ops[route] // 2):
            device, row = a.device[stage], a.variant_of[a.first_cell[stage] + number]
            for at in range(slot[route, place], slot[route, ops[route] - 1 - place] + 1):
                held[shape, at * devices + device] += a.net[row, F]
            held[shape, at * devices + device] += a.taken[row, backward[stage]]
            stage = a.following[stage]
        for at in range(held.shape[1]):
            fits = fits and held[shape, at] <= a.slack[at % devices]
    return Shapes(ops, length, wanted, first_cell, shape_of, held, fits)


@compiled
def placed(slack: Ints, shapes: Shapes, entering: Ints, gaps: Ints) -> tuple[Ints, Ints]:
    """Let microbatches enter, each in the first slot from which the grid is free for all its ops.

    All devices have memory for what it holds then. It enters ``gaps`` slots or more after its
    route's last one. ``entering`` has route and number of each. Each has to fit alone. Returns the
    grid, and the slots in which they enter.
    """
    length, wanted, first_cell = shapes.length, shapes.wanted, shapes.first_cell
    shape_of, held = shapes.shape_of, shapes.held
    devices, slots, used = len(slack), 4 * wanted.shape[1], 0
    grid, left = np.empty(2 * devices * slots, np.int64), np.empty(devices * slots, np.int64)
    last, entries = np.full(len(length), NONE, np.int64), np.empty(len(gaps), np.int64)
    for place in range(len(gaps)):
        route, number = entering[place, 0], entering[place, 1]
        at = last[route] + gaps[place]
        shape, ops = shape_of[first_cell[route, 0] + number], shapes.ops[route]
        while True:
            if at + length[route] > slots:
                slots = 2 * (at + length[route])
                grid = np.concatenate((grid, np.empty(2 * devices * slots - len(grid), np.int64)))
                left = np.concatenate((left, np.empty(devices * slots - len(left), np.int64)))
            while used < at + length[route]:
                left[used * devices : (used + 1) * devices] = slack
                grid[2 * used * devices : 2 * (used + 1) * devices] = NONE
                used += 1
            free, first = True, 2 * at * devices
            for op in range(ops):
                if grid[first + wanted[route, op]] >= 0:
                    free = False
                    break
            if free:
                first = at * devices
                for one in range(length[route] * devices):
                    if held[shape, one] > left[first + one]:
                        free = False
                        break
            if free:
                break
            at += 1
        for one in range(length[route] * devices):
            left[at * devices + one] -= held[shape, one]
        for op in range(ops):
            grid[2 * at * devices + wanted[route, op]] = first_cell[route, op] + number
        last[route] = entries[place] = at
    return grid[: 2 * devices * used], entries


@compiled
def replayed(
    a: ProblemArrays, backward: Ints, fused: Ints, grid: Ints, alone: Ints, wait: float
) -> tuple[int, Ints, Ints, Ints]:
    """Run what is in a grid, slot after slot, as early as that sequence allows.

    What meets is a pair where that saves time. A backward that is in none is of the kind that
    ``backward`` says, by stage; in a pair it may be a BW where ``fused`` says so. Its W waits for a
    gap that it fits into by the part ``wait`` of its time, or for the moment when its memory is
    needed; with 0 it runs at once. ``alone`` says, by cell and for its forward and its backward,
    whether it is in no pair and runs before (1) or after (-1) what it meets.

    Returns the makespan, first and second codes of items (-1: none), device after device with
    gaps in between, and how many items each device has.
    """
    device_of, stage_of, variant_of = a.device, a.stage_of, a.variant_of
    first_input, source, delay = a.begin, a.source, a.delay  # of a chain: one each, or none
    times, taken, net, slack, shift = a.time, a.taken, a.net, a.slack, a.shift
    pair_by, pair_num, pair_den, place_of = a.pair_by, a.pair_num, a.pair_den, a.place_on_device
    devices, cells = len(slack), len(stage_of)
    first, second = np.full(3 * cells, NONE, np.int64), np.full(3 * cells, NONE, np.int64)
    at, items = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    for stage in range(len(device_of)):
        for device in range(device_of[stage] + 1, devices):
            at[device] += 3 * a.microbatches[stage]
    busy, held = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    head, tail = np.full(devices, NONE, np.int64), np.full(devices, NONE, np.int64)
    after = np.full(cells, NONE, np.int64)  # of a cell whose W waits: the next one
    ends, device = np.zeros(2 * cells, np.int64), -1
    for place in range(len(grid) // 2 + devices):
        device = device + 1 if device + 1 < devices else 0
        last = 2 * place >= len(grid)
        one, two = (NONE, NONE) if last else (grid[2 * place], grid[2 * place + 1])
        length, turn, paired_kind = NONE, 0, B
        if one >= 0 and two >= 0 and len(pair_by):
            here, there, most = stage_of[one], stage_of[two], 0
            alone_one = times[variant_of[one], F]
            p, q = 4 * place_of[here] + F, 4 * place_of[there]
            for kind in (BW, B):
                by = pair_by[device, p, q + kind]
                if by == NO_PAIR or not (backward[there] == B if kind == B else fused[there]):
                    continue
                alone_two = times[variant_of[two], kind]
                num, den = pair_num[device, p, q + kind], pair_den[device, p, q + kind]
                together = pair_time(by, num, den, alone_one, alone_two)
                if alone_one + alone_two - together > most:
                    most = alone_one + alone_two - together
                    length, paired_kind = together, kind
            if length >= 0:
                turn = alone[two, 1] if alone[two, 1] else -alone[one, 0]
                if turn:
                    length = NONE
        while one >= 0 or two >= 0 or last:
            arrival, takes, change, time, code, other = 0, 0, 0, length, NONE, NONE
            if one >= 0 and (turn <= 0 or two < 0):
                row, at_input, code = variant_of[one], first_input[2 * one], one << shift | F
                if at_input < first_input[2 * one + 1]:
                    arrival = ends[source[at_input]] + delay[at_input]
                takes, change = taken[row, F], net[row, F]
                if length < 0:
                    time = times[row, F]
            if two >= 0 and (code < 0 or length >= 0):
                kind = backward[stage_of[two]] if length < 0 else paired_kind
                row, other = variant_of[two], two << shift | kind
                at_input = first_input[2 * two + 1]
                arrival = max(arrival, ends[source[at_input]] + delay[at_input])
                takes, change = takes + taken[row, kind], change + net[row, kind]
                if length < 0:
                    time = times[row, kind]
            while head[device] >= 0:
                cell = head[device]
                row, gap = variant_of[cell], arrival - busy[device]
                fits = not last and held[device] <= slack[device] - takes
                if fits and wait > 0 and wait * times[row, W] > gap:
                    break
                busy[device] += times[row, W]
                held[device] += net[row, W]
                first[at[device]] = cell << shift | W
                at[device], items[device] = at[device] + 1, items[device] + 1
                head[device] = after[cell]
            if last:
                break
            busy[device] = max(busy[device], arrival) + time
            held[device] += change
            first[at[device]], second[at[device]] = code, other
            if code >= 0:
                ends[2 * one], one = busy[device], NONE
            else:
                first[at[device]], second[at[device]] = other, NONE
            at[device], items[device] = at[device] + 1, items[device] + 1
            if other >= 0:
                ends[2 * two + 1] = busy[device]
                if other & 3 == B:
                    if head[device] < 0:
                        head[device] = two
                    else:
                        after[tail[device]] = two
                    tail[device] = two
                two = NONE
    return busy.max(), first, second, items
