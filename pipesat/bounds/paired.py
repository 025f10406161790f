"""Closed-form bounds of problems in which ops may run in pairs, device by device.

The ways of microbatches are those of plain problems, with the least times that ops can last on
them; what a device does meanwhile is counted (:mod:`pipesat.bounds.paired_device`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pipesat.bounds.area import area_over_room
from pipesat.bounds.pair_times import after_last_forward, until_first_backward, with_least_times
from pipesat.bounds.paired_area import Around
from pipesat.bounds.paired_device import PairedDevice, Ways
from pipesat.bounds.paired_memory import least_end_in_memory
from pipesat.bounds.paired_rank_rows import least_length_by_ranks, most_ranks
from pipesat.bounds.paired_ranks import Ranks
from pipesat.bounds.paired_waiting import Course
from pipesat.bounds.ways import time_from_backward, time_until_forward
from pipesat.bounds.whole_microbatches import with_rooms_in_use
from pipesat.core.claims import Bound
from pipesat.core.problem import Problem
from pipesat.core.rules import round_trip
from pipesat.core.schedule import Objective

_WORTH_RANKS = 0.96  # of the longest device's length; shorter ones are not looked at by rank


def paired_bounds(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield the bounds of every device: a microbatch's pass, and the least length by counts.

    As for plain problems (:mod:`pipesat.bounds.one_device`), a single route's window bounds the
    span, too: that of the device with the first stage. Another device's own may end as much later
    as it starts, so its last weight gradients may.
    """
    problem = with_rooms_in_use(problem)
    ways, least = _RouteWays(problem), with_least_times(problem)
    around, lengths = list[Around](), list[int]()
    whole = objective == "makespan" or len(problem.routes) == 1
    for device, stages in enumerate(problem.stages_on):
        if not stages:
            continue
        name, counts = problem.device_name(device), PairedDevice(problem, device)
        routes = list(problem.chunks_on[device].values())
        origins = [0 if objective == "makespan" else ways.begin(chunks[0]) for chunks in routes]
        yield Bound(max(map(ways.own_pass, origins, routes)), f"closed form: pass of {name}")
        if whole:
            way = max(map(ways.route_pass, routes))
            yield Bound(way, f"closed form: route's pass of {name}")
        start = min(ways.begin(chunks[0]) for chunks in routes)
        own = start if objective == "makespan" else 0
        yield Bound(own + area_over_room(least, device), f"closed form: area of {name}")
        before = start if whole else 0
        until = min(map(ways.until_backward, origins, routes)) - own
        home = [ways.after_backward(chunks) if whole else 0 for chunks in routes]
        length = min(
            counts.least_length(
                Ways(until, ways.after_forward(chunks), min(home), way, beyond=before - own)
            )
            for chunks, way in zip(routes, home, strict=True)
        )
        yield Bound(before + length, f"closed form: load with pairs of {name}")
        lengths.append(before + length)
        after = min(map(ways.after_forward, routes))
        known = Ways(until, after, min(home), min(home), beyond=before - own)
        around.append(Around(device, known, before))
    if whole:
        most = max(lengths, default=0) * _WORTH_RANKS
        longest = [a for a, length in zip(around, lengths, strict=True) if length >= most]
        yield from _by_rank(problem, around, longest, least)
    course = ways.course(around) if whole else None
    together = least_end_in_memory(problem, around, course)
    yield Bound(together, "closed form: load and memory with pairs of all devices")


def _by_rank(
    problem: Problem, devices: Sequence[Around], chosen: Sequence[Around], least: Problem
) -> Iterator[Bound]:
    """Yield bounds of chosen devices by the ranks of first backwards and last forwards."""
    first, last = [0] * len(problem.devices), [0] * len(problem.devices)
    for device, ways, before in devices:
        first[device] = before + ways.until_backward
        last[device] = ways.after_forward + ways.after_backward
    ranks = Ranks(problem, least, first, last)
    if not ranks.apply:
        return
    for device, ways, before in chosen:
        home = PairedDevice(problem, device)
        most = most_ranks(home)
        starts = ranks.backwards(device, most, own=ways.beyond > 0)
        backwards = [start - before for start in starts]
        length = least_length_by_ranks(home, ways, backwards, ranks.forwards(device, most))
        name = problem.device_name(device)
        yield Bound(before + length, f"closed form: load with pairs by rank of {name}")


@dataclass(frozen=True)
class _RouteWays:
    """Least times of the first and the last microbatches on their ways along the routes."""

    problem: Problem

    @cached_property
    def first(self) -> Problem:
        """With the times until a stage's first backward."""
        return until_first_backward(self.problem)

    @cached_property
    def last(self) -> Problem:
        """With the times of the last backwards."""
        return after_last_forward(self.problem)

    def course(self, devices: Sequence[Around]) -> Course:
        """Least times from the origin to the end, all devices' from the same."""
        stages, known = range(len(self.problem.stages)), {a.device: a for a in devices}
        first, last = [0] * len(self.problem.devices), [0] * len(self.problem.devices)
        for device, around in known.items():
            first[device] = around.before + around.ways.until_backward
            last[device] = around.ways.after_forward + around.ways.after_backward
        begin, home = map(self.begin, stages), (self.after_backward((s,)) for s in stages)
        return Course(tuple(begin), tuple(home), tuple(first), tuple(last))

    def begin(self, low: int) -> int:
        """Earliest start of a stage's first F."""
        return time_until_forward(self.first, low)

    def until_backward(self, origin: int, chunks: tuple[int, ...]) -> int:
        """From an origin to the earliest start of the first backward of a device's chunks."""
        top = chunks[-1]
        way = time_until_forward(self.first, top) + self.first.stages[top].F
        return way + round_trip(self.first, top) - origin

    def own_pass(self, origin: int, chunks: tuple[int, ...]) -> int:
        """From an origin through a device's chunks to the end of all work on the first of them."""
        back = time_from_backward(self.last, chunks[-1], chunks[0])
        return self.until_backward(origin, chunks) + back

    def route_pass(self, chunks: tuple[int, ...]) -> int:
        """From time 0 through a device's last chunk to the end of all work on the first stage."""
        return self.until_backward(0, chunks) + time_from_backward(self.last, chunks[-1], None)

    def after_forward(self, chunks: tuple[int, ...]) -> int:
        """From the end of the last F of a device's chunks to that of their last backward."""
        low, top = chunks[0], chunks[-1]
        data = self.last.stages[low]
        way = round_trip(self.last, top) + time_from_backward(self.last, top, low)
        return way - data.least_backward_work + data.shortest_backward

    def after_backward(self, chunks: tuple[int, ...]) -> int:
        """From there until the last gradient has travelled to the route's first stage."""
        low = chunks[0]
        if self.problem.previous[low] is None:
            return 0
        return time_from_backward(self.last, low, None) - self.last.stages[low].shortest_backward
