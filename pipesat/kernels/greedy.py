"""List scheduling by events: devices that fall idle choose what to start, alone or in pairs.

One loop runs one policy. What it may choose, and why memory is safe, is said in
:mod:`pipesat.heuristics.list_scheduling` and :mod:`pipesat.heuristics.greedy_pairs`.
"""

from __future__ import annotations

import numpy as np

from pipesat.kernels.arrays import (
    BW,
    NO_PAIR,
    NONE,
    UNLIMITED,
    B,
    Coded,
    F,
    Ints,
    ProblemArrays,
    W,
    pair_time,
)
from pipesat.kernels.compiled import compiled, compiled_meanwhile
from pipesat.kernels.events import popped, pushed


@compiled
def _all_can_finish(
    free: int,
    need: int,
    entry: int,
    after: Ints,
    stage_of: Ints,
    first_cell: Ints,
    place: Ints,
    stages: Ints,
    route: Ints,
    last: int,
    forwards: Ints,
    backwards: Ints,
    variant_of: Ints,
    taken: Ints,
    fused: Ints,
) -> bool:
    """Whether every launched microbatch, from ``entry`` on, obtains what it yet needs of a device.

    ``free`` is what those before leave, ``need`` the most that any microbatch can need; the
    device's stages end before place ``last``.
    """
    cells = len(stage_of)
    while entry < cells:
        head = stage_of[entry]
        number, own = entry - first_cell[head], route[head]
        up = down = 0
        at = place[head]
        while at < last and route[stages[at]] == own:
            up += forwards[stages[at]] > number
            down += backwards[stages[at]] <= number
            at += 1
        most = held = kept = 0
        for chunk in range(down):
            stage = stages[place[head] + chunk]
            row = variant_of[first_cell[stage] + number]
            held += taken[row, F]
            most = max(most, held + taken[row, BW if fused[stage] else B])
            if chunk < up:
                kept = held
        if most - kept > free:
            return False
        free += kept
        if free >= need:
            return True
        entry = after[entry]
    return True


