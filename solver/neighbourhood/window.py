"""Re-optimise the segments of some devices by CP-SAT, all else keeping its order.

Free items may change places within their device's segment. An item outside keeps its place; it is
modelled only if it lies on a path between two free items. What comes before has fixed times, what
comes after counts through the longest path that follows (``Graph.tail``), so the model is as small
as the window, whatever the size of the schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias, cast

from ortools.sat.python import cp_model

from pipesat.ops import PHASE_OF, Item, Phase, members
from pipesat.problem import Problem
from pipesat.rules import item_memory
from pipesat.schedule import Order
from pipesat.solver.model.variables import Literal
from pipesat.solver.neighbourhood.graph import Graph

_WEIGHT = 4  # of the objective, against the mean of the paths through the devices

Segments: TypeAlias = dict[int, tuple[int, int]]
"""Per device, the half-open range of positions whose items are free."""


@dataclass
class Window:
    """The CP-SAT model of a window. Numbers are those of the graph's items."""

    problem: Problem
    graph: Graph
    segments: Segments
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    start: dict[int, cp_model.IntVar] = field(default_factory=dict)
    free: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.free = frozenset(
            item
            for d, (low, high) in self.segments.items()
            for item in self.graph.rows[d][low:high]
        )
        for item in sorted(_between(self.graph, self.free)):
            self.start[item] = self._new_start(item)
        self._add_order()
        self._add_dataflow()
        for device, (low, high) in self.segments.items():
            self._add_memory(device, self.graph.rows[device][low:high])
        self._add_objective()

    def _new_start(self, item: int) -> cp_model.IntVar:
        graph = self.graph
        latest = graph.value - graph.sequence.duration[item]
        if item not in self.free:
            latest -= graph.tail[item]
        else:
            latest += max(graph.release)
        var = self.cp.new_int_var(graph.release[graph.sequence.device[item]], latest, "")
        self.cp.add_hint(var, graph.start[item])
        return var

    def _add_order(self) -> None:
        """Free items of a device do not overlap; others stay where they are."""
        graph = self.graph
        for device, row in enumerate(graph.rows):
            low, high = self.segments.get(device, (0, 0))
            if high - low > 1:
                self.cp.add_no_overlap(
                    [
                        self.cp.new_fixed_size_interval_var(
                            self.start[item], graph.sequence.duration[item], ""
                        )
                        for item in row[low:high]
                    ]
                )
                for chain in _chains(graph, row[low:high]).values():
                    for before, after in pairwise(chain):
                        self._after(after, before, 0)
            if low < high and low:
                for item in row[low:high]:
                    self._after(item, row[low - 1], 0)
        for item in self.start:
            before = graph.sequence.before[item]
            if before < 0 or item in self.free:
                continue
            if before in self.free:
                low, high = self.segments[graph.sequence.device[item]]
                for other in graph.rows[graph.sequence.device[item]][low:high]:
                    self._after(item, other, 0)
            else:
                self._after(item, before, 0)

    def _add_dataflow(self) -> None:
        for item in self.start:
            for source, delay in self.graph.sequence.inputs[item]:
                self._after(item, source, delay)

    def _after(self, item: int, source: int, delay: int) -> None:
        """Start of an item >= end of another + delay, whether that one is modelled or fixed."""
        duration = self.graph.sequence.duration[source]
        if source in self.start:
            self.cp.add(self.start[item] >= self.start[source] + duration + delay)
        else:
            self.cp.add(self.start[item] >= self.graph.start[source] + duration + delay)

    def _add_objective(self) -> None:
        """Minimise the objective, and with less weight the longest path through each device.

        Windows that cannot shorten the whole schedule then still make room for others that can.
        """
        graph, sequence = self.graph, self.graph.sequence
        least = -max(graph.release)
        self.value = self.cp.new_int_var(least, graph.value, "")
        self.cp.add_hint(self.value, graph.value)
        for item, start in self.start.items():
            if item not in self.free:
                end = start + sequence.duration[item]
                self.cp.add(end + graph.tail[item] <= self.value)
        following = _following(graph, self.start)
        through = []
        for device, (low, high) in self.segments.items():
            row = graph.rows[device]
            rest = -graph.release[device]
            if high < len(row):
                rest = sequence.duration[row[high]] + graph.tail[row[high]]
            tails = {item: max(rest, following.get(item, rest)) for item in row[low:high]}
            longest = self.cp.new_int_var(least, graph.value, "")
            self.cp.add_hint(longest, max(graph.end(i) + tail for i, tail in tails.items()))
            for item, tail in tails.items():
                self.cp.add(self.start[item] + sequence.duration[item] + tail <= longest)
            self.cp.add(longest <= self.value)
            through.append(longest)
        self.cp.minimize(_WEIGHT * len(through) * self.value + sum(through))

    def _add_memory(self, device: int, segment: Sequence[int]) -> None:
        room = self.problem.devices[device].room
        if room is None:
            return
        graph = self.graph
        items = graph.sequence.item
        changes = {item: item_memory(self.problem, items[item]) for item in segment}
        held = 0
        for item in graph.rows[device][: graph.place[segment[0]]] if segment else ():
            held += sum(item_memory(self.problem, items[item]))
        if held + sum(change.at_start for change in changes.values()) <= room:
            return
        before = _Before(self, segment)
        for event in segment:
            taken = changes[event].at_start
            if taken <= 0:
                continue
            literals, coefficients, constant = [], [], held + taken
            for item in segment:
                change = sum(changes[item])
                if item == event or not change:
                    continue
                literal = before(item, event)
                if isinstance(literal, bool):
                    constant += change * literal
                else:
                    literals.append(literal)
                    coefficients.append(change)
            if constant + sum(c for c in coefficients if c > 0) > room:
                terms = cp_model.LinearExpr.weighted_sum(literals, coefficients)
                self.cp.add(terms <= room - constant)

    def order(self, solver: cp_model.CpSolver) -> dict[int, list[Item]]:
        """Read the segments' new orders out of a solution."""
        graph = self.graph
        result = {}
        for device, (low, high) in self.segments.items():
            keys = []
            for place, item in enumerate(graph.rows[device][low:high]):
                start = solver.value(self.start[item])
                keys.append((start, start + graph.sequence.duration[item], place, item))
            result[device] = [graph.sequence.item[item] for *_, item in sorted(keys)]
        return result


