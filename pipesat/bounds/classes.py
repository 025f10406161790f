"""Closed-form bounds where microbatches differ: :mod:`pipesat.bounds.one_device`, class by class.

The load, and whatever memory admits, is summed over the microbatches as they are. A way through the
pipeline is that of the class that is quickest, except where every microbatch must go it: then that
of the slowest. The microbatch that comes first on a device, or last, may be of any class that the
order admits: the least over them counts. docs/bounds.md has the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pipesat.bounds.area import least_area
from pipesat.bounds.feasibility import certain_activations
from pipesat.bounds.given_order import bounds_of_given_order
from pipesat.bounds.ways import time_from_backward, time_until_forward
from pipesat.bounds.work_in_memory import most_work
from pipesat.core.claims import Bound
from pipesat.core.least import of_each_class
from pipesat.core.problem import Problem, Stage
from pipesat.core.rules import round_trip
from pipesat.core.schedule import Objective


def bounds_of_classes(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield every argument's bound, device by device, in time units; no modes.

    Pairs are those by factor alone, of which none is shorter than a member (docs/bounds.md).
    """
    alone = of_each_class(problem)
    in_turn = objective == "makespan" and problem.overlap is None
    if in_turn:
        yield from bounds_of_given_order(problem)
    for device, stages in enumerate(problem.stages_on):
        if not stages:
            continue
        absolute = _Device(problem, alone, device, absolute=True)
        own = absolute
        if objective == "span":
            own = _Device(problem, alone, device, absolute=False)
        yield from own.named(own.window_bounds())
        if objective == "makespan" or len(problem.routes) == 1:
            yield from absolute.named(absolute.route_bounds())


class _Items(NamedTuple):
    """The microbatches of one class on one stage: their amounts, and how many there are."""

    stage: int
    kind: int
    amounts: Stage
    activation: int
    number: int


