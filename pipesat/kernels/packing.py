"""Packing: the items of an order run greedily, each as early as its device can take it safely."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesat.kernels.arrays import NO_PAIR, NONE, UNLIMITED, Floats, Ints, pair_time
from pipesat.kernels.compiled import compiled, compiled_meanwhile
from pipesat.kernels.events import popped, pushed


class Waits(NamedTuple):
    """Who waits: from ``begin[i]`` to ``begin[i + 1]`` what item i is tied to, and the delays."""

    begin: Ints
    item: Ints
    delay: Ints


class Fusing(NamedTuple):
    """What backwards that may be either are if fused; :class:`Jobs` has them split.

    Attributes
    ----------
    weight
        By item: its W, which takes nothing then; -1: it is no such backward.
    fused
        By item, whether it is fused, 1 or 0.
    kind, duration, taken, net
        By item, of a fused one.
    """

    weight: Ints
    fused: Ints
    kind: Ints
    duration: Ints
    taken: Ints
    net: Ints


class Joins(NamedTuple):
    """Which items run as one, which others an idle device may join, and when.

    Attributes
    ----------
    mate
        By item, the one with which it runs as one, -1: it is free. Two such stand beside each other
        in the guide.
    kind
        By item: its stage's place on the device times 4, plus its kind; -1: it joins none.
    by, num, den
        By device and two kinds: how the time of both is said, as ``pair_by`` and so on.
    reach
        Places of the guide that may lie between two that are free.
    wait
        How long a device waits for the second one, in parts of what the two save.
    fusing
        Backwards that become fused where they join others so.
    """

    mate: Ints
    kind: Ints
    by: Ints
    num: Ints
    den: Ints
    reach: float
    wait: float
    fusing: Fusing


class Jobs(NamedTuple):
    """Items as numbers; in a row of them those of device d are at ``begin[d]`` to ``begin[d + 1]``.

    Attributes
    ----------
    slack
        By device, :data:`pipesat.kernels.arrays.UNLIMITED` where it has no capacity.
    device, duration, taken, net
        By item; ``taken`` is memory that it takes at its start, ``net`` what is held more after it.
    chain
        By item: items of one chain, all of one device, keep their order.
    inputs, outputs
        What each item waits for, and what waits for it.
    joins
        Which of them may run as one.
    """

    begin: Ints
    slack: Ints
    device: Ints
    duration: Ints
    taken: Ints
    net: Ints
    chain: Ints
    inputs: Waits
    outputs: Waits
    joins: Joins


@compiled
def _all_fit(
    chosen: int, mate: int, held: int, slack: int, most: Ints, nets: Ints, after: Ints, origin: int
) -> bool:
    """Whether the rest of their device's guide fits after two items."""
    extra, left, other = nets[chosen] + nets[mate], 2, after[origin]
    while left:
        if other in (chosen, mate):
            left -= 1
        elif held + most[other] > slack - extra:
            return False
        else:
            held += nets[other]
        other = after[other]
    return True


@compiled
def _leave(item: int, after: Ints, before: Ints, head: Ints, chain: Ints, links: Ints) -> None:
    """Take an item out of its device's guide and out of its chain."""
    after[before[item]], before[after[item]] = after[item], before[item]
    following, previous = links[item]
    if following >= 0:
        links[following, 1] = previous
    if previous >= 0:
        links[previous, 0] = following
    else:
        head[chain[item]] = following


@compiled
def _may_fuse(item: int, fusing: Fusing, fused: Ints, mates: Ints) -> bool:
    """Whether a split backward may be fused instead: no mate waits for its W."""
    weight = fusing.weight[item]
    return weight >= 0 and not fused[item] and mates[weight] < 0


