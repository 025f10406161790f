"""Closed-form lower bounds on makespan and span: arithmetic, no search.

docs/bounds.md derives them. Words used here, for one device:

* ``head``: a backward cannot start before its microbatch has travelled to the last stage and back;
  until then the device runs forwards only, and memory limits how many.
* ``tail``: after the device's last forward, that microbatch must travel the same way; meanwhile the
  device runs only what is left of microbatches already stored, and memory limits how many.
* ``end``: after the device's last backward, the gradient still travels to the route's first stage;
  meanwhile the device runs only pending weight gradients.
* ``load``: total compute time. ``area``: memory times time. ``pass``: one microbatch alone.
* ``warm-ups``: the heads of all devices of a chain together (:mod:`pipesat.bounds.chain_warm_up`).

Two windows of time matter. A device's own runs from its first op to its last; with the time before
it (``absolute``), it bounds the makespan, without, the span. A route's window runs from the first
F to the last backward of its first stage. It also bounds the makespan, and with a single route also
the span, because it lies within the window of the device that holds the first stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pipesat.bounds.area import area_over_room
from pipesat.bounds.chain_warm_up import least_warm_ups
from pipesat.bounds.classes import bounds_of_classes
from pipesat.bounds.feasibility import certain_activations
from pipesat.bounds.modes import counted_bounds
from pipesat.bounds.paired import paired_bounds
from pipesat.bounds.ways import time_from_backward, time_until_forward
from pipesat.bounds.work_in_memory import most_work
from pipesat.core.arguments import public
from pipesat.core.claims import Bound
from pipesat.core.least import least_problem, memory_varies
from pipesat.core.problem import Problem, Stage
from pipesat.core.rules import round_trip
from pipesat.core.schedule import Objective


@public
def closed_form_bound(problem: Problem, objective: Objective) -> Bound:
    """Return the best closed-form bound and the name of its argument, in time units."""
    return max(closed_form_bounds(problem, objective), key=lambda bound: bound.value)


def closed_form_bounds(problem: Problem, objective: Objective) -> list[Bound]:
    """Return what :func:`closed_forms` yields."""
    return [*closed_forms(problem, objective)]


def closed_forms(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield the bound of every argument that applies, device by device, in time units.

    Where microbatches have modes, those of the least amounts of any
    (:func:`pipesat.core.least.least_problem`), and then of how many run in each. What takes longest
    comes last, so whoever has no time for all takes the first.
    """
    yield Bound(0, "closed form: nothing takes less than no time")
    overlap = problem.overlap
    if not (problem.alike or memory_varies(problem) or (overlap and overlap.listed)):
        yield from bounds_of_classes(problem, objective)
        if overlap is None:
            return
    least = least_problem(problem)
    yield from (paired_bounds if overlap is not None else _plain_bounds)(least, objective)
    yield from counted_bounds(problem, objective)


