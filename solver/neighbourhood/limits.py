"""When what a window models can start and end, so that its model lacks what cannot be.

Heads and tails along all that holds whatever the order of the free ops: data flow, the sequence of
what is not free, the order of microbatches. Solutions that count are no longer than the present
order, so they keep to these limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from pipesat.core.arrays import ints
from pipesat.core.ops import Event, Op, members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited
from pipesat.kernels import windows as kernel
from pipesat.kernels.arrays import UNLIMITED
from pipesat.solver.neighbourhood.graph import Graph, events_of, following, least_trip
from pipesat.solver.neighbourhood.node import Node
from pipesat.solver.neighbourhood.slots import Planned, Segment


class Wait(NamedTuple):
    """One starts ``delay`` after another's end, or later."""

    before: Node
    after: Node
    delay: int = 0


class Nodes:
    """The nodes of a window, with their limits.

    ``of_event`` has them by what they complete, ``of_item`` those between free ones; ``waits`` are
    what holds in every solution and no other constraint says.
    """

    def __init__(
        self, problem: Problem, graph: Graph, free: Mapping[int, Segment], between: Set[int]
    ) -> None:
        self.problem, self.graph, self.free = problem, graph, free
        self.of_item = {n: Node(n, graph.sequence.duration[n], fixed=True) for n in sorted(between)}
        self.of_event: dict[Event, Node] = {}
        for number, node in self.of_item.items():
            self.of_event |= dict.fromkeys(events_of(graph, number), node)
        for plan in self._free():
            self.of_event[plan.op.event] = plan.node
        self._set_tails()
        self.waits = [*self._data_flow(), *self._sequence()]
        self._settle([*self.waits, *self._implied()])

    def forward(self, op: Op) -> tuple[Node | None, int]:
        """Return the F of a backward if it is modelled, and when that ends at present."""
        forward: Event = (op.stage, "F", op.microbatch)
        return self.of_event.get(forward), self.graph.end(self.graph.forwards[op[::2]])

    def _free(self) -> Iterator[Planned]:
        """Yield what is free and there at present."""
        for segment in self.free.values():
            yield from (plan for plan in segment.planned if plan.item is not None)

    def _set_tails(self) -> None:
        graph = self.graph
        modelled = {*self.of_item, *(n for segment in self.free.values() for n in segment.row)}
        for event, tail in following(self.problem, graph, modelled).items():
            self.of_event[event].tail = max(tail, self.of_event[event].tail)
        last = [(graph.place[number], number, [node]) for number, node in self.of_item.items()]
        for segment in self.free.values():
            nodes = [plan.node for plan in segment.planned]
            last.append((graph.place[segment.row[-1]], segment.row[-1], nodes))
        for place, number, nodes in last:
            row = graph.rows[graph.sequence.device[number]]
            tail = -graph.release[graph.sequence.device[number]]
            if place + 1 < len(row):
                after = row[place + 1]
                if after in modelled:
                    continue
                tail = graph.sequence.duration[after] + graph.tail[after]
            for node in nodes:
                node.tail = max(tail, node.tail)

    def _data_flow(self) -> Iterator[Wait]:
        """What ops wait for; of what is not modelled the end is known."""
        graph = self.graph
        ops = [(plan.op, plan.node) for plan in self._free()]
        for number, node in self.of_item.items():
            ops += [(op, node) for op in members(graph.sequence.item[number])]
        for op, node in ops:
            if (need := awaited(self.problem, op)) is None:
                continue
            if (source := self.of_event.get(need.event)) is not None:
                yield Wait(source, node, need.delay)
                continue
            for number, delay in graph.sequence.inputs[node.place]:
                if need.event in events_of(graph, number):
                    node.low = max(node.low, graph.end(number) + delay)

    def _sequence(self) -> Iterator[Wait]:
        """What stands on its device before a segment, or before an item between free ones."""
        graph = self.graph
        first = [
            (segment.row[0], p.node) for segment in self.free.values() for p in segment.planned
        ]
        for item, node in (*first, *self.of_item.items()):
            before, device = graph.sequence.before[item], graph.sequence.device[item]
            if before in self.of_item:
                yield Wait(self.of_item[before], node)
            elif device in self.free and before in self.free[device].row:
                sure = (plan for plan in self.free[device].planned if plan.present is True)
                yield from (Wait(plan.node, node) for plan in sure)
            else:
                known = graph.release[device] if before < 0 else graph.end(before)
                node.low = max(node.low, known)

    def _implied(self) -> Iterator[Wait]:
        """What other constraints say: copies, and the order of microbatches."""
        backwards = [(p.op, p.node, [v.op for v in p.variants]) for p in self._free()]
        for number, node in self.of_item.items():
            ops = members(self.graph.sequence.item[number])
            backwards += [(op, node, [op]) for op in ops]
        for op, node, ways in backwards:
            if op.kind in ("B", "BW") and (trip := min(least_trip(self.problem, w) for w in ways)):
                forward, end = self.forward(op)
                if forward is None:
                    node.low = max(node.low, end + trip)
                else:
                    yield Wait(forward, node, trip)
        for segment in self.free.values():
            for plan in segment.planned:
                if plan.item is None:
                    yield Wait(self.of_event[plan.op.stage, "B", plan.op.microbatch], plan.node)
            for one, two in segment.neighbours(segment.planned):
                if one.present is True and two.present is True:
                    together = segment.may_be_together(one.op)
                    yield Wait(one.node, two.node, -one.node.least if together else 0)

    def _settle(self, waits: list[Wait]) -> None:
        """Tighten limits and sequences (:func:`pipesat.kernels.windows.settle`)."""
        value, latest = self.graph.value, self.graph.value + max(self.graph.release)
        waits.sort(key=lambda wait: wait.after.place)
        for before, after, delay in reversed(waits):
            if after.fixed:
                before.tail = max(before.tail, delay + after.least + after.tail)
        segments = [*self.free.values()]
        plans = [plan for segment in segments for plan in segment.planned]
        nodes = [*(plan.node for plan in plans), *self.of_item.values()]
        number = {id(node): at for at, node in enumerate(nodes)}
        rooms = (self.problem.devices[segment.device].room for segment in segments)
        sizes = [len(segment.planned) for segment in segments]

        first = np.zeros((sum(sizes), max(sizes)), np.uint8)
        begin = [*accumulate(sizes, initial=0)]
        for segment, at, size in zip(segments, begin, sizes, strict=False):
            first[at : at + size, :size] = segment.first
        found = kernel.Nodes(
            low=ints(node.low for node in nodes),
            high=ints(min(latest, value - node.tail) for node in nodes),
            least=ints(node.least for node in nodes),
            present=ints(plan.present is True for plan in plans),
            taken=ints(min(variant.taken for variant in plan.variants) for plan in plans),
            net=ints(min(variant.memory.net for variant in plan.variants) for plan in plans),
            before=ints(number[id(wait.before)] for wait in waits),
            after=ints(number[id(wait.after)] for wait in waits),
            delay=ints(wait.delay for wait in waits),
            begin=ints(begin),
            room=ints(UNLIMITED if room is None else room for room in rooms),
            held=ints(segment.least_held for segment in segments),
            apart=ints([self.problem.overlap is None]),
        )
        kernel.settle(found, first)
        for node, low, high in zip(nodes, found.low.tolist(), found.high.tolist(), strict=True):
            node.low, node.high = low, high
        for segment, at, size in zip(segments, begin, sizes, strict=False):
            segment.said, segment.first = segment.first, first[at : at + size, :size]
