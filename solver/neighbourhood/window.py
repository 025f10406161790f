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
from typing import TypeAlias

from ortools.sat.python import cp_model

from pipesat.core.ops import Event, Item, Op, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order
from pipesat.solver.model.pairing import NO_GAINS, Gains
from pipesat.solver.model.variants import Literal, joined
from pipesat.solver.modes.assign import Cell
from pipesat.solver.neighbourhood.graph import Graph, between, least_trip
from pipesat.solver.neighbourhood.limits import Nodes
from pipesat.solver.neighbourhood.node import Node
from pipesat.solver.neighbourhood.segment_memory import add_memory
from pipesat.solver.neighbourhood.slots import Freedom, Segment, Slot

_WEIGHT = 4  # of the objective, against the mean of the paths through the devices

Segments: TypeAlias = dict[int, tuple[int, int]]
"""Per device, the half-open range of positions whose items are free."""


@dataclass
class Window:
    """The CP-SAT model of a window.

    ``free[d]`` has the free items of device d's segment. ``weights[d]`` is what the longest path
    through device d counts in the objective, 1 if it is not there.
    """

    problem: Problem
    graph: Graph
    segments: Segments
    freedom: Freedom = field(default_factory=Freedom)
    known: Gains = field(default_factory=lambda: NO_GAINS)
    weights: Mapping[int, int] = field(default_factory=dict)
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    free: dict[int, Segment] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, cp = self.graph, self.cp
        for device, places in self.segments.items():
            self.free[device] = Segment(
                self.problem, graph, cp, device, places, self.known, self.freedom
            )
        free = {number for segment in self.free.values() for number in segment.row}
        self.nodes = Nodes(self.problem, graph, self.free, between(graph, free))
        for segment in self.free.values():
            segment.add_slots()
        for item, node in self.nodes.of_item.items():
            node.start = cp.new_int_var(node.low, node.last_start, "")
            node.end = node.start + node.least
            cp.add_hint(node.start, graph.start[item])
        for before, after, delay in self.nodes.waits:
            if before.high + delay > after.low:
                cp.add(after.start >= before.end + delay)
        for segment in self.free.values():
            self._add_segment(segment)
        for item in self.nodes.of_item:
            self._add_place(item)
        self._add_objective()

    def _add_segment(self, segment: Segment) -> None:
        """Free items do not overlap, keep the order of stage and phase, and fit into memory."""
        slots, pairs = segment.slots, segment.pairs
        self.cp.add_no_overlap([i for slot in slots for i in slot.intervals])
        for slot in slots:
            for variant in slot.variants:
                self._add_trip(slot.node, variant.op, variant.chosen)
            if slot.backward is not None:
                self.cp.add(slot.start >= slot.backward.end).only_enforce_if(slot.present)
        for before, after in segment.neighbours(slots):
            if before.present is True and after.present is True:
                if together := pairs.together(before, after):
                    order = self.cp.add(after.start >= before.end)
                    order.only_enforce_if([~pair for pair in together])
                    self.cp.add(after.start >= before.start)
                elif before.node.high > after.node.low:
                    self.cp.add(after.start >= before.end)
        for one, two in segment.found():
            self.cp.add(two.start >= one.end)
        add_memory(segment)

    def _add_place(self, item: int) -> None:
        """An item outside starts after its copies, and after what may be before it in a segment."""
        sequence, node = self.graph.sequence, self.nodes.of_item[item]
        for op in members(sequence.item[item]):
            self._add_trip(node, op, True)
        before, segment = sequence.before[item], self.free.get(sequence.device[item])
        if segment is not None and before == segment.row[-1]:
            for slot in segment.slots:
                if slot.present is not True:
                    self.cp.add(node.start >= slot.end).only_enforce_if(slot.present)

    def _add_trip(self, node: Node, op: Op, condition: Literal) -> None:
        """The backward of an offloaded microbatch waits for its copies."""
        trip = least_trip(self.problem, op) if op.kind in ("B", "BW") else 0
        if trip and condition is not False:
            forward, end = self.nodes.forward(op)
            waits = self.cp.add(node.start >= (end if forward is None else forward.end) + trip)
            if condition is not True:
                waits.only_enforce_if(condition)

    def _add_objective(self) -> None:
        """Minimise the objective, and with less weight the longest path through each device.

        Windows that cannot shorten the whole schedule then still make room for others that can.
        """
        graph = self.graph
        least = -max(graph.release)
        self.value = self.cp.new_int_var(least, graph.value, "")
        self.cp.add_hint(self.value, graph.value)
        for node in self.nodes.of_item.values():
            self.cp.add(node.end + node.tail <= self.value)
        paths, weights = [], []
        for device, segment in self.free.items():
            longest = self.cp.new_int_var(least, graph.value, "")
            for slot in segment.slots:
                self.cp.add(slot.end + slot.node.tail <= longest).only_enforce_if(slot.present)
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
