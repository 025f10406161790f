"""Packing by its definition, item by item: what the compiled pass has to decide as well."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from pipesat.kernels.arrays import UNLIMITED, pair_time
from pipesat.kernels.packing import Jobs


def packed(  # noqa: PLR0912
    jobs: Jobs, row: Sequence[int], backward: bool, patience: float, later: Sequence[float]
) -> tuple[list[int], list[int], list[int], int]:
    """Return the items' new row, who joined whom, who is fused, and when all are done."""
    step = -1 if backward else 1
    guide = [[*row[a:b]][::step] for a, b in pairwise(jobs.begin.tolist())]
    slacks, length, home = jobs.slack.tolist(), jobs.duration.tolist(), jobs.device.tolist()
    taken, net, chain = jobs.taken.tolist(), jobs.net.tolist(), jobs.chain.tolist()
    fusing, kind = jobs.joins.fusing, jobs.joins.kind.tolist()
    weight_of, fused = fusing.weight.tolist(), fusing.fused.tolist()

    def fuse(item: int) -> None:
        """Let an item be a fused backward, with a W that takes nothing and comes with it."""
        fused[item] = 1
        length[item], kind[item] = int(fusing.duration[item]), int(fusing.kind[item])
        taken[item], net[item] = int(fusing.taken[item]), int(fusing.net[item])
        taken[weight_of[item]] = net[weight_of[item]] = 0

    for item in [item for item, is_so in enumerate(fused) if is_so]:
        weight, place = weight_of[item], row.index(item)
        apart = (length[item] + length[weight], taken[item])
        no_worse = apart[0] <= fusing.duration[item] and apart[1] <= fusing.taken[item]
        fused[item] = 0
        alone = not backward and jobs.joins.mate[item] < 0
        if not (alone and no_worse and weight in row[place + 1 : place + 4]):
            fuse(item)
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
    for item, is_so in enumerate(fused):
        if is_so:
            guide[home[item]].remove(weight_of[item])
            waits[item] -= backward
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

    def room_for(device: int, item: int, other: int, at_start: int) -> bool:
        """Whether two at once and then the rest of the guide fit."""
        last = max(guide[device].index(item), guide[device].index(other))
        between = [one for one in guide[device][:last] if one not in (item, other)]
        held = sum(net[done] for done in rows[device]) + at_start
        if slacks[device] != UNLIMITED and held > slacks[device]:
            return False
        return fits(device, net[item] + net[other], *between)

    def together(device: int, item: int, other: int) -> int | None:
        """Time of two as one; ``None`` if they may not be."""
        p, q = kind[item], kind[other]
        if item == other or min(p, q) < 0 or not joins.by[device, p, q]:
            return None
        said = (int(table[device, p, q]) for table in (joins.by, joins.num, joins.den))
        return pair_time(*said, length[item], length[other])

    def forms(item: int) -> Iterator[tuple[int, int, int, int]]:
        """Kind, time, what it takes at its start, and time on its own: as it is, and fused."""
        yield kind[item], length[item], taken[item], length[item]
        weight = weight_of[item]
        waited_for = jobs.joins.mate[weight] >= 0  # by a mate
        if weight >= 0 and not (fused[item] or backward or waited_for):
            alone = length[item] + length[weight]
            yield *(int(x[item]) for x in (fusing.kind, fusing.duration, fusing.taken)), alone

    def free_mate(device: int, item: int, now: int) -> tuple[int, int, bool, list[int]] | None:
        """The free item that saves most with another, the time of both, and whether it is late.

        And which of both is fused for that.
        """
        best, found = 0, None
        firsts = {chain[one]: one for one in guide[device][::-1]}
        for other in (firsts[one] for one in chains[device] if one in firsts):
            if other == item or kind[item] < 0 or waits[other] or joins.mate[other] >= 0:
                continue
            if abs(rank[item] - rank[other]) > joins.reach:
                continue
            for (y, theirs), (x, mine) in product(enumerate(forms(other)), enumerate(forms(item))):
                if theirs[0] < 0 or not joins.by[device, mine[0], theirs[0]]:
                    continue
                tables = (joins.by, joins.num, joins.den)
                said = (int(table[device, mine[0], theirs[0]]) for table in tables)
                time = pair_time(*said, mine[1], theirs[1])
                saved, late = mine[3] + theirs[3] - time, max(0, arrival[other] - now)
                if late > joins.wait * saved or saved - late <= best:
                    continue
                if room_for(device, item, other, mine[2] + theirs[2]):
                    fresh = [one for one, is_so in ((item, x), (other, y)) if is_so]
                    best, found = saved - late, (other, time, late > 0, fresh)
        return found

    def chosen(device: int, now: int) -> tuple[int, int | None, int, list[int]] | None:
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
            both = taken[item] + taken[mate]
            if not (safe(device, item) if mate < 0 else room_for(device, item, mate, both)):
                continue
            if mate < 0 and (free := free_mate(device, item, now)) is not None:
                return None if free[2] else (item, *free[:2], free[3])
            time = length[item] if mate < 0 else together(device, item, mate)
            assert time is not None
            better = [known(device, other) for r, other in order if r < place]
            comes = any(one is not None and now < one < now + patience * time for one in better)
            return None if comes else (item, None if mate < 0 else mate, time, [])
        return None

    while events:
        now, device = heapq.heappop(events)
        while busy[device] <= now and (choice := chosen(device, now)) is not None:
            item, mate, time, fresh = choice
            for one in fresh:
                fuse(one)
                guide[device].remove(weight_of[one])
            busy[device] = end = now + time
            heapq.heappush(events, (end, device))
            if mate is not None:
                joined[item], joined[mate] = mate, item
            run = [item] if mate is None else [item, mate]
            weights = [weight_of[one] for one in run if fused[one]]
            rows[device] += weights * backward
            for one in run:
                guide[device].remove(one)
                rows[device].append(one)
                for at in range(begin[one], begin[one + 1]):
                    other = followers[at]
                    waits[other] -= 1
                    arrival[other] = max(arrival[other], end + delay[at])
                    if not waits[other]:
                        heapq.heappush(events, (arrival[other], home[other]))
            rows[device] += weights * (not backward)
    return [item for own in rows for item in own[::step]], joined, fused, max(busy)
