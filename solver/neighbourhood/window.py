"""Re-optimise the segments of some devices by CP-SAT, all else keeping its order.

Free items may change places within their device's segment; with ``freedom``, a backward may be
split or fused where its stage has the choice, and run in another memory mode. An item outside keeps
its place; it is modelled only if it lies on a path between two free items. What comes before has
fixed times, what comes after counts through the longest path that follows (``Graph.tail``), so the
model is as small as the window, whatever the size of the schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from ortools.sat.python import cp_model

from pipesat.core.ops import Event, Item, Op, members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited
from pipesat.core.schedule import Order
from pipesat.solver.model.pairing import NO_GAINS, Gains
from pipesat.solver.model.variants import Literal, joined
from pipesat.solver.modes.assign import Cell
from pipesat.solver.neighbourhood.graph import Graph, between, following, least_trip
from pipesat.solver.neighbourhood.segment_memory import add_memory
from pipesat.solver.neighbourhood.slots import Freedom, Segment, Slot

_WEIGHT = 4  # of the objective, against the mean of the paths through the devices

Segments: TypeAlias = dict[int, tuple[int, int]]
"""Per device, the half-open range of positions whose items are free."""


@dataclass
class Window:
    """The CP-SAT model of a window.

    ``free[d]`` has the free items of device d's segment, ``fixed`` the starts of modelled items
    that keep their place, by the graph's numbers. ``weights[d]`` is what the longest path through
    device d counts in the objective, 1 if it is not there.
    """

    problem: Problem
    graph: Graph
    segments: Segments
    freedom: Freedom = field(default_factory=Freedom)
    known: Gains = field(default_factory=lambda: NO_GAINS)
    weights: Mapping[int, int] = field(default_factory=dict)
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    free: dict[int, Segment] = field(default_factory=dict)
    fixed: dict[int, cp_model.IntVar] = field(default_factory=dict)
    ends: dict[Event, cp_model.LinearExprT] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.graph
        latest = graph.value + max(graph.release)
        for device, places in self.segments.items():
            segment = self.free[device] = Segment(
                self.problem, graph, self.cp, device, places, self.known, self.freedom, latest
            )
            there = (slot for slot in segment.slots if slot.item is not None)
            self.ends |= {slot.op.event: slot.end for slot in there}
        for item in between(graph, self._free_items()):
            self._add_fixed(item)
        for segment in self.free.values():
            self._add_segment(segment)
        for item in self.fixed:
            self._add_place(item)
        self._add_objective()

    def _free_items(self) -> set[int]:
        slots = (slot for segment in self.free.values() for slot in segment.slots)
        return {slot.item for slot in slots if slot.item is not None}

    def _add_fixed(self, item: int) -> None:
        graph = self.graph
        duration = graph.sequence.duration[item]
        start = self.cp.new_int_var(0, graph.value - duration - graph.tail[item], "")
        self.cp.add_hint(start, graph.start[item])
        self.fixed[item] = start
        for op in members(graph.sequence.item[item]):
            self.ends[op.event] = start + duration

    def _add_segment(self, segment: Segment) -> None:
        """Free items do not overlap, keep the order of stage and phase, and fit into memory."""
        slots, pairs, earlier = segment.slots, segment.pairs, segment.earlier
        self.cp.add_no_overlap([i for slot in slots for i in slot.intervals])
        for slot in slots:
            if earlier:
                self.cp.add(slot.start >= self._end(earlier[-1]))
            self._add_inputs(slot.start, slot.op, slot.item)
            if slot.phase == "B" and self.problem.has_modes:
                for variant in slot.variants:
                    self._add_trip(slot.start, variant.op, variant.chosen)
            if slot.backward is not None:
                self.cp.add(slot.start >= slot.backward.end).only_enforce_if(slot.present)
        for chain in segment.chains():
            for before, after in pairwise(chain):
                if before.present is True and after.present is True:
                    order = self.cp.add(after.start >= before.end)
                    if together := pairs.together(before, after):
                        order.only_enforce_if([~pair for pair in together])
                        self.cp.add(after.start >= before.start)
        add_memory(segment)

    def _add_place(self, item: int) -> None:
        """An item outside starts after the one before it on its device and after its inputs."""
        sequence = self.graph.sequence
        before = sequence.before[item]
        device = sequence.device[item]
        for op in members(sequence.item[item]):
            self._add_inputs(self.fixed[item], op, item)
            if op.kind in ("B", "BW"):
                self._add_trip(self.fixed[item], op, True)
        low, high = self.segments.get(device, (0, 0))
        if before >= 0 and low <= self.graph.place[before] < high:
            for slot in self.free[device].slots:
                self.cp.add(self.fixed[item] >= slot.end).only_enforce_if(slot.present)
        elif before >= 0:
            self.cp.add(self.fixed[item] >= self._end(before))

    def _add_inputs(self, start: cp_model.IntVar, op: Op, item: int | None) -> None:
        """An op starts after what it waits for, be that modelled or have fixed times."""
        need = None if item is None else awaited(self.problem, op)
        if item is None or need is None:
            return
        for source, delay in self.graph.sequence.inputs[item]:
            if any(
                other.event == need.event for other in members(self.graph.sequence.item[source])
            ):
                self.cp.add(start >= self.ends.get(need.event, self.graph.end(source)) + delay)
                return

    def _add_trip(self, start: cp_model.IntVar, op: Op, condition: Literal) -> None:
        """The backward of an offloaded microbatch waits for its copies."""
        trip = least_trip(self.problem, op)
        if not trip:
            return
        event: Event = (op.stage, "F", op.microbatch)
        end = self.ends.get(event)
        if end is None:
            end = self.graph.end(self.graph.forwards[op[::2]])
        waits = self.cp.add(start >= end + trip)
        if not isinstance(condition, bool):
            waits.only_enforce_if(condition)

    def _end(self, item: int) -> cp_model.LinearExprT:
        """End of an item that keeps its place."""
        start = self.fixed.get(item, self.graph.start[item])
        return start + self.graph.sequence.duration[item]

    def _add_objective(self) -> None:
        """Minimise the objective, and with less weight the longest path through each device.

        Windows that cannot shorten the whole schedule then still make room for others that can.
        """
        graph, sequence = self.graph, self.graph.sequence
        least = -max(graph.release)
        self.value = self.cp.new_int_var(least, graph.value, "")
        self.cp.add_hint(self.value, graph.value)
        for item in self.fixed:
            self.cp.add(self._end(item) + graph.tail[item] <= self.value)
        onward = following(self.problem, graph, self._free_items() | self.fixed.keys())
        paths, weights = [], []
        for device, (_, high) in self.segments.items():
            row = graph.rows[device]
            rest = -graph.release[device]
            if high < len(row):
                rest = sequence.duration[row[high]] + graph.tail[row[high]]
            longest = self.cp.new_int_var(least, graph.value, "")
            for slot in self.free[device].slots:
                tail = max(rest, onward.get(slot.op.event, rest))
                self.cp.add(slot.end + tail <= longest).only_enforce_if(slot.present)
            self.cp.add(longest <= self.value)
            paths.append(longest)
            weights.append(self.weights.get(device, 1))
        through = cp_model.LinearExpr.weighted_sum(paths, weights)
        self.cp.minimize(_WEIGHT * max(1, sum(weights)) * self.value + through)

    def order(self, solver: cp_model.CpSolver) -> dict[int, list[Item]]:
        """Read the segments' new orders out of a solution."""
        result = {}
        for device, segment in self.free.items():
            keys = []
            for place, slot in enumerate(segment.slots):
                if _holds(solver, slot.present):
                    begin, end = solver.value(slot.start), solver.value(slot.end)
                    keys.append((begin, end, place, _op(solver, slot)))
            row = [op for *_, op in sorted(keys, key=lambda key: key[:3])]
            partner: dict[Event, Event] = {}
            for choice in segment.pairs.all:
                if solver.value(choice.literal):
                    one, other = (slot.op.event for slot in choice.both)
                    partner |= {one: other, other: one}
            result[device] = list(joined(self.problem, row, partner))
        return result