@dataclass(frozen=True)
class _Device:
    """All bounds of one device, timed from the origin (``absolute``) or from its first op.

    ``alone`` has the plain problem of each class; :mod:`pipesat.bounds.one_device` has the words.
    """

    problem: Problem
    alone: list[Problem]
    device: int
    absolute: bool

    def window_bounds(self) -> dict[str, int]:
        """Bounds on the time until the device's last op ends."""
        values = {"load": self.start + self.load, "pass": self.slowest_pass}
        values["area"] = self.start + self.area
        values["head + load"] = self.head + self.load
        values["load around one microbatch"] = self.start + self.load + self.around_one
        return values | self._around_load("tail", self.tail, self.head_before_tail)

    def route_bounds(self) -> dict[str, int]:
        """Bounds on the time until the first stage's last backward ends."""
        values = {"route's pass": max(self._route_pass(*each) for each in self._tops())}
        values |= self._around_load("end", self.end, True)
        around = self.start + self.load + self.around_one + self.end
        values["load around one microbatch + end"] = around
        return values | self._around_load("route's tail", self.route_tail, self.head_before_tail)

    def named(self, values: dict[str, int]) -> list[Bound]:
        """The bounds with their arguments' names."""
        name = self.problem.device_name(self.device)
        return [Bound(v, f"closed form: {argument} of {name}") for argument, v in values.items()]

    def _around_load(self, name: str, idle: int, disjoint: bool) -> dict[str, int]:
        values = {f"load + {name}": self.start + self.load + idle}
        if disjoint:
            values[f"head + load + {name}"] = self.head + self.load + idle
        return values

    def _tops(self, which: int | None = None) -> Iterator[tuple[int, Problem, tuple[int, ...]]]:
        """(class, its plain problem, chunks) of every route and class that the device has.

        With ``which``, 0 or -1, of those that the order admits as the first or last microbatch.
        """
        for route, chunks in self.problem.chunks_on[self.device].items():
            classes = self.problem.routes[route].classes or (0,)
            given = which is not None and self.problem.order == "given"
            admitted = {classes[which or 0]} if given else set(classes)
            for kind in sorted(admitted):
                yield kind, self.alone[kind], chunks

    @cached_property
    def items(self) -> list[_Items]:
        """All microbatches on the device, by stage and class."""
        found = []
        held = [certain_activations(one) for one in self.alone]
        for stage in self.problem.stages_on[self.device]:
            route = self.problem.routes[self.problem.route_of[stage]]
            classes = route.classes or (0,) * route.microbatches
            for kind in sorted(set(classes)):
                amounts, activation = self.alone[kind].stages[stage], held[kind][stage]
                found.append(_Items(stage, kind, amounts, activation, classes.count(kind)))
        return found

    @cached_property
    def room(self) -> int | None:
        """Memory for activations."""
        return self.problem.devices[self.device].room

    @cached_property
    def load(self) -> int:
        """Compute time of all microbatches; where F's and BW's may pair, the least it can be."""
        forwards = sum(x.amounts.F * x.number for x in self.items)
        backwards = sum(x.amounts.least_backward_work * x.number for x in self.items)
        overlap = self.problem.overlap
        if overlap is None or overlap.factor is None:
            return forwards + backwards
        den = overlap.factor[1]
        num = min(overlap.factor[0], den)
        shared = num * forwards  # in parts of 1/den: what each member of a pair takes of it
        for x in self.items:
            ways = [den * (x.amounts.B + x.amounts.W)] if x.amounts.may_split else []
            ways += [num * x.amounts.BW] if x.amounts.may_fuse else []
            shared += min(ways) * x.number
        return max(forwards, backwards, -(-shared // den))

    def _begin(self, one: Problem, low: int) -> int:
        return time_until_forward(one, low) if self.absolute else 0

    @cached_property
    def start(self) -> int:
        """Earliest start of anything on the device."""
        return min(self._begin(one, chunks[0]) for _, one, chunks in self._tops(0))

    def _until_backward(self, one: Problem, chunks: tuple[int, ...]) -> int:
        """Earliest start of a class's first backward, that of the device's last chunk."""
        low, top = chunks[0], chunks[-1]
        way = time_until_forward(one, top) - time_until_forward(one, low)
        return self._begin(one, low) + way + one.stages[top].F + round_trip(one, top)

    @cached_property
    def slowest_pass(self) -> int:
        """One microbatch's way until the end of its last work on the device, of the slowest."""
        return max(
            self._until_backward(one, chunks) + time_from_backward(one, chunks[-1], chunks[0])
            for _, one, chunks in self._tops()
        )

    def _route_pass(self, _: int, one: Problem, chunks: tuple[int, ...]) -> int:
        top = chunks[-1]
        way = time_until_forward(one, top) + one.stages[top].F + round_trip(one, top)
        return way + time_from_backward(one, top, None)

    @cached_property
    def head(self) -> int:
        """Earliest start of a backward minus what the device can have done by then."""
        first = min(self._until_backward(one, chunks) for _, one, chunks in self._tops(0))
        return first - most_work(
            ((x.activation, x.amounts.F, x.number) for x in self.items), self.room
        )

    @cached_property
    def head_before_tail(self) -> bool:
        """Whether the last forward must start after the first backward has."""
        return (
            self.room is not None and sum(x.activation * x.number for x in self.items) > self.room
        )

    @cached_property
    def tail(self) -> int:
        """Idle time after the last forward, until its microbatch is done on the device."""
        return min(self._idle_after_forward(*each, to_first=False) for each in self._tops(-1))

    @cached_property
    def route_tail(self) -> int:
        """Idle time after the last forward, until its microbatch is done on the first stage."""
        return min(self._idle_after_forward(*each, to_first=True) for each in self._tops(-1))

    def _idle_after_forward(
        self, kind: int, one: Problem, chunks: tuple[int, ...], *, to_first: bool
    ) -> int:
        """Way of the last forward's microbatch minus what can be run meanwhile."""
        top, low = chunks[-1], chunks[0]
        way = round_trip(one, top) + time_from_backward(one, top, None if to_first else low)
        room, work, others = self.room, 0, []
        for x in self.items:
            is_own = x.stage in chunks and x.kind == kind
            if is_own:
                work += x.amounts.least_backward_work
                if room is not None and one.stages[top].F > 0:
                    room -= x.activation
            count = x.number - is_own
            others.append((x.activation, x.amounts.least_backward_work, count))
            if x.amounts.may_split:
                others.append((x.amounts.held_after_B, x.amounts.W, count))
        return way - work - most_work(others, room)

    @cached_property
    def around_one(self) -> int:
        """Idle time while one microbatch is away, of that with the most.

        Where stages run microbatches in one order: only backwards of those before it and forwards
        of those after it run meanwhile, as far as memory beside it admits.
        """
        if self.problem.order == "free" or not self.problem.one_stage_per_device:
            return 0
        return max(0, *map(self._idle_while_away, self.items))

    def _idle_while_away(self, own: _Items) -> int:
        if not own.amounts.F:
            return 0
        room = None if self.room is None else self.room - own.activation
        before, after = [], []
        for x in self.items:
            count = x.number - (x is own)
            before.append((x.activation, x.amounts.least_backward_work, count))
            if x.amounts.may_split:
                before.append((x.amounts.held_after_B, x.amounts.W, count))
            after.append((x.activation, x.amounts.F, count))
        away = round_trip(self.alone[own.kind], own.stage)
        return away - most_work(before, room) - most_work(after, room)

    @cached_property
    def end(self) -> int:
        """Idle time after the last backward, while its gradient travels to the first stage."""
        pending = most_work(
            (
                (x.amounts.held_after_B, x.amounts.W, x.number)
                for x in self.items
                if x.amounts.may_split
            ),
            self.room,
        )
        return min(self._way_home(one, chunks[0]) for _, one, chunks in self._tops(-1)) - pending

    def _way_home(self, one: Problem, low: int) -> int:
        if one.previous[low] is None:
            return 0
        return time_from_backward(one, low, None) - one.stages[low].shortest_backward

    @cached_property
    def area(self) -> int:
        """Sum over microbatches of memory times least residence, over the room there is."""
        if not self.room:
            return 0
        total = sum(
            least_area(one, {x.stage: x.number for x in self.items if x.kind == kind})
            for kind, one in enumerate(self.alone)
        )
        return -(-total // self.room)
