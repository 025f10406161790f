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

    def fits(device: int, more: int, *items: int) -> bool:
        """Whether items fit one by one, while so much more is held than by what is done."""
        held = more + sum(net[done] for done in rows[device])
        for one in items:
            if slacks[device] != UNLIMITED and held + taken[one] > slacks[device]:
                return False
            held += net[one]
        return True

    def mate_of(device: int, item: int, now: int) -> tuple[int, int, bool] | None:
        """The item that saves most with another, the time of both, and whether it is late."""
        best, found = 0, None
        firsts = {chain[one]: one for one in guide[device][::-1]}
        for other in (firsts[one] for one in chains[device] if one in firsts):
            p, q = joins.kind[item], joins.kind[other]
            if other == item or waits[other] or min(p, q) < 0 or not joins.by[device, p, q]:
                continue
            said = (int(table[device, p, q]) for table in (joins.by, joins.num, joins.den))
            together = pair_time(*said, length[item], length[other])
            saved, late = length[item] + length[other] - together, max(0, arrival[other] - now)
            if late > joins.wait * saved or abs(rank[item] - rank[other]) > joins.reach:
                continue
            both = guide[device].index(item), guide[device].index(other)
            between = [one for one in guide[device][: max(both)] if one not in (item, other)]
            held = sum(net[done] for done in rows[device]) + taken[item] + taken[other]
            if slacks[device] != UNLIMITED and held > slacks[device]:
                continue
            if saved - late > best and fits(device, net[item] + net[other], *between):
                best, found = saved - late, (other, together, late > 0)
        return found

    def chosen(device: int, now: int) -> tuple[int, int | None, int] | None:
        """The item of least rank that is there and safe, its mate, and the time that they take.

        None if a better item or a mate comes in time.
        """
        firsts: dict[int, int] = {}
        for item in guide[device]:
            firsts.setdefault(chain[item], item)
        known = sorted((rank[item], item) for item in firsts.values() if not waits[item])
        for place, item in known:
            if arrival[item] <= now and safe(device, item):
                if (mate := mate_of(device, item, now)) is not None:
                    return None if mate[2] else (item, *mate[:2])
                limit = now + patience * length[item]
                better = [arrival[other] for r, other in known if r < place]
                comes = any(now < time < limit for time in better)
                return None if comes else (item, None, length[item])
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