def replaced(order: Order, segments: Segments, new: dict[int, list[Item]]) -> Order:
    """Put new segments into an order."""
    rows = list(order)
    for device, (low, high) in segments.items():
        rows[device] = (*rows[device][:low], *new[device], *rows[device][high:])
    return tuple(rows)


class _Before:
    """Literals "x ends before the event starts" among the items of one segment."""

    def __init__(self, window: Window, segment: Sequence[int]) -> None:
        self.window = window
        self.known: dict[tuple[int, int], Literal] = {}
        self.position = {item: n for n, item in enumerate(segment)}
        chains = _chains(window.graph, segment)
        self.previous = {after: before for c in chains.values() for before, after in pairwise(c)}
        self.after = _closure(window.graph, segment, self.previous)

    def __call__(self, x: int, event: int) -> Literal:
        if self.after[event] >> self.position[x] & 1:
            return True
        if self.after[x] >> self.position[event] & 1:
            return False
        if (x, event) not in self.known:
            self._create(x, event)
        return self.known[x, event]

    def _create(self, x: int, event: int) -> None:
        window, sequence = self.window, self.window.graph.sequence
        cp = window.cp
        literal = cp.new_bool_var("")
        self.known[x, event] = literal
        self.known[event, x] = cast(Literal, ~literal)
        start, duration = window.start, sequence.duration
        cp.add(start[x] + duration[x] <= start[event]).only_enforce_if(literal)
        cp.add(start[event] + duration[event] <= start[x]).only_enforce_if(~literal)
        cp.add_hint(literal, self.position[x] < self.position[event])
        if (earlier := self.previous.get(x)) is not None and earlier != event:
            other = self(earlier, event)
            if not isinstance(other, bool):
                cp.add_implication(literal, other)
        if (sooner := self.previous.get(event)) is not None and sooner != x:
            other = self(x, sooner)
            if not isinstance(other, bool):
                cp.add_implication(other, literal)


def _chains(graph: Graph, segment: Sequence[int]) -> dict[tuple[int, Phase], list[int]]:
    """Items of a segment by stage and phase; each list keeps its order."""
    chains: dict[tuple[int, Phase], list[int]] = {}
    for item in segment:
        for op in members(graph.sequence.item[item]):
            chains.setdefault((op.stage, PHASE_OF[op.kind]), []).append(item)
    return chains


def _closure(graph: Graph, segment: Sequence[int], previous: dict[int, int]) -> dict[int, int]:
    """Per item, the bit set of the segment's positions that must come before it.

    By stage and phase order, by data flow within the device, and by what these imply.
    """
    position = {item: n for n, item in enumerate(segment)}
    last: dict[tuple[int, str, int], int] = {}
    after: dict[int, int] = {}
    for item in segment:  # the present order is one of those allowed: sources come first
        sources = [previous[item]] if item in previous else []
        sources += [source for source, _ in graph.sequence.inputs[item] if source in position]
        for op in members(graph.sequence.item[item]):
            phase = PHASE_OF[op.kind]
            if phase == "B" and (op.stage, "F", op.microbatch) in last:
                sources.append(last[op.stage, "F", op.microbatch])
            last[op.stage, phase, op.microbatch] = item
        bits = 0
        for source in sources:
            bits |= after[source] | 1 << position[source]
        after[item] = bits
    return after


def _between(graph: Graph, free: frozenset[int]) -> set[int]:
    """Return the free items and all that lie on a path between two of them."""
    sequence = graph.sequence
    if not free:
        return set()
    first, last = min(free), max(free)
    leads: set[int] = set(free)
    for item in range(last, first - 1, -1):
        if item in leads:
            if sequence.before[item] >= first:
                leads.add(sequence.before[item])
            leads.update(source for source, _ in sequence.inputs[item] if source >= first)
    follows: set[int] = set(free)
    for item in range(first, last + 1):
        if item not in follows and (
            sequence.before[item] in follows
            or any(source in follows for source, _ in sequence.inputs[item])
        ):
            follows.add(item)
    return (leads & follows) | free


def _following(graph: Graph, modelled: dict[int, cp_model.IntVar]) -> dict[int, int]:
    """Longest path from the end of a modelled item through its receivers that are not modelled."""
    sequence = graph.sequence
    result: dict[int, int] = {}
    first, last = min(modelled), max(modelled)
    del last
    for item in range(first, len(sequence.item)):
        if item in modelled:
            continue
        for source, delay in sequence.inputs[item]:
            if source in modelled:
                path = delay + sequence.duration[item] + graph.tail[item]
                result[source] = max(path, result.get(source, path))
    return result
