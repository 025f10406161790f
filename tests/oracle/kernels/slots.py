"""Slot grids and their replay, op by op and from the rules: the oracle of the compiled loops."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipesat.problem.ops import Item, Kind, Op, OpKind, Pair, Phase
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration, in_order, link_delay, memory_change, time_together
from pipesat.schedule.schedule import Order

Microbatch: TypeAlias = tuple[int, int]
"""Route and number."""
Cell: TypeAlias = tuple[int, int, bool, int, int]
"""Slot, device, whether it is a backward, stage, microbatch."""
Stops: TypeAlias = Sequence[Sequence[int]]


def no_stops(problem: Problem) -> list[list[int]]:
    """Return the stops of microbatches that never stop."""
    return [[0 for _ in (*route.stages, *route.stages)] for route in problem.routes]


class _Shape(NamedTuple):
    """What a microbatch of a route wants, by device and slot since it entered."""

    held: NDArray[np.int64]
    forward: NDArray[np.bool_]
    backward: NDArray[np.bool_]

    @property
    def length(self) -> int:
        """Slots from entering to leaving."""
        return int(self.held.shape[1])


class SlotGrid:
    """The grid of a problem; memory counts by slot, of each microbatch what its class holds.

    ``stops`` has, for each route of S stages, the slots that its microbatches wait before each of
    their 2S ops.
    """

    def __init__(self, problem: Problem, stops: Stops | None = None) -> None:
        self.problem = problem
        self.stops = no_stops(problem) if stops is None else stops
        slacks = [device.slack for device in problem.devices]
        self._shapes: dict[tuple[int, int], _Shape] = {}
        self.slack = np.array(
            [np.iinfo(np.int64).max if slack is None else slack for slack in slacks], dtype=np.int64
        )[:, None]

    @cached_property
    def entering(self) -> list[Microbatch]:
        """All microbatches in the order in which they enter, routes in proportion."""
        routes = enumerate(self.problem.routes)
        places = [
            ((number + 0.5) / route.microbatches, index, number)
            for index, route in routes
            for number in range(route.microbatches)
        ]
        return [(index, number) for _, index, number in sorted(places)]

    def _shape_of(self, microbatch: Microbatch) -> _Shape:
        """What a microbatch wants, looked up by its class."""
        route, number = microbatch
        key = route, self.problem.class_of(self.problem.routes[route].stages[0], number)
        if key not in self._shapes:
            self._shapes[key] = self._shape(*key)
        return self._shapes[key]

    def _shape(self, route: int, of_class: int) -> _Shape:
        problem, stages = self.problem, self.problem.routes[route].stages
        way = self._ways[route]
        size = len(problem.devices), way[-1] + 1
        shape = _Shape(np.zeros(size, np.int64), np.zeros(size, bool), np.zeros(size, bool))
        for place, stage in enumerate(stages):
            data = problem.resulting(stage, of_class=of_class)
            first, last = way[place], way[-1 - place]
            shape.held[data.device, first:last] += data.held_after_F
            shape.held[data.device, last] += max(data.held_after_F, data.held_in_backward)
            if data.may_split:
                more = data.held_after_B - max(data.held_after_F, data.held_in_backward)
                shape.held[data.device, last] += max(0, more)
            shape.forward[data.device, first] = True
            shape.backward[data.device, last] = True
        return shape

    def entries(
        self, gaps: Sequence[int], entering: Sequence[Microbatch] | None = None
    ) -> list[int] | None:
        """Earliest slots in which microbatches may enter, a gap or more after their route's last.

        ``entering`` is the order in which they do, by default :attr:`entering`. ``None`` if one
        alone does not fit.
        """
        entering = self.entering if entering is None else entering
        shapes = [self._shape_of(microbatch) for microbatch in entering]
        if any((shape.held > self.slack).any() for shape in self._shapes.values()):
            return None
        longest = max(shape.length for shape in shapes)
        size = len(self.problem.devices), sum(gaps) + longest * (len(gaps) + 2)
        busy = _Shape(np.zeros(size, np.int64), np.zeros(size, bool), np.zeros(size, bool))
        last = [-1] * len(self.problem.routes)
        result = []
        for (route, _), shape, gap in zip(entering, shapes, gaps, strict=True):
            at = last[route] + gap
            while not self._free(busy, shape, at):
                at += 1
            here = slice(at, at + shape.length)
            busy.held[:, here] += shape.held
            busy.forward[:, here] |= shape.forward
            busy.backward[:, here] |= shape.backward
            last[route] = at
            result.append(at)
        return result

    def _free(self, busy: _Shape, shape: _Shape, at: int) -> bool:
        here = slice(at, at + shape.length)
        return not (
            (busy.forward[:, here] & shape.forward).any()
            or (busy.backward[:, here] & shape.backward).any()
            or (busy.held[:, here] + shape.held > self.slack).any()
        )

    def cells(
        self, entries: Sequence[int], entering: Sequence[Microbatch] | None = None
    ) -> list[Cell]:
        """What runs, sorted: by slot and device, one op or a forward and then a backward."""
        found: list[Cell] = []
        entering = self.entering if entering is None else entering
        for (route, number), at in zip(entering, entries, strict=True):
            stages = self.problem.routes[route].stages
            way = self._ways[route]
            for place, stage in enumerate(stages):
                device = self._device[stage]
                found.append((at + way[place], device, False, stage, number))
                found.append((at + way[-1 - place], device, True, stage, number))
        return sorted(found)

    @cached_property
    def _ways(self) -> list[list[int]]:
        """Per route, the slot of each op of a microbatch since it entered."""
        return [[at + place for place, at in enumerate(accumulate(one))] for one in self.stops]

    @cached_property
    def _device(self) -> list[int]:
        return [stage.device for stage in self.problem.stages]


class OpFacts(NamedTuple):
    """An op's time, the memory that it takes at its start, and what is held more at its end."""

    time: int
    takes: int
    net: int


