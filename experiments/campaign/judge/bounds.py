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
            if pipe.stages[s].device == device:
                ways = [sum(pipe.least_share(s, k) for k in way) for way in pipe.backwards(s)]
                total += microbatches * (pipe.least_share(s, "F") + min(ways))
    return ceil(total)


def one_way(pipe: Pipe) -> int:
    """Length of the longest way of one microbatch, through all forwards and back to some stage."""
    longest = 0
    for route, _ in pipe.routes:
        links = list(pairwise(route))
        there = sum(pipe.least(s, "F") for s in route) + sum(pipe.delay[link][0] for link in links)
        for position in reversed(range(len(route))):
            s = route[position]
            ways = [[pipe.least(s, kind) for kind in way] for way in pipe.backwards(s)]
            longest = max(longest, there + min(map(sum, ways)))
            there += min(way[0] for way in ways)
            if position:
                there += pipe.delay[route[position - 1], route[position]][1]
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
        if pipe.static[device] > capacity:
            return True
        for stage in pipe.stages:
            if stage.device == device and stage.F and pipe.static[device] + stage.held_F > capacity:
                return True
    return False