def _plain_bounds(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield those of equal microbatches without pairs."""
    devices = [device for device, stages in enumerate(problem.stages_on) if stages]
    absolute = {device: _Device(problem, device, absolute=True) for device in devices}
    own = absolute
    if objective == "span":
        own = {device: _Device(problem, device, absolute=False) for device in devices}
    for device in devices:
        yield from own[device].window_bounds()
        if objective == "makespan" or len(problem.routes) == 1:
            # a single route's window lies within that of the device with its first stage
            yield from absolute[device].route_bounds()
    if problem.one_stage_per_device:
        line = [problem.stages[s].device for s in problem.routes[0].stages]
        without_head = [
            max(own[device].without_head, absolute[device].route_without_head) for device in line
        ]
        found = least_warm_ups(problem, without_head)
        tight = problem.device_name(line[found.tight])
        yield Bound(found.length, f"closed form: warm-ups + load of {tight}")


@dataclass(frozen=True)
class _Device:
    """All bounds of one device, timed from the origin (``absolute``) or from its first op."""

    problem: Problem
    device: int
    absolute: bool

    def window_bounds(self) -> list[Bound]:
        """Bounds on the time until the device's last op ends."""
        values = {"load": self.start + self.load, "pass": self.way}
        values["area"] = self.start + area_over_room(self.problem, self.device)
        values["head + load"] = self.head + self.load
        values |= self._around_load("tail", self.tail, self.head_before_tail)
        return self._named(values)

    def route_bounds(self) -> list[Bound]:
        """Bounds on the time until the first stage's last backward ends."""
        problem = self.problem
        top = [chunks[-1] for chunks in self.routes.values()]
        values = {
            "route's pass": max(
                time_until_forward(problem, s)
                + problem.stages[s].F
                + round_trip(problem, s)
                + time_from_backward(problem, s, None)
                for s in top
            )
        }
        values |= self._around_load("end", self.end, True)
        values |= self._around_load("route's tail", self.route_tail, self.head_before_tail)
        return self._named(values)

    @property
    def without_head(self) -> int:
        """Least time until the device's last op ends, if it never idles before a backward."""
        idle = max(0, self.tail) if self.head_before_tail else 0
        return self.start + self.load + idle

    @property
    def route_without_head(self) -> int:
        """Least time until the first stage's last backward ends, in the same case."""
        idle = max(self.end, self.route_tail) if self.head_before_tail else self.end
        return self.start + self.load + idle

    def _around_load(self, name: str, idle: int, disjoint: bool) -> dict[str, int]:
        """Add what is idle at the end to the load, and what is idle in the head if disjoint."""
        values = {f"load + {name}": self.start + self.load + idle}
        if disjoint:
            values[f"head + load + {name}"] = self.head + self.load + idle
        return values

    def _named(self, values: dict[str, int]) -> list[Bound]:
        name = self.problem.device_name(self.device)
        return [Bound(v, f"closed form: {argument} of {name}") for argument, v in values.items()]

    @cached_property
    def routes(self) -> Mapping[int, tuple[int, ...]]:
        """Per route, the device's chunks of it."""
        return self.problem.chunks_on[self.device]

    @cached_property
    def stages(self) -> list[tuple[int, Stage, int]]:
        """(number, stage, microbatches) of the device's stages."""
        problem = self.problem
        return [
            (s, problem.stages[s], problem.microbatches[s]) for s in problem.stages_on[self.device]
        ]

    @cached_property
    def activation(self) -> list[int]:
        """What one microbatch surely holds on every stage of the problem."""
        return certain_activations(self.problem)

    @property
    def room(self) -> int | None:
        """Memory for activations."""
        return self.problem.devices[self.device].room

    @cached_property
    def start(self) -> int:
        """Earliest start of anything on the device."""
        return min(self._begin(chunks[0]) for chunks in self.routes.values())

    def _begin(self, low: int) -> int:
        return time_until_forward(self.problem, low) if self.absolute else 0

    @cached_property
    def load(self) -> int:
        """Least compute time."""
        forward = sum(stage.F * m for _, stage, m in self.stages)
        backward = sum(stage.least_backward_work * m for _, stage, m in self.stages)
        return forward + backward

    def _until_backward(self, chunks: tuple[int, ...]) -> int:
        """Earliest start of the first backward of a route, that of the device's last chunk."""
        low, top = chunks[0], chunks[-1]
        way = time_until_forward(self.problem, top) - time_until_forward(self.problem, low)
        way += self.problem.stages[top].F + round_trip(self.problem, top)
        return self._begin(low) + way

    @cached_property
    def first_backward(self) -> int:
        """Earliest start of any backward on the device."""
        return min(map(self._until_backward, self.routes.values()))

    @cached_property
    def way(self) -> int:
        """One microbatch's way until the end of its last work on the device."""
        return max(
            self._until_backward(chunks) + time_from_backward(self.problem, chunks[-1], chunks[0])
            for chunks in self.routes.values()
        )

    @cached_property
    def work_before_backward(self) -> int:
        """Most forward work that memory admits before the first backward frees any."""
        return most_work(((self.activation[s], d.F, m) for s, d, m in self.stages), self.room)

    @cached_property
    def head(self) -> int:
        """Earliest start of a backward minus what the device can have done by then."""
        return self.first_backward - self.work_before_backward

    @cached_property
    def head_before_tail(self) -> bool:
        """Whether the last forward must start after the first backward has."""
        total = sum(self.activation[s] * m for s, _, m in self.stages)
        return self.room is not None and total > self.room

    @cached_property
    def tail(self) -> int:
        """Idle time after the last forward, until its microbatch is done on the device."""
        return self._idle_after_forward(to_first=False)

    @cached_property
    def route_tail(self) -> int:
        """Idle time after the last forward, until its microbatch is done on the first stage."""
        return self._idle_after_forward(to_first=True)

    def _idle_after_forward(self, *, to_first: bool) -> int:
        """Way of the last forward's microbatch minus what can be run meanwhile.

        The last forward is that of the device's last chunk of some route: the least over routes.
        The way ends on the device's first chunk, or with the route's first stage.
        """
        options = []
        for route, chunks in self.routes.items():
            top, low = chunks[-1], chunks[0]
            way = round_trip(self.problem, top)
            way += time_from_backward(self.problem, top, None if to_first else low)
            options.append(way - self._work_after_forward(route))
        return min(options)

    def _work_after_forward(self, route: int) -> int:
        """Most work that can be left when the last forward, one of ``route``, has ended."""
        own = self.routes[route]
        room = self.room
        if room is not None:
            room -= sum(self.activation[s] for s in own if self._is_held_at_the_end(own[-1], s))
        if len(self.stages) == 1:
            others = self._stored_work(room)
        else:
            items = []
            for s, stage, m in self.stages:
                count = m - (s in own)
                items.append((self.activation[s], stage.least_backward_work, count))
                if stage.may_split:
                    items.append((stage.held_after_B, stage.W, count))
            others = most_work(items, room)
        return others + sum(self.problem.stages[s].least_backward_work for s in own)

    def _is_held_at_the_end(self, top: int, stage: int) -> bool:
        """Whether a microbatch surely holds a chunk around the end of its F on the last one.

        While that F runs, it does. If it takes no time, the backwards must take some.
        """
        data = self.problem.stages[stage]
        way = round_trip(self.problem, top) + time_from_backward(self.problem, top, stage)
        until_freed = way - data.least_backward_work + data.shortest_backward
        return self.problem.stages[top].F > 0 or until_freed > 0

    def _stored_work(self, room: int | None) -> int:
        """Most work of x whole backwards and y pending W of one stage that fit into ``room``."""
        s, stage, m = self.stages[0]
        a, w = self.activation[s], stage.held_after_B
        pending_work = stage.W if stage.may_split else 0
        if room is None or a == 0:
            return (m - 1) * max(stage.least_backward_work, pending_work)
        best = 0
        for x in range(min(room // a, m - 1) + 1):
            y = m - 1 - x if w == 0 else min((room - a * x) // w, m - 1 - x)
            best = max(best, x * stage.least_backward_work + y * pending_work)
        return best

    @cached_property
    def end(self) -> int:
        """Idle time after the last backward, while its gradient travels to the first stage."""
        items = [(d.held_after_B, d.W, m) for _, d, m in self.stages if d.may_split]
        pending = most_work(items, self.room)
        options = []
        for chunks in self.routes.values():
            low = chunks[0]
            if self.problem.previous[low] is None:
                options.append(-pending)
                continue
            way = (
                time_from_backward(self.problem, low, None)
                - self.problem.stages[low].shortest_backward
            )
            options.append(way - pending)
        return min(options)