def replaced(order: Order, segments: Segments, new: dict[int, list[Item]]) -> Order:
    """Put new segments into an order; F's before them run in the modes of their backwards."""
    rows: list[Sequence[Item]] = list(order)
    for device, (low, high) in segments.items():
        before = rows[device][:low]
        known, modes = _modes(rows[device][low:high]), _modes(new[device])
        if changed := {cell: mode for cell, mode in modes.items() if known.get(cell) != mode}:
            before = [_in_mode(item, changed) for item in before]
        rows[device] = (*before, *new[device], *rows[device][high:])
    return tuple(map(tuple, rows))


def _modes(row: Iterable[Item]) -> dict[Cell, int]:
    """The mode of every backward of a row."""
    ops = (op for item in row for op in members(item))
    return {op[::2]: op.mode for op in ops if op.kind in ("B", "BW")}


def _in_mode(item: Item, modes: Mapping[Cell, int]) -> Item:
    if isinstance(item, Op) and item.kind == "F":
        return item._replace(mode=modes.get(item[::2], item.mode))
    return item


def _op(solver: cp_model.CpSolver, slot: Slot) -> Op:
    """The op that a slot has become."""
    return next(variant.op for variant in slot.variants if _holds(solver, variant.chosen))


def _holds(solver: cp_model.CpSolver, literal: Literal) -> bool:
    return literal if isinstance(literal, bool) else bool(solver.value(literal))