class Facts:
    """Times and memory of a problem's ops, looked up once: grids are run by the hundred."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.backward: list[Kind] = ["B" if data.may_split else "BW" for data in problem.stages]
        slacks = (device.slack for device in problem.devices)
        self.slack = [float("inf") if slack is None else slack for slack in slacks]
        self._together: dict[tuple[int, ...], tuple[Kind, int] | None] = {}

    @cached_property
    def _classes(self) -> list[list[int]]:
        """Class of each microbatch, by stage and number."""
        numbers = enumerate(self.problem.microbatches)
        return [[self.problem.class_of(s, m) for m in range(n)] for s, n in numbers]

    @cached_property
    def ops(self) -> dict[OpKind, list[OpFacts]]:
        """Facts of ops, by stage and kind, then by microbatch."""
        kinds: tuple[Kind, ...] = ("F", "B", "W", "BW")
        return {
            (s, kind): self._of_all(s, kind) for s in range(len(self._classes)) for kind in kinds
        }

    def _of_all(self, stage: int, kind: Kind) -> list[OpFacts]:
        classes, known = self._classes[stage], dict[int, OpFacts]()
        for number, of_class in enumerate(classes):
            if of_class not in known:
                op = Op(stage, kind, number)
                memory = memory_change(self.problem, op)
                time = duration(self.problem, op)
                known[of_class] = OpFacts(time, memory.at_start, memory.net)
        return [known[of_class] for of_class in classes]

    @cached_property
    def before(self) -> list[tuple[int | None, list[int]]]:
        """Per stage, that before it, and the delay of its outputs by microbatch."""
        return [(s, self._delays(s, "F")) for s in self.problem.previous]

    @cached_property
    def after(self) -> list[tuple[int | None, list[int]]]:
        """Per stage, that after it, and the delay of its gradients by microbatch."""
        ends = enumerate(self.problem.next)
        return [(s, self._delays(None if s is None else here, "B")) for here, s in ends]

    def _delays(self, stage: int | None, direction: Phase) -> list[int]:
        if stage is None:
            return []
        numbers = range(self.problem.microbatches[stage])
        return [link_delay(self.problem, stage, direction, number) for number in numbers]

    def pair(self, one: int, number: int, other: int, later: int) -> tuple[Kind, int] | None:
        """Which kind of backward saves most beside a forward, and the time; None if none does."""
        key = one, self._classes[one][number], other, self._classes[other][later]
        if key not in self._together:
            self._together[key] = self._best(one, number, other, later)
        return self._together[key]

    def _best(self, one: int, number: int, other: int, later: int) -> tuple[Kind, int] | None:
        best, most, data = None, 0, self.problem.stages[other]
        kinds: list[Kind] = ["BW"] if data.may_fuse else []
        kinds += ["B"] if data.may_split else []
        for kind in kinds:
            time = time_together(self.problem, Op(one, "F", number), Op(other, kind, later))
            if time is None:
                continue
            saved = self.ops[one, "F"][number].time + self.ops[other, kind][later].time - time
            if saved > most:
                best, most = (kind, time), saved
        return best


Alone: TypeAlias = Mapping[tuple[int, int, bool], bool]
"""Stage, microbatch and whether a backward, of ops that form no pair: whether each runs first."""


class SlotReplay:
    """One run through a grid, as early as its sequence allows.

    A backward that is in no pair is split where it may be. Its W waits for a gap that it fits
    into by the part ``wait`` of its time, or for the moment when its memory is needed; with 0 it
    runs at once. Ops that are in ``alone`` run before or after what they meet. What runs is noted
    with ``note`` only: most grids are run for their makespan.
    """

    def __init__(
        self,
        grid: SlotGrid,
        facts: Facts,
        *,
        wait: float,
        alone: Alone | None = None,
        note: bool = False,
    ) -> None:
        self.problem: Problem = grid.problem
        self.grid, self.facts, self.wait, self.note = grid, facts, wait, note
        self.alone: Alone = alone or {}
        devices = len(self.problem.devices)
        self.busy_until = [0] * devices
        self.rows: list[list[Item]] = [[] for _ in range(devices)]
        self._held = [0] * devices
        self._due: list[deque[tuple[int, int]]] = [deque() for _ in range(devices)]
        numbers = self.problem.microbatches
        self._forward_ends = [[0] * count for count in numbers]
        self._backward_ends = [[0] * count for count in numbers]

    def run(self, entries: Sequence[int], entering: Sequence[Microbatch] | None = None) -> int:
        """Run everything; return the makespan."""
        cells, pair = self.grid.cells(entries, entering), self.facts.pair
        last = (-1, -1)  # what has run as the second of two that meet
        for place, (slot, device, backward, stage, number) in enumerate(cells):
            if (slot, device) == last:
                continue
            if not backward and place + 1 < len(cells):
                other = cells[place + 1]
                meets = other[:2] == (slot, device)
                if meets and (as_pair := pair(stage, number, *other[3:])) is not None:
                    self._meet(device, stage, number, other[3], other[4], as_pair)
                    last = (slot, device)
                    continue
            kind = self.facts.backward[stage] if backward else "F"
            self._one(device, stage, number, kind)
        for device, due in enumerate(self._due):
            while due:
                self._weight(device)
        return max(self.busy_until)

    @property
    def order(self) -> Order:
        """What ran, device by device."""
        return tuple(map(tuple, self.rows))

    def _meet(
        self, device: int, stage: int, number: int, other: int, later: int, pair: tuple[Kind, int]
    ) -> None:
        """Run a forward with a backward, or one after the other if either is to be alone."""
        sooner = self.alone.get((other, later, True))
        if sooner is None and (mine := self.alone.get((stage, number, False))) is not None:
            sooner = not mine
        if sooner is None:
            self._together(device, stage, number, other, later, pair)
        elif sooner:
            self._one(device, other, later, self.facts.backward[other])
            self._one(device, stage, number, "F")
        else:
            self._one(device, stage, number, "F")
            self._one(device, other, later, self.facts.backward[other])

    def _one(self, device: int, stage: int, number: int, kind: Kind) -> None:
        """Run a forward or a backward alone."""
        facts = self.facts.ops[stage, kind][number]
        if kind == "F":
            arrival, ends = self._forward_arrival(stage, number), self._forward_ends
        else:
            arrival, ends = self._backward_arrival(stage, number), self._backward_ends
        ends[stage][number] = self._start(device, arrival, facts.takes, facts.net, facts.time)
        if self.note:
            self.rows[device].append(Op(stage, kind, number))
        if kind == "B":
            self._leave(device, stage, number)

    def _together(
        self, device: int, stage: int, number: int, other: int, later: int, pair: tuple[Kind, int]
    ) -> None:
        kind, time = pair
        one, two = self.facts.ops[stage, "F"][number], self.facts.ops[other, kind][later]
        arrival = max(self._forward_arrival(stage, number), self._backward_arrival(other, later))
        end = self._start(device, arrival, one.takes + two.takes, one.net + two.net, time)
        self._forward_ends[stage][number] = self._backward_ends[other][later] = end
        if self.note:
            both = Pair(Op(stage, "F", number), Op(other, kind, later))
            self.rows[device].append(in_order(self.problem, both))
        if kind == "B":
            self._leave(device, other, later)

    def _forward_arrival(self, stage: int, number: int) -> int:
        """When a forward's input is there."""
        before, delays = self.facts.before[stage]
        return 0 if before is None else self._forward_ends[before][number] + delays[number]

    def _backward_arrival(self, stage: int, number: int) -> int:
        """When a backward's input is there."""
        after, delays = self.facts.after[stage]
        if after is None:
            return self._forward_ends[stage][number]
        return self._backward_ends[after][number] + delays[number]

    def _start(self, device: int, arrival: int, takes: int, net: int, time: int) -> int:
        """Run an item when its inputs are there, after weight gradients that fit or have to run."""
        due, most = self._due[device], self.facts.slack[device] - takes
        while due:
            gap = arrival - self.busy_until[device]
            stage, number = due[0]
            waits = self.wait * self.facts.ops[stage, "W"][number].time > gap
            if self._held[device] <= most and waits:
                break
            self._weight(device)
        end = max(self.busy_until[device], arrival) + time
        self.busy_until[device] = end
        self._held[device] += net
        return end

    def _leave(self, device: int, stage: int, number: int) -> None:
        self._due[device].append((stage, number))
        if not self.wait:
            self._weight(device)

    def _weight(self, device: int) -> None:
        stage, number = self._due[device].popleft()
        facts = self.facts.ops[stage, "W"][number]
        self.busy_until[device] += facts.time
        self._held[device] += facts.net
        if self.note:
            self.rows[device].append(Op(stage, "W", number))
