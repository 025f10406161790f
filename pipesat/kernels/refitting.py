"""Refitting: an order's F and B kept, but for gaps, and its W placed by the true times."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pipesat.kernels.arrays import NONE, B, Coded, ProblemArrays, W
from pipesat.kernels.compiled import compiled_meanwhile

_FAR: Final = 64  # overtaken ops, at most


class Refitted(NamedTuple):
    """An order, when its last op ended, and whether it kept within slack.

    Timed as early as possible, the order may end sooner.
    """

    order: Coded
    end: int
    fits: bool


@compiled_meanwhile
def refitted(a: ProblemArrays, order: Coded, patience: float) -> Refitted:
    """Run an order without pairs anew within the slack.

    ``patience`` is the least gap that a W is put into, in parts of the W. The result does not fit
    where the F's and B's of a row need more than the slack though every W follows its B.
    """
    firsts, begins = order.first, order.begin
    variant_of, stage_of, shift = a.variant_of, a.stage_of, a.shift
    first_input, sources, delays = a.begin, a.source, a.delay
    times, taken, net, slacks = a.time, a.taken, a.net, a.slack
    modes, place_on = (1 << a.shift) - 1, a.place_on_device
    devices = len(begins) - 1
    ahead, row = np.empty(len(firsts), np.int64), np.zeros(devices + 1, np.int64)  # -1: overtook
    begin, most_stages = np.zeros(devices + 1, np.int64), np.int64(1)
    for device in range(devices):
        kept, backwards = row[device], 0
        for at in range(begins[device], begins[device + 1]):
            kind = firsts[at] & 3
            if kind != W:
                ahead[kept] = firsts[at]
                kept += 1
                backwards += kind == B
        row[device + 1] = kept
        begin[device + 1] = begin[device] + kept - row[device] + backwards
    series = np.zeros(devices, np.int64)
    for stage in range(len(a.device)):
        series[a.device[stage]] += 2
        most_stages = max(most_stages, place_on[stage] + 1)
    items, count = np.empty(begin[devices], np.int64), begin[:devices].copy()
    due, oldest, newest = np.empty(begin[devices], np.int64), begin[:devices].copy(), begin.copy()
    position, used = row[:devices].copy(), np.zeros(devices, np.int64)
    freeable = np.zeros(devices, np.int64)  # part of what is used that due W would free
    ends = np.full(2 * len(variant_of), NONE, np.int64)  # by event
    look = np.zeros(devices, np.int64)  # when a device is asked next; -1: not before it is woken
    asleep_for = np.full(devices, NONE, np.int64)
    seen, turn = np.zeros(4 * most_stages, np.int64), 0
    latest, fits = 0, True
    while True:
        device = NONE
        for other in range(devices):
            if look[other] >= 0 and (device < 0 or look[other] < look[device]):
                device = other
        if device < 0:
            break
        now, last = look[device], row[device + 1]
        look[device] = NONE
        while position[device] < last and ahead[position[device]] < 0:
            position[device] += 1
        here = position[device]
        chosen, runs_weight = NONE, oldest[device] < newest[device]
        if here < last:
            code = ahead[here]
            cell, kind = code >> shift, code & 3
            variant = variant_of[cell] + ((code & modes) >> 2)
            own = 2 * cell + (kind & 1)
            event, delay, arrival = NONE, 0, 0
            for one in range(first_input[own], first_input[own + 1]):
                if arrival >= 0:
                    event, delay = sources[one], delays[one]
                    arrival = max(arrival, ends[event] + delay) if ends[event] >= 0 else NONE
            if 0 <= arrival <= now:
                if used[device] + taken[variant, kind] <= slacks[device]:
                    chosen, runs_weight = code, False
                elif not runs_weight:
                    chosen, fits = code, False
                if chosen >= 0:
                    position[device] += 1
            else:
                # bound on the time until an input arrives whose op has not begun
                gap = arrival - now
                if arrival < 0:
                    gap = times[variant_of[event >> 1], event & 1] + delay
                # the first op in the row that is ready, fills no more than the gap, and fits
                now_free = slacks[device] - used[device]
                free = now_free + freeable[device]
                turn += 1
                different = held = most = 0  # held if each W ran right after its B
                for at in range(here, min(here + _FAR, last)):
                    code = ahead[at]
                    if code < 0:
                        continue
                    cell, kind = code >> shift, code & 3
                    variant = variant_of[cell] + ((code & modes) >> 2)
                    key = place_on[stage_of[cell]] * 4 + kind
                    more = net[variant, kind] + (net[variant, W] if kind == B else 0)
                    if at > here and seen[key] != turn and times[variant, kind] <= gap:
                        ready, own = True, 2 * cell + (kind & 1)
                        for one in range(first_input[own], first_input[own + 1]):
                            end = ends[sources[one]]
                            ready = ready and 0 <= end <= now - delays[one]
                        small = taken[variant, kind] <= now_free
                        if ready and small and (more <= 0 or most + more <= free):
                            chosen, ahead[at] = code, NONE
                            break
                    if seen[key] != turn:
                        seen[key] = turn
                        different += 1
                    if different == series[device]:
                        break  # every later op has one of its kind before it
                    most = max(most, held + taken[variant, kind])
                    held += more
                if chosen >= 0:
                    runs_weight = False
                elif runs_weight:
                    code = due[oldest[device]]
                    variant = variant_of[code >> shift] + ((code & modes) >> 2)
                    runs_weight = gap >= patience * times[variant, W]
                if chosen < 0 and not runs_weight:
                    if arrival >= 0:
                        look[device] = arrival
                    else:
                        asleep_for[device] = event
        if runs_weight:
            chosen = due[oldest[device]]
            oldest[device] += 1
        if chosen < 0:
            continue
        cell, kind = chosen >> shift, chosen & 3
        variant = variant_of[cell] + ((chosen & modes) >> 2)
        end = now + times[variant, kind]
        used[device] += net[variant, kind]
        if kind == W:
            freeable[device] += net[variant, W]
        else:
            if kind == B:
                due[newest[device]] = chosen + 1
                newest[device] += 1
                freeable[device] -= net[variant, W]
            event = 2 * cell + (kind & 1)
            ends[event] = end
            for other in range(devices):
                if asleep_for[other] == event:
                    asleep_for[other], look[other] = NONE, now
        items[count[device]] = chosen
        count[device] += 1
        look[device] = end
        latest = max(latest, end)
    return Refitted(Coded(items, np.full(len(items), NONE, np.int64), begin), latest, fits)