@compiled_meanwhile
def pack(
    jobs: Jobs, row: Ints, backward: bool, patience: float, later: Floats
) -> tuple[Ints, Ints, Ints, int]:
    """Run the items of a row, the guide, greedily; who joined whom, who is fused, and the end.

    Of the first items of its chains, an idle device takes the first one of the guide that is there
    and safe; an item seems ``later`` than its place by so many places. It waits instead for one
    that comes before it if that is known to arrive within ``patience`` times what the other takes.
    Safe is what the rest of the guide fits into memory after. If ``backward``, time runs from the
    end: what waits is waited for, and what an end freed is taken at a start. A free item is joined
    by the free one with which it saves most, less what it has to wait for that. Forward in time,
    free backwards that may be either are fused in pairs alone, or where that is shorter.
    """
    begins, slacks, device_of, durations = jobs.begin, jobs.slack, jobs.device, jobs.duration.copy()
    taken, nets, chain_of, awaited = (
        jobs.taken.copy(),
        jobs.net.copy(),
        jobs.chain,
        jobs.inputs.begin,
    )
    following, waiting, delays = jobs.outputs.begin, jobs.outputs.item, jobs.outputs.delay
    mates, kinds, reach, waits_for = (
        jobs.joins.mate,
        jobs.joins.kind.copy(),
        jobs.joins.reach,
        jobs.joins.wait,
    )
    pair_by, nums, dens = jobs.joins.by, jobs.joins.num, jobs.joins.den
    fusing, fused = jobs.joins.fusing, jobs.joins.fusing.fused.copy()
    for place in range(len(row)):
        item = row[place]
        if not fused[item]:
            continue
        weight = fusing.weight[item]
        # split, it is as short and holds no more where its W comes at once, but for a mate
        split = (
            durations[item] + durations[weight] <= fusing.duration[item]
            and taken[item] <= fusing.taken[item]
            and weight in row[place + 1 : place + 4]
        )
        fused[item] = backward or mates[item] >= 0 or not split
        if fused[item]:
            durations[item], kinds[item] = fusing.duration[item], fusing.kind[item]
            taken[item], nets[item] = fusing.taken[item], fusing.net[item]
            taken[weight] = nets[weight] = 0
    if backward:
        taken, nets, awaited = taken - nets, -nets, following
        following, waiting, delays = jobs.inputs.begin, jobs.inputs.item, jobs.inputs.delay
    items, devices = len(row), len(begins) - 1
    waits, arrival, rank = np.diff(awaited), np.zeros(items, np.int64), later.copy()
    chains = chain_of.max() + 1
    # the rest of each guide, linked both ways: at the end, the devices' first items
    after, before = np.empty(items + devices, np.int64), np.empty(items + devices, np.int64)
    most_held = taken.copy()  # at an item's start, with its mate's if that comes after it
    links = np.full((items, 2), NONE, np.int64)  # the next and the last one of the chain
    head = np.full(chains, NONE, np.int64)
    own_chains, first_chain = np.empty(chains, np.int64), np.zeros(devices + 1, np.int64)
    for device in range(devices):
        begin, end = begins[device], begins[device + 1]
        number, other = first_chain[device], items + device
        for place in range(end - begin - 1, -1, -1):
            item = row[end - 1 - place if backward else begin + place]
            chain = chain_of[item]
            if head[chain] < 0:
                own_chains[number] = chain
                number += 1
            else:
                links[head[chain], 1] = item
            links[item, 0], head[chain] = head[chain], item
            rank[item] += place
            if other == mates[item] and other < items:
                most_held[item] += taken[other]
            after[item], before[other] = other, item
            other = item
        after[items + device], before[other] = other, items + device
        first_chain[device + 1] = number
    for item in range(items):
        if fused[item]:  # its W comes with it
            _leave(fusing.weight[item], after, before, head, chain_of, links)
            waits[item] -= backward
    found, done = np.empty(items, np.int64), np.zeros(devices, np.int64)
    joined = np.full(items, NONE, np.int64)
    held, busy_until = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    times, places = np.zeros(2 * items + devices, np.int64), np.arange(2 * items + devices)
    events = devices  # every device looks at time 0
    while events:
        now, device = times[0], places[0]
        events = popped(times, places, events)
        slack, origin = slacks[device], items + device
        tried_rank, tried = -np.inf, NONE  # the last one that was not safe
        while busy_until[device] <= now:
            chosen, least = NONE, np.inf
            for at in range(first_chain[device], first_chain[device + 1]):
                item = head[own_chains[at]]
                if item >= 0 and waits[item] == 0 and arrival[item] <= now:
                    mate = mates[item]
                    if mate >= 0 and (
                        waits[mate] > 0
                        or arrival[mate] > now
                        or (head[chain_of[mate]] != mate and links[item, 0] != mate)
                    ):
                        continue
                    own_rank = rank[item]
                    if own_rank < tried_rank or (own_rank == tried_rank and item <= tried):
                        continue
                    if own_rank < least or (own_rank == least and item < chosen) or chosen < 0:
                        chosen, least = item, own_rank
            if chosen < 0:
                break
            mate, most, length, wait = mates[chosen], 0, durations[chosen], False
            fuse, fuse_mate = 0, 0
            if mate >= 0:
                p, q = kinds[chosen], kinds[mate]
                by, num, den = pair_by[device, p, q], nums[device, p, q], dens[device, p, q]
                length = pair_time(by, num, den, durations[chosen], durations[mate])
                both = held[device] + taken[chosen] + taken[mate]
                if both > slack or not _all_fit(
                    chosen, mate, held[device], slack, most_held, nets, after, origin
                ):
                    tried_rank, tried = least, chosen
                    continue
            elif slack != UNLIMITED and after[origin] != chosen:
                safe, limit, extra = held[device], slack, nets[chosen]
                fits = safe + taken[chosen] <= limit
                if fits and extra > 0:
                    other = after[origin]
                    while other != chosen:
                        if safe + most_held[other] > limit - extra:
                            fits = False
                            break
                        safe += nets[other]
                        other = after[other]
                if not fits:
                    tried_rank, tried = least, chosen
                    continue
            for at in range(first_chain[device], first_chain[device + 1]):
                item = head[own_chains[at]]
                if mates[chosen] >= 0 or kinds[chosen] < 0:
                    break
                if item < 0 or item == chosen or waits[item] > 0 or mates[item] >= 0:
                    continue
                if abs(rank[item] - least) > reach:
                    continue
                for forms in range(4):  # of either, as it is or fused
                    one, other = forms & 1, forms >> 1
                    if (one and (backward or not _may_fuse(chosen, fusing, fused, mates))) or (
                        other and (backward or not _may_fuse(item, fusing, fused, mates))
                    ):
                        continue
                    p = fusing.kind[chosen] if one else kinds[chosen]
                    q = fusing.kind[item] if other else kinds[item]
                    if q < 0 or pair_by[device, p, q] == NO_PAIR:
                        continue
                    alone, own_taken = durations[chosen], taken[chosen]
                    saved, its_taken = durations[chosen] + durations[item], taken[item]
                    there = durations[item]
                    if one:
                        alone, own_taken = fusing.duration[chosen], fusing.taken[chosen]
                        saved += durations[fusing.weight[chosen]]
                    if other:
                        there, its_taken = fusing.duration[item], fusing.taken[item]
                        saved += durations[fusing.weight[item]]
                    by, num, den = pair_by[device, p, q], nums[device, p, q], dens[device, p, q]
                    time = pair_time(by, num, den, alone, there)
                    saved, late = saved - time, max(0, arrival[item] - now)
                    if late > waits_for * saved or saved - late <= most:
                        continue
                    # what is fused here frees more than is looked at
                    both = held[device] + own_taken + its_taken
                    if both <= slack and _all_fit(
                        chosen, item, held[device], slack, most_held, nets, after, origin
                    ):
                        mate, most, length, wait = item, saved - late, time, late > 0
                        fuse, fuse_mate = one, other
            if mate == mates[chosen]:  # none that was free
                sooner = now + patience * length
                for at in range(first_chain[device], first_chain[device + 1]):
                    item = head[own_chains[at]]
                    if item >= 0 and waits[item] == 0 and rank[item] < least:
                        other, there = mates[item], arrival[item]
                        if other >= 0:
                            first = head[chain_of[other]] == other or links[item, 0] == other
                            known = first and waits[other] == 0
                            there = max(there, arrival[other]) if known else now
                        wait = wait or now < there < sooner
            if wait:
                break
            end = now + length
            busy_until[device] = end
            events = pushed(times, places, events, end, device)
            if mate >= 0:
                joined[chosen], joined[mate] = mate, chosen
            for one, whole in ((chosen, fuse), (mate, fuse_mate)):
                if whole:
                    fused[one], nets[one] = 1, fusing.net[one]
                    _leave(fusing.weight[one], after, before, head, chain_of, links)
            step = -1 if backward else 1
            place = (begins[device + 1] - 1 if backward else begins[device]) + step * done[device]
            for turn in range(4):  # the W's of fused backwards come last
                one = mate if turn & 1 else chosen
                weight = (turn > 1) != backward
                if one < 0 or (weight and not fused[one]):
                    continue
                found[place] = fusing.weight[one] if weight else one
                place += step
                done[device] += 1
            while chosen >= 0:
                held[device] += nets[chosen]
                _leave(chosen, after, before, head, chain_of, links)
                for at in range(following[chosen], following[chosen + 1]):
                    item = waiting[at]
                    arrival[item] = max(arrival[item], end + delays[at])
                    waits[item] -= 1
                    there, home = arrival[item], device_of[item]
                    # a device that is busy for longer looks at its end
                    if waits[item] == 0 and (there > busy_until[home] or busy_until[home] <= now):
                        events = pushed(times, places, events, there, home)
                chosen, mate = mate, NONE
            tried_rank, tried = -np.inf, NONE
    return found, joined, fused, busy_until.max()


@compiled
def over_slacks(jobs: Jobs, row: Ints) -> int:
    """Return the first device on which a row exceeds the slack, item by item; -1: all fit."""
    taken, nets, mates = jobs.taken.copy(), jobs.net.copy(), jobs.joins.mate
    fusing = jobs.joins.fusing
    for item in range(len(row)):
        if fusing.fused[item]:
            weight = fusing.weight[item]
            taken[item], nets[item] = fusing.taken[item], fusing.net[item]
            taken[weight] = nets[weight] = 0
    for device in range(len(jobs.begin) - 1):
        held = 0
        for place in range(jobs.begin[device], jobs.begin[device + 1]):
            item = row[place]
            most = held + taken[item]
            if mates[item] >= 0 and place + 1 < len(row) and row[place + 1] == mates[item]:
                most += taken[mates[item]]
            if most > jobs.slack[device]:
                return device
            held += nets[item]
    return NONE
