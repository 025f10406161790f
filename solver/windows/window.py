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

from pipesat.problem.ops import Copy, Item, Op, members
from pipesat.problem.problem import Problem
from pipesat.problem.variants import Key
from pipesat.schedule.schedule import Order, Schedule, Timed, TimedCopy
from pipesat.solver.model.alternatives import COPIES, joined
from pipesat.solver.model.pairing import NO_GAINS, Gains
from pipesat.solver.windows.graph import Done, Graph, between, channel_of
from pipesat.solver.windows.limits import Nodes
from pipesat.solver.windows.node import NO_PATH
from pipesat.solver.windows.segment_memory import add_memory, add_memory_over_time
from pipesat.solver.windows.slots import CopyRow, Freedom, FreeRow, Segment, Slot

_WEIGHT = 4  # of the objective, against the mean of the paths through the devices

Segments: TypeAlias = dict[int, tuple[int, int]]
"""Per row of the graph, the half-open range of positions whose items are free."""


@dataclass
class Window:
    """The CP-SAT model of a window.

    ``free`` has the free items by row: of devices, then of channels. ``weights[d]`` is what the
    longest path through device d counts in the objective, 1 if it is not there.
    """

    problem: Problem
    graph: Graph
    segments: Segments
    freedom: Freedom = field(default_factory=Freedom)
    known: Gains = field(default_factory=lambda: NO_GAINS)
    weights: Mapping[int, int] = field(default_factory=dict)
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    free: dict[int, FreeRow] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, cp = self.graph, self.cp
        copied = {
            (copy.stage, copy.microbatch)
            for number, (low, high) in self.segments.items()
            for copy in map(graph.sequence.copies.get, graph.rows[number][low:high])
            if copy is not None and copy.kind == "O"
        }
        for device in [number for number in self.segments if number < len(graph.release)]:
            segment = Segment(
                self.problem,
                graph,
                cp,
                device,
                self.segments[device],
                self.known,
                self.freedom,
                copied,
            )
            self.free[device] = segment
            for number in {channel_of(self.problem, device, part) for part in COPIES}:
                if number in self.segments:
                    self.free[number] = CopyRow(graph, number, self.segments[number], segment)
        free = {number for row in self.free.values() for number in row.row}
        self.nodes = Nodes(self.problem, graph, self.free, between(graph, free))
        for row in self.free.values():
            row.add_variables()
        for item, node in self.nodes.of_item.items():
            node.start = cp.new_int_var(node.low, node.last_start, "")
            node.end = node.start + node.least
            cp.add_hint(node.start, graph.start[item])
        for before, after, delay in self.nodes.waits:
            if before.high + delay > after.low:
                cp.add(after.start >= before.end + delay)
        for before, after, wait, present in self.nodes.conditional:
            begin = before.start if wait is None else before.end + wait
            cp.add(after.start >= begin).only_enforce_if(present)
        slots = {slot.done: slot for row in self.free.values() for slot in row.slots}
        for row in self.free.values():
            self._add_row(row, slots)
            if isinstance(row, Segment):
                if row.may_copy:
                    add_memory_over_time(row, self.free, slots)
                else:
                    add_memory(row)
        self._add_objective()

    def _add_row(self, row: FreeRow, slots: Mapping[Done, Slot]) -> None:
        """Free items do not overlap, and keep the order of their chains."""
        self.cp.add_no_overlap([i for slot in row.slots for i in slot.intervals])
        for slot in row.slots:
            if slot.done[1] == "W" and slot.present is not True:
                backward = slots[slot.done[0], "B", slot.done[2]]
                self.cp.add(slot.start >= backward.end).only_enforce_if(slot.present)
        for before, after in row.neighbours():
            if together := row.pairs.together(before, after):
                order = self.cp.add(after.start >= before.end)
                order.only_enforce_if([~pair for pair in together])
                self.cp.add(after.start >= before.start)
            elif before.high > after.low:
                self.cp.add(after.start >= before.end)
        for one, two in row.found():
            self.cp.add(two.start >= one.end)

    def _add_objective(self) -> None:
        """Minimise the objective, and with less weight the longest path through each device.

        Windows that cannot shorten the whole schedule then still leave place for others that can.
        """
        graph = self.graph
        least = -max(graph.release)
        self.value = self.cp.new_int_var(least, graph.value, "")
        self.cp.add_hint(self.value, graph.value)
        for node in self.nodes.of_item.values():
            self.cp.add(node.end + node.tail <= self.value)
        paths, weights = [], []
        for number, row in self.free.items():
            longest = self.value
            if number < len(graph.release):
                longest = self.cp.new_int_var(least, graph.value, "")
                self.cp.add(longest <= self.value)
                paths.append(longest)
                weights.append(self.weights.get(number, 1))
            for slot in row.slots:
                for time, tail in (
                    (slot.end, slot.tail),
                    (slot.start, slot.tail_of_start),
                ):
                    if tail > NO_PATH // 2:
                        self.cp.add(time + tail <= longest).only_enforce_if(slot.present)
        through = cp_model.LinearExpr.weighted_sum(paths, weights)
        self.cp.minimize(_WEIGHT * max(1, sum(weights)) * self.value + through)

    def order(self, solver: cp_model.CpSolver) -> dict[int, list[Item]]:
        """Read the segments' new orders out of a solution."""
        result = {}
        for device, segment in self.free.items():
            if isinstance(segment, CopyRow):
                continue
            keys = []
            for place, slot in enumerate(segment.slots):
                if solver.boolean_value(slot.present):
                    begin, end = solver.value(slot.start), solver.value(slot.end)
                    op = next(
                        one.op for one in slot.alternatives if solver.boolean_value(one.chosen)
                    )
                    keys.append((begin, end, place, op))
            row = [op for *_, op in sorted(keys, key=lambda key: key[:3])]
            partner = segment.pairs.found(solver.value, lambda slot: slot.op.event)
            result[device] = list(joined(self.problem, row, partner))
        return result

    def schedule(self, solver: cp_model.CpSolver, source: str) -> Schedule:
        """Read a solution with its copies, what comes after the window as early as it can."""
        graph, sequence = self.graph, self.graph.sequence
        slots = [slot for row in self.free.values() for slot in row.slots]
        times = {
            slot.done: (solver.value(slot.start), solver.value(slot.end))
            for slot in slots
            if solver.boolean_value(slot.present)
        }
        ends = [graph.end(item) for item in range(len(graph.start))]
        for item, node in self.nodes.of_item.items():
            ends[item] = solver.value(node.end)
        free = {number for row in self.free.values() for number in row.row}
        for item in range(min(free), len(ends)):
            if item not in free and item not in self.nodes.of_item:
                begin = self.nodes.ready(item, ends, times)
                ends[item] = begin + sequence.duration[item]

        def timed(item: Item) -> Timed:
            done = members(item)[0].event
            if done in times:
                return Timed(item, *times[done])
            number = graph.number[done]
            return Timed(item, ends[number] - sequence.duration[number], ends[number])

        order = replaced(graph.order, self.segments, self.order(solver))
        copied = [
            (ends[item] - sequence.duration[item], ends[item], copy)
            for item, copy in sequence.copies.items()
            if item not in free
        ]
        for (stage, part, microbatch), time in times.items():
            if part in ("O", "L"):
                copied.append((*time, Copy(stage, part, microbatch)))
        copies: list[list[TimedCopy]] = [[] for _ in order]
        for start, end, copy in sorted(copied, key=lambda x: (*x[:2], x[2].kind == "L")):
            device = self.problem.stages[copy.stage].device
            copies[device].append(TimedCopy(copy, start, end))
        rows = tuple(tuple(map(timed, row)) for row in order)
        return Schedule(rows, source, tuple(map(tuple, copies)) if any(copies) else ())


def replaced(order: Order, segments: Segments, new: dict[int, list[Item]]) -> Order:
    """Put new segments into an order; F's before them run in the modes of their backwards."""
    rows: list[Sequence[Item]] = list(order)
    for device, own in new.items():
        low, high = segments[device]
        before = rows[device][:low]
        known, modes = _modes(rows[device][low:high]), _modes(own)
        if changed := {key: mode for key, mode in modes.items() if known.get(key) != mode}:
            before = [_in_mode(item, changed) for item in before]
        rows[device] = (*before, *own, *rows[device][high:])
    return tuple(map(tuple, rows))


def _modes(row: Iterable[Item]) -> dict[Key, int]:
    """The mode of every backward of a row."""
    ops = (op for item in row for op in members(item))
    return {op[::2]: op.mode for op in ops if op.kind in ("B", "BW")}


def _in_mode(item: Item, modes: Mapping[Key, int]) -> Item:
    if isinstance(item, Op) and item.kind == "F":
        return item._replace(mode=modes.get(item[::2], item.mode))
    return item
