"""Packing by its definition, item by item: what the compiled pass has to decide as well."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

from pipesat.kernels.arrays import UNLIMITED
from pipesat.kernels.packing import Jobs


def packed(
    jobs: Jobs, row: Sequence[int], backward: bool, patience: float, later: Sequence[float]
) -> tuple[list[int], int]:
    """Return the items' new row, and when all are done."""
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

    def safe(device: int, item: int) -> bool:
        """Whether the item and then the rest of the guide fit; the guide itself does."""
        if item == guide[device][0]:
            return True
        held = sum(net[done] for done in rows[device])
        for one in (item, *guide[device][: guide[device].index(item)]):
            if slacks[device] != UNLIMITED and held + taken[one] > slacks[device]:
                return False
            held += net[one]
        return True

    def chosen(device: int, now: int) -> int | None:
        """The item of least rank that is there and safe, unless a better one comes in time."""
        firsts: dict[int, int] = {}
        for item in guide[device]:
            firsts.setdefault(chain[item], item)
        known = sorted((rank[item], item) for item in firsts.values() if not waits[item])
        for place, item in known:
            if arrival[item] <= now and safe(device, item):
                limit = now + patience * length[item]
                better = [arrival[other] for r, other in known if r < place]
                return None if any(now < time < limit for time in better) else item
        return None

    while events:
        now, device = heapq.heappop(events)
        while busy[device] <= now and (item := chosen(device, now)) is not None:
            guide[device].remove(item)
            rows[device].append(item)
            busy[device] = end = now + length[item]
            heapq.heappush(events, (end, device))
            for at in range(begin[item], begin[item + 1]):
                other = followers[at]
                waits[other] -= 1
                arrival[other] = max(arrival[other], end + delay[at])
                if not waits[other]:
                    heapq.heappush(events, (arrival[other], home[other]))
    return [item for own in rows for item in own[::step]], max(busy)