@compiled_meanwhile
def scheduled(
    a: ProblemArrays,
    may_split: Ints,
    may_fuse: Ints,
    need: Ints,
    fuses: Ints,
    limit: Ints,
    patience: float,
    deep_first: bool,
    wait: float,
) -> tuple[Coded, int]:
    """Run one policy on a problem without modes; its order, and when all is done (-1: stuck).

    Parameters
    ----------
    may_split, may_fuse, fuses
        By stage: whether B and W may run apart, whether as one, and whether they do if there is
        memory for either.
    need
        By device: the most that one microbatch alone needs.
    limit
        By stage: how many microbatches may be between F and backward.
    patience
        How long a device idles for a backward, in parts of the W that it could run.
    deep_first
        Whether the later chunk's forward goes first.
    wait
        How long it idles for a partner, in parts of what the pair saves; negative: no pairs.
    """
    stage_of, variant_of, first_cell, shift = a.stage_of, a.variant_of, a.first_cell, a.shift
    device_of, previous, following, route = a.device, a.previous, a.following, a.route
    times, taken, nets, slacks = a.time, a.taken, a.net, a.slack
    first_input, delays = a.begin, a.delay  # of a chain: one each, or none
    pair_by, pair_num, pair_den, on_route = a.pair_by, a.pair_num, a.pair_den, a.place
    number_of, on_device = a.microbatches, a.place_on_device
    devices, cells, count = len(slacks), len(stage_of), len(device_of)
    # the stages of each device, and where its items are written, until they close up
    begin, base = np.zeros(devices + 1, np.int64), np.zeros(devices + 1, np.int64)
    for stage in range(count):
        begin[device_of[stage] + 1] += 1
        base[device_of[stage] + 1] += 3 * number_of[stage]
    begin, base = begin.cumsum(), base.cumsum()
    stages, place = np.empty(count, np.int64), np.empty(count, np.int64)
    for stage in range(count):
        place[stage] = begin[device_of[stage]] + on_device[stage]
        stages[place[stage]] = stage
    first, second = np.empty(3 * cells, np.int64), np.empty(3 * cells, np.int64)
    reached = base[:devices].copy()
    # by stage: how many have started, how many inputs' arrivals are known, which W's are due
    forwards, backwards = np.zeros(count, np.int64), np.zeros(count, np.int64)
    known_forwards, known_backwards = np.zeros(count, np.int64), np.zeros(count, np.int64)
    due_first, due_end = np.empty(count, np.int64), np.empty(count, np.int64)
    arrival, due = np.zeros((cells, 2), np.int64), np.empty(cells, np.int64)
    # on devices of limited memory, the launched microbatches in a ring, by their first cells there
    after, before = np.arange(cells + devices), np.arange(cells + devices)
    limited = np.zeros(count, np.int64)  # whether a stage is a route's first on such a device
    for stage in range(count):
        at, device = place[stage], device_of[stage]
        head = at == begin[device] or route[stages[at - 1]] != route[stage]
        limited[stage] = head and slacks[device] != UNLIMITED
        due_first[stage] = due_end[stage] = first_cell[stage]
        if previous[stage] < 0:
            known_forwards[stage] = number_of[stage]
    held, active = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    busy_until = np.zeros(devices, np.int64)
    heap, places = np.zeros(6 * cells + devices, np.int64), np.zeros(6 * cells + devices, np.int64)
    events, places[:devices] = devices, np.arange(devices)  # every device looks at time 0
    # what could start, in the order in which pairs are looked for; 0: the first of its queue
    most = 8 * max(1, count)
    codes, behind = np.empty(most, np.int64), np.empty(most, np.int64)
    ready, alone, length = (
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
    )
    row_of, kind_of = np.empty(most, np.int64), np.empty(most, np.int64)
    while events:
        now, device = heap[0], places[0]
        while events and heap[0] == now and places[0] == device:
            events = popped(heap, places, events)
        own, last, slack = begin[device], begin[device + 1], slacks[device]
        while busy_until[device] <= now:
            choice, partner, taking = NONE, NONE, 0
            soon = False
            if wait >= 0:
                queued = 0
                for at in range(own, last):
                    stage = stages[at]
                    for rank in range(8):  # F F B BW B BW W W
                        kind = F if rank < 2 else W if rank > 5 else BW if rank & 1 else B
                        later = (rank - 2) >> 1 if 2 <= rank < 6 else rank & 1
                        if kind == F:
                            cell = first_cell[stage] + forwards[stage] + later
                            if forwards[stage] + later >= known_forwards[stage]:
                                continue
                            ready[queued] = arrival[cell, 0]
                        elif kind == W:
                            if due_first[stage] + later >= due_end[stage]:
                                continue
                            cell = due[due_first[stage] + later]
                            ready[queued] = now
                        else:
                            cell = first_cell[stage] + backwards[stage] + later
                            if backwards[stage] + later >= known_backwards[stage]:
                                continue
                            if not (may_fuse[stage] if kind == BW else may_split[stage]):
                                continue
                            ready[queued] = arrival[cell, 1]
                        row = variant_of[cell]
                        codes[queued], row_of[queued] = cell << shift | kind, row
                        kind_of[queued] = (at - own) << 2 | kind
                        behind[queued] = later
                        length[queued] = alone[queued] = times[row, kind]
                        if kind == BW and may_split[stage]:
                            alone[queued] = min(times[row, BW], times[row, B] + times[row, W])
                        queued += 1
                best, urgency, depth = 0, 0, 0
                for one in range(queued):
                    for other in range(one + 1, queued):
                        late = max(ready[one], ready[other])
                        if late > now and (
                            soon or choice >= 0 or min(ready[one], ready[other]) > now
                        ):
                            continue
                        p, q = kind_of[one], kind_of[other]
                        by = pair_by[device, p, q]
                        if by == NO_PAIR:
                            continue
                        if behind[one] or behind[other]:
                            # only together with the first may the second of its queue start
                            phases = (p & 3 == F) == (q & 3 == F) and (p & 3 == W) == (q & 3 == W)
                            if behind[one] == behind[other] or p >> 2 != q >> 2 or not phases:
                                continue
                        cell, there = codes[one] >> shift, codes[other] >> shift
                        if cell == there:
                            continue
                        num, den = pair_num[device, p, q], pair_den[device, p, q]
                        time = pair_time(by, num, den, length[one], length[other])
                        saved = alone[one] + alone[other] - time
                        if saved <= 0 or (late > now and late - now > wait * saved):
                            continue
                        stage, stage_there = stage_of[cell], stage_of[there]
                        number = cell - first_cell[stage]
                        number_there = there - first_cell[stage_there]
                        early = deep = 0
                        if p & 3 == F:
                            deep += on_route[stage]
                        elif p & 3 != W:
                            early -= number
                        if q & 3 == F:
                            deep += on_route[stage_there]
                        elif q & 3 != W:
                            early -= number_there
                        deep = deep if deep_first else -deep
                        if late <= now and (
                            saved < best
                            or (
                                saved == best
                                and (early < urgency or (early == urgency and deep <= depth))
                            )
                        ):
                            continue
                        row, row_there = row_of[one], row_of[other]
                        if held[device] + taken[row, p & 3] + taken[row_there, q & 3] > slack:
                            continue
                        both = p & 3 == F and q & 3 == F
                        freed = 0 if both else 1
                        if p & 3 == F and number - backwards[stage] - freed >= limit[stage]:
                            continue
                        if q & 3 == F and (
                            number_there - backwards[stage_there] - freed >= limit[stage_there]
                        ):
                            continue
                        if (p & 3 == F or q & 3 == F) and slack != UNLIMITED:
                            # one forward after the other, each as if it ran alone
                            free, safe = slack - active[device], True
                            turned = p & 3 != F or (both and number_there < number)
                            launched = NONE
                            for turn in range(2 if both else 1):
                                if turned == (turn == 0):
                                    here, row = stage_there, row_there
                                else:
                                    here, row = stage, row_of[one]
                                free -= taken[row, F]
                                forwards[here] += 1
                                safe = safe and (
                                    free >= need[device]
                                    or _all_can_finish(
                                        free,
                                        need[device],
                                        after[cells + device],
                                        after,
                                        stage_of,
                                        first_cell,
                                        place,
                                        stages,
                                        route,
                                        last,
                                        forwards,
                                        backwards,
                                        variant_of,
                                        taken,
                                        may_fuse,
                                    )
                                )
                                if turn == 0 and both and previous[here] < 0:
                                    launched = there if turned else cell
                                    tail = before[cells + device]
                                    after[tail], after[launched] = launched, cells + device
                            if launched >= 0:
                                after[before[cells + device]] = cells + device
                            if p & 3 == F:
                                forwards[stage] -= 1
                            if q & 3 == F:
                                forwards[stage_there] -= 1
                            if not safe:
                                continue
                        if late > now:
                            soon = True
                        else:
                            choice, partner, taking = codes[one], codes[other], time
                            best, urgency, depth = saved, early, deep
            if choice < 0 and not soon:
                # a backward, of those whose input has been there for longest
                earliest, lowest = 0, 0
                for at in range(own, last):
                    stage = stages[at]
                    number = backwards[stage]
                    if number >= known_backwards[stage]:
                        continue
                    cell = first_cell[stage] + number
                    there = arrival[cell, 1]
                    if there > now or (
                        choice >= 0
                        and (
                            there > earliest
                            or (
                                there == earliest
                                and (
                                    number > lowest
                                    or (number == lowest and stage > stage_of[choice >> shift])
                                )
                            )
                        )
                    ):
                        continue
                    row, kind = variant_of[cell], BW if fuses[stage] else B
                    fits = held[device] + taken[row, kind] <= slack
                    if not fits and may_fuse[stage]:
                        kind = BW
                        fits = held[device] + taken[row, BW] <= slack
                    if fits:
                        choice, earliest, lowest = cell << shift | kind, there, number
                if choice < 0:  # a forward
                    for turn in range(last - own):
                        stage = stages[last - 1 - turn] if deep_first else stages[own + turn]
                        number = forwards[stage]
                        if (
                            number >= known_forwards[stage]
                            or number - backwards[stage] >= limit[stage]
                        ):
                            continue
                        cell = first_cell[stage] + number
                        if arrival[cell, 0] > now:
                            continue
                        if slack != UNLIMITED:
                            more = taken[variant_of[cell], F]
                            free = slack - active[device] - more
                            if held[device] + more > slack:
                                continue
                            if free < need[device]:
                                forwards[stage] += 1
                                safe = _all_can_finish(
                                    free,
                                    need[device],
                                    after[cells + device],
                                    after,
                                    stage_of,
                                    first_cell,
                                    place,
                                    stages,
                                    route,
                                    last,
                                    forwards,
                                    backwards,
                                    variant_of,
                                    taken,
                                    may_fuse,
                                )
                                forwards[stage] -= 1
                                if not safe:
                                    continue
                        choice = cell << shift | F
                        break
                if choice < 0:  # the oldest W, if no backward is about to arrive
                    oldest = 0
                    for at in range(own, last):
                        stage = stages[at]
                        if due_first[stage] < due_end[stage]:
                            cell = due[due_first[stage]]
                            number = cell - first_cell[stage]
                            if (
                                choice < 0
                                or number < oldest
                                or (number == oldest and stage < stage_of[choice >> shift])
                            ):
                                choice, oldest = cell << shift | W, number
                    if choice >= 0 and patience > 0:
                        idle = patience * times[variant_of[choice >> shift], W]
                        for at in range(own, last):
                            stage = stages[at]
                            if backwards[stage] < known_backwards[stage]:
                                gap = arrival[first_cell[stage] + backwards[stage], 1] - now
                                if gap > 0 and gap < idle:
                                    choice = NONE
                                    break
                if choice >= 0:
                    taking = times[variant_of[choice >> shift], choice & 3]
            if choice < 0:
                break
            end = now + taking
            first[reached[device]], second[reached[device]] = choice, partner
            reached[device] += 1
            busy_until[device] = end
            events = pushed(heap, places, events, end, device)
            if partner >= 0:  # the lower microbatch first
                cell, there = choice >> shift, partner >> shift
                if there - first_cell[stage_of[there]] < cell - first_cell[stage_of[cell]]:
                    choice, partner = partner, choice
            while choice >= 0:
                cell, kind = choice >> shift, choice & 3
                stage, row = stage_of[cell], variant_of[cell]
                number = cell - first_cell[stage]
                held[device] += nets[row, kind]
                event, there = NONE, 0  # whose input is there when it ends
                if kind == F:
                    forwards[stage] += 1
                    active[device] += taken[row, F]
                    here = stage if previous[stage] < 0 else NONE
                    while here >= 0:  # it is under way on every device of its route
                        if limited[here]:
                            node, ring = first_cell[here] + number, cells + device_of[here]
                            tail = before[ring]
                            after[tail] = before[ring] = node
                            before[node], after[node] = tail, ring
                        here = following[here]
                    here = following[stage]
                    if here < 0:
                        event, there = stage, 1
                        known_backwards[stage] += 1
                    else:
                        event = here
                        known_forwards[here] += 1
                elif kind == W:
                    due_first[stage] += 1
                else:
                    backwards[stage] += 1
                    active[device] -= taken[row, F]
                    if limited[stage]:
                        after[before[cell]], before[after[cell]] = after[cell], before[cell]
                    if kind == B:
                        due[due_end[stage]] = cell
                        due_end[stage] += 1
                    event, there = previous[stage], 1
                    if event >= 0:
                        known_backwards[event] += 1
                if event >= 0:
                    cell, home = first_cell[event] + number, device_of[event]
                    time = end + delays[first_input[2 * cell + there]]
                    arrival[cell, there] = time
                    # a device that is busy for longer looks at its end
                    if time > busy_until[home] or busy_until[home] <= now:
                        events = pushed(heap, places, events, time, home)
                choice, partner = partner, NONE
    if (backwards < number_of).any():
        return Coded(first[:0], second[:0], begin), NONE
    at = 0
    for device in range(devices):
        begin[device] = at
        for item in range(base[device], reached[device]):
            first[at], second[at] = first[item], second[item]
            at += 1
    begin[devices] = at
    return Coded(first[:at], second[:at], begin), busy_until.max()
