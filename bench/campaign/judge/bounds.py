"""Bounds that need no search: what a device has to do, and one microbatch's way."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import ceil

from campaign.judge.reading import Pipe


def least_load(pipe: Pipe, device: int) -> int:
    """Least compute of a device: of every op its own time, or half of its shortest pair's."""
    total = Fraction(0)
    for route, microbatches in pipe.routes:
        for s in route:
            if pipe.stages[s].device != device:
                continue
            least = [
                min(
                    pipe.least_share(s, "F", a) + sum(pipe.least_share(s, k, a) for k in way)
                    for a in row.values()
                    for way in a.backwards
                )
                for row in pipe.ways[s]
            ]
            total += sum(least[pipe.class_of(s, m)] for m in range(microbatches))
    return ceil(total)


def one_way(pipe: Pipe) -> int:
    """Length of the longest way of one microbatch, through all forwards and back to some stage."""
    first = {}  # one microbatch of each class
    for number, (_, microbatches) in enumerate(pipe.routes):
        classes = pipe.classes[number] or (0,) * microbatches
        first[number] = {kind: m for m, kind in reversed([*enumerate(classes)])}
    return max(
        _way(pipe, route, m)
        for number, (route, _) in enumerate(pipe.routes)
        for m in first[number].values()
    )


def _way(pipe: Pipe, route: tuple[int, ...], m: int) -> int:
    longest = 0
    links = list(pairwise(route))
    there = sum(pipe.delay_of(*link, m)[0] for link in links)
    there += sum(min(pipe.least(s, "F", a) for a in pipe.modes(s, m).values()) for s in route)
    for position in reversed(range(len(route))):
        s = route[position]
        ways = [
            [pipe.least(s, kind, a) for kind in way]
            for a in pipe.modes(s, m).values()
            for way in a.backwards
        ]
        longest = max(longest, there + min(map(sum, ways)))
        there += min(way[0] for way in ways)
        if position:
            there += pipe.delay_of(route[position - 1], route[position], m)[1]
    return longest


def lower_bound(pipe: Pipe, objective: str) -> int:
    """No valid schedule is below this."""
    load = max(least_load(pipe, device) for device in range(pipe.devices))
    return load if objective == "span" else max(load, one_way(pipe))


def never_fits(pipe: Pipe) -> bool:
    """Whether a single op alone already needs more than its device has."""
    for device, capacity in enumerate(pipe.memory):
        if capacity is None:
            continue
        room = capacity - pipe.static[device]
        if room < 0:
            return True
        for stage, rows in zip(pipe.stages, pipe.ways, strict=True):
            if stage.device == device and any(
                all(a.F and a.held_F > room for a in row.values()) for row in rows
            ):
                return True
    return False
