"""Packing by its definition, item by item: what the compiled pass has to decide as well."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

from pipesat.kernels.arrays import UNLIMITED, pair_time
from pipesat.kernels.packing import Jobs


def packed(
    jobs: Jobs, row: Sequence[int], backward: bool, patience: float, later: Sequence[float]
) -> tuple[list[int], list[int], int]:
    """Return the items' new row, who joined whom, and when all are done."""
    step = -1 if backward else 1
    guide = [[*row[a:b]][::step] for a, b in pairwise(jobs.begin.tolist())]
    slacks, length, home = jobs.slack.tolist(), jobs.duration.tolist(), jobs.device.tolist()
    taken, net, chain = jobs.taken.tolist(), jobs.net.tolist(), jobs.chain.tolist()
    if backward:
        taken, net = [t - n for t, n in zip(taken, net, strict=True)], [-n for n in net]
    most = [*taken]  # of a pair, both at the start of the first
    for own in guide:
        for one, other in pairwise(own):
            most[one] += taken[other] * (jobs.joins.mate[one] == other)
    waiting, awaited = (jobs.outputs, jobs.inputs)[::step]
    begin, followers, delay = waiting.begin.tolist(), waiting.item.tolist(), waiting.delay.tolist()
    waits = [b - a for a, b in pairwise(awaited.begin.tolist())]
    rank = {item: at + later[item] for own in guide for at, item in enumerate(own)}
    arrival = [0] * len(length)
    rows: list[list[int]] = [[] for _ in guide]
    busy = [0] * len(guide)
    events = [(0, device) for device in range(len(guide))]

    joins, joined = jobs.joins, [-1] * len(length)
    chains = [[*dict.fromkeys(chain[item] for item in own[::-1])] for own in guide]

    def safe(device: int, item: int) -> bool:
        """Whether the item and then the rest of the guide fit; the guide itself does."""
        if item == guide[device][0]:
            return True
        return fits(device, 0, item, *guide[device][: guide[device].index(item)])

    def known(device: int, item: int) -> int | None:
        """When the first of a chain may start, with its mate; ``None`` if that is not known."""
        mate = int(joins.mate[item])
        if waits[item] or mate < 0:
            return None if waits[item] else arrival[item]
        others = (one for one in guide[device] if chain[one] == chain[mate] and one != item)
        return None if waits[mate] or next(others) != mate else max(arrival[item], arrival[mate])

    def fits(device: int, more: int, *items: int) -> bool:
        """Whether items fit one by one, while so much more is held than by what is done."""
        held = more + sum(net[done] for done in rows[device])
        for one in items:
            if slacks[device] != UNLIMITED and held + most[one] > slacks[device]:
                return False
            held += net[one]
        return True

    def room_for(device: int, item: int, other: int) -> bool:
        """Whether two at once and then the rest of the guide fit."""
        last = max(guide[device].index(item), guide[device].index(other))
        between = [one for one in guide[device][:last] if one not in (item, other)]
        held = sum(net[done] for done in rows[device]) + taken[item] + taken[other]
        if slacks[device] != UNLIMITED and held > slacks[device]:
            return False
        return fits(device, net[item] + net[other], *between)

    def together(device: int, item: int, other: int) -> int | None:
        """Time of two as one; ``None`` if they may not be."""
        p, q = joins.kind[item], joins.kind[other]
        if item == other or min(p, q) < 0 or not joins.by[device, p, q]:
            return None
        said = (int(table[device, p, q]) for table in (joins.by, joins.num, joins.den))
        return pair_time(*said, length[item], length[other])

    def free_mate(device: int, item: int, now: int) -> tuple[int, int, bool] | None:
        """The free item that saves most with another, the time of both, and whether it is late."""
        best, found = 0, None
        firsts = {chain[one]: one for one in guide[device][::-1]}
        for other in (firsts[one] for one in chains[device] if one in firsts):
            time = together(device, item, other)
            if time is None or waits[other] or joins.mate[other] >= 0:
                continue
            saved, late = length[item] + length[other] - time, max(0, arrival[other] - now)
            if late > joins.wait * saved or abs(rank[item] - rank[other]) > joins.reach:
                continue
            if saved - late > best and room_for(device, item, other):
                best, found = saved - late, (other, time, late > 0)
        return found

    def chosen(device: int, now: int) -> tuple[int, int | None, int] | None:
        """The item of least rank that is there and safe, its mate, and the time that they take.

        None if a better item or a mate comes in time.
        """
        firsts: dict[int, int] = {}
        for item in guide[device]:
            firsts.setdefault(chain[item], item)
        order = sorted((rank[item], item) for item in firsts.values())
        for place, item in order:
            there, mate = known(device, item), int(joins.mate[item])
            if there is None or there > now:
                continue
            if not (safe(device, item) if mate < 0 else room_for(device, item, mate)):
                continue
            if mate < 0 and (free := free_mate(device, item, now)) is not None:
                return None if free[2] else (item, *free[:2])
            time = length[item] if mate < 0 else together(device, item, mate)
            assert time is not None
            better = [known(device, other) for r, other in order if r < place]
            comes = any(one is not None and now < one < now + patience * time for one in better)
            return None if comes else (item, None if mate < 0 else mate, time)
        return None

    while events:
        now, device = heapq.heappop(events)
        while busy[device] <= now and (choice := chosen(device, now)) is not None:
            item, mate, time = choice
            busy[device] = end = now + time
            heapq.heappush(events, (end, device))
            if mate is not None:
                joined[item], joined[mate] = mate, item
            for one in (item,) if mate is None else (item, mate):
                guide[device].remove(one)
                rows[device].append(one)
                for at in range(begin[one], begin[one + 1]):
                    other = followers[at]
                    waits[other] -= 1
                    arrival[other] = max(arrival[other], end + delay[at])
                    if not waits[other]:
                        heapq.heappush(events, (arrival[other], home[other]))
    return [item for own in rows for item in own[::step]], joined, max(busy)
