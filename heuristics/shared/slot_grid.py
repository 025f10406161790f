"""A grid of slots in which every op's place follows from when its microbatch enters.

A microbatch that enters at slot e runs stage s of a route of S stages at slot e + s, and its
backward at slot e + 2S - 1 - s: it never stops, unless told to wait on its way. Two microbatches
may not want one device for two forwards, or two backwards, in the same slot, nor more memory than
there is; a forward and a backward that meet in a slot are a pair. With entries as dense as that
allows, it is DualPipe's and DualPipeV's steady state, and interleaved 1F1B's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, product
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipesat.core.ops import Kind, Op, OpKind
from pipesat.core.problem import Problem
from pipesat.core.rules import link_delay, memory_change, pair_time_of_kinds

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
    """The grid of a problem of equal microbatches; memory counts by slot.

    ``stops`` has, for each route of S stages, the slots that its microbatches wait before each of
    their 2S ops.
    """

    def __init__(self, problem: Problem, stops: Stops | None = None) -> None:
        self.problem = problem
        self.stops = no_stops(problem) if stops is None else stops
        rooms = [device.room for device in problem.devices]
        self.room = np.array(
            [np.iinfo(np.int64).max if room is None else room for room in rooms], dtype=np.int64
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

    @cached_property
    def shapes(self) -> list[_Shape]:
        """What a microbatch of each route wants."""
        return [self._shape(number) for number in range(len(self.problem.routes))]

    def _shape(self, number: int) -> _Shape:
        problem, stages = self.problem, self.problem.routes[number].stages
        way = self._ways[number]
        size = len(problem.devices), way[-1] + 1
        shape = _Shape(np.zeros(size, np.int64), np.zeros(size, bool), np.zeros(size, bool))
        for place, stage in enumerate(stages):
            data = problem.stages[stage]
            first, last = way[place], way[-1 - place]
            shape.held[data.device, first:last] += data.held_after_F
            shape.held[data.device, last] += max(data.held_after_F, data.held_in_backward)
            if data.may_split:
                more = data.held_after_B - max(data.held_after_F, data.held_in_backward)
                shape.held[data.device, last] += max(0, more)
            shape.forward[data.device, first] = True
            shape.backward[data.device, last] = True
        return shape

    def entries(self, gaps: Sequence[int]) -> list[int] | None:
        """Earliest slots in which microbatches may enter, a gap or more after their route's last.

        ``None`` if one alone does not fit.
        """
        if any((shape.held > self.room).any() for shape in self.shapes):
            return None
        longest = max(shape.length for shape in self.shapes)
        size = len(self.problem.devices), sum(gaps) + longest * (len(gaps) + 2)
        busy = _Shape(np.zeros(size, np.int64), np.zeros(size, bool), np.zeros(size, bool))
        last = [-1] * len(self.shapes)
        result = []
        for (route, _), gap in zip(self.entering, gaps, strict=True):
            shape, at = self.shapes[route], last[route] + gap
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
            or (busy.held[:, here] + shape.held > self.room).any()
        )

    def cells(self, entries: Sequence[int]) -> list[Cell]:
        """What runs, sorted: by slot and device, one op or a forward and then a backward."""
        found: list[Cell] = []
        for (route, number), at in zip(self.entering, entries, strict=True):
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
        kinds: tuple[Kind, ...] = ("F", "B", "W", "BW")
        self.ops: dict[OpKind, OpFacts] = {}
        for s, kind in product(range(len(problem.stages)), kinds):
            memory = memory_change(problem, Op(s, kind, 0))
            time = int(getattr(problem.stages[s], kind))
            self.ops[s, kind] = OpFacts(time, memory.at_start, memory.net)
        self.backward: list[Kind] = ["B" if data.may_split else "BW" for data in problem.stages]
        rooms = (device.room for device in problem.devices)
        self.room = [float("inf") if room is None else room for room in rooms]

    @cached_property
    def before(self) -> list[tuple[int | None, int]]:
        """Per stage, that before it, and the delay of its outputs."""
        found = self.problem.previous
        return [(s, 0 if s is None else link_delay(self.problem, s, "F")) for s in found]

    @cached_property
    def after(self) -> list[tuple[int | None, int]]:
        """Per stage, that after it, and the delay of its gradients."""
        ends = enumerate(self.problem.next)
        return [(s, 0 if s is None else link_delay(self.problem, here, "B")) for here, s in ends]

    @cached_property
    def pairs(self) -> dict[tuple[int, int], tuple[Kind, int]]:
        """Per stage of a forward and of a backward: which kind of it saves most, and the time."""
        found: dict[tuple[int, int], tuple[Kind, int]] = {}
        for stages in self.problem.stages_on:
            for one, other in product(stages, stages):
                best = self._best(one, other)
                if best is not None:
                    found[one, other] = best
        return found

    def _best(self, one: int, other: int) -> tuple[Kind, int] | None:
        best, most, data = None, 0, self.problem.stages[other]
        kinds: list[Kind] = ["BW"] if data.may_fuse else []
        kinds += ["B"] if data.may_split else []
        for kind in kinds:
            time = pair_time_of_kinds(self.problem, (one, "F"), (other, kind))
            if time is None:
                continue
            saved = self.ops[one, "F"].time + self.ops[other, kind].time - time
            if saved > most:
                best, most = (kind, time), saved
        return best
