"""When what a window models can start and end, so that its model lacks what cannot be.

Heads and tails along all that holds whatever the order of the free ops: data flow, the sequence of
what is not free, the order of microbatches. Solutions that count are no longer than the present
order, so they keep to these limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np

from pipesat.core.arrays import ints
from pipesat.kernels import windows as kernel
from pipesat.kernels.arrays import UNLIMITED
from pipesat.problem.problem import Problem
from pipesat.problem.rules import inputs_of
from pipesat.solver.model.alternatives import COPIES, Literal, Part
from pipesat.solver.windows.graph import Done, Graph, needs
from pipesat.solver.windows.node import Node
from pipesat.solver.windows.slots import FreeRow, Slot

_BEFORE: Final[Mapping[Part, Part]] = {"O": "F", "L": "O", "B": "L"}  # of what is offloaded


class Wait(NamedTuple):
    """One starts ``delay`` after another's end, or later."""

    before: Node
    after: Node
    delay: int = 0


class Conditional(NamedTuple):
    """The same where ``present`` holds; without a delay, after the other's start."""

    before: Node
    after: Node
    delay: int | None
    present: Literal


class Nodes:
    """The nodes of a window, with their limits.

    ``of`` has what is free by what it completes, ``of_item`` the nodes of items between.
    ``waits`` are what holds in every solution and no other constraint says, ``conditional`` what
    holds where copies or W's are there.
    """

    def __init__(
        self, problem: Problem, graph: Graph, free: Mapping[int, FreeRow], between: Set[int]
    ) -> None:
        self.problem, self.graph, self.free = problem, graph, free
        self.of_item = {n: Node(n, graph.sequence.duration[n], fixed=True) for n in sorted(between)}
        self.of = {slot.done: slot for row in free.values() for slot in row.slots}
        self.conditional: list[Conditional] = []
        self._set_tails()
        self.waits = [*self._data_flow(), *self._trips(), *self._between(), *self._sequence()]
        self._settle([*self.waits, *self._implied()])

    def _waited_for(self, source: int, item: int, delay: int) -> Iterator[tuple[Slot, bool]]:
        """Yield the free parts for which an item waits if it waits for a free one.

        With them, whether only their start is waited for. For memory, an item waits for copies out
        that have ended, of which the last stands for all before it, and a copy back for the ops of
        its device that have started and ended.
        """
        graph = self.graph
        row, copies = self.free[graph.sequence.device[source]], graph.sequence.copies
        place = graph.place
        if source in copies:
            kind, most = copies[source].kind, place[source]
            for slot in row.slots:
                own = slot.item == source if kind == "L" else slot.done[1] == kind
                if own and slot.item is not None and place[slot.item] <= most:
                    yield slot, False
        elif item in copies and copies[item].kind == "L":
            most = place[row.row[-1]] if delay < 0 else place[source]
            for slot in row.slots:
                if slot.item is not None and place[slot.item] <= most:
                    yield slot, delay < 0
        else:
            for done in graph.done(source):
                if (done, delay) in needs(self.problem, graph, item):
                    yield self.of[done], False

    def ready(self, item: int, ends: Sequence[int], times: Mapping[Done, tuple[int, int]]) -> int:
        """When an item that is not modelled may start: ``times`` are those of what is free."""
        sequence = self.graph.sequence
        before, row = sequence.before[item], self.free.get(sequence.device[item])
        release = self.graph.release
        begin = release[sequence.device[item]] if sequence.device[item] < len(release) else 0
        if row is not None and item == row.after:
            here = [times[slot.done][1] for slot in row.slots if slot.done in times]
            begin = max(here if row.before < 0 else [*here, ends[row.before]], default=begin)
        elif before >= 0:
            begin = ends[before]
        for source, delay in sequence.inputs[item]:
            if not self._is_free(source):
                begin = max(begin, ends[source] + delay)
                continue
            for slot, begun in self._waited_for(source, item, delay):
                if slot.done in times:
                    start, end = times[slot.done]
                    begin = max(begin, start if begun else end + delay)
        return begin

    def _set_tails(self) -> None:
        graph, sequence = self.graph, self.graph.sequence
        modelled = {*self.of_item, *(n for row in self.free.values() for n in row.row)}
        for item in range(min(modelled), len(graph.start)):
            if item in modelled:
                continue
            path = sequence.duration[item] + graph.tail[item]
            for source, delay in sequence.inputs[item]:
                if source in self.of_item:
                    node = self.of_item[source]
                    node.tail = max(node.tail, delay + path)
                elif source in modelled:
                    for slot, begun in self._waited_for(source, item, delay):
                        if begun:
                            slot.tail_of_start = max(slot.tail_of_start, path)
                        else:
                            slot.tail = max(slot.tail, delay + path)
        nodes = [(self._next(n), sequence.device[n], node) for n, node in self.of_item.items()]
        nodes += [(x.after, x.number, slot) for x in self.free.values() for slot in x.slots]
        for after, row, node in nodes:
            if after is not None and after not in modelled:
                node.tail = max(node.tail, sequence.duration[after] + graph.tail[after])
            elif after is None and row < len(graph.release):
                node.tail = max(node.tail, -graph.release[row])

    def _next(self, item: int) -> int | None:
        row, place = self.graph.rows[self.graph.sequence.device[item]], self.graph.place[item]
        return row[place + 1] if place + 1 < len(row) else None

    def _modelled(self, done: Done) -> Node | None:
        """What completes a part, if it is modelled."""
        slot = self.of.get(done)
        return self.of_item.get(self.graph.number.get(done, -1)) if slot is None else slot

    def _data_flow(self) -> Iterator[Wait]:
        """What free ops wait for; of what is not modelled the end is known."""
        for slot in (slot for slot in self.of.values() if slot.item is not None):
            for event, delay in (
                inputs_of(self.problem, slot.op) if slot.done[1] not in COPIES else ()
            ):
                if (source := self._modelled(event)) is not None:
                    yield Wait(source, slot, delay)
                else:
                    slot.low = max(slot.low, self.graph.end(self.graph.number[event]) + delay)

    def _trips(self) -> Iterator[Wait]:
        """A copy out comes after its F, the copy back after that, the backward after that."""
        for (stage, part, microbatch), slot in self.of.items():
            if part not in _BEFORE:
                continue
            source = stage, _BEFORE[part], microbatch
            copy = self.of.get(source) if part == "B" else slot
            if (node := self._modelled(source)) is None:
                if (number := self.graph.number.get(source)) is not None:
                    slot.low = max(slot.low, self.graph.end(number))
            elif copy is None or copy.present is True:
                yield Wait(node, slot)
            else:
                self.conditional.append(Conditional(node, slot, 0, copy.present))

    def _between(self) -> Iterator[Wait]:
        """What items between free ones wait for."""
        inputs = self.graph.sequence.inputs
        for item, node in self.of_item.items():
            for source, delay in inputs[item]:
                if source in self.of_item:
                    yield Wait(self.of_item[source], node, delay)
                elif self._is_free(source):
                    for slot, begun in self._waited_for(source, item, delay):
                        if slot.present is True and not begun:
                            yield Wait(slot, node, delay)
                        else:
                            wait = None if begun else delay
                            self.conditional.append(Conditional(slot, node, wait, slot.present))
                else:
                    node.low = max(node.low, self.graph.end(source) + delay)

    def _is_free(self, item: int) -> bool:
        row = self.free.get(self.graph.sequence.device[item])
        return row is not None and 0 <= self.graph.place[item] - len(row.earlier) < len(row.row)

    def _sequence(self) -> Iterator[Wait]:
        """What stands on its device before a segment, or before an item between free ones."""
        graph = self.graph
        device, earlier = graph.sequence.device, graph.sequence.before
        nodes = [(earlier[n], device[n], node) for n, node in self.of_item.items()]
        nodes += [(x.before, x.number, slot) for x in self.free.values() for slot in x.slots]
        for before, row, node in nodes:
            if before < 0:
                known = graph.release[row] if row < len(graph.release) else 0
                node.low = max(node.low, known)
            elif before in self.of_item:
                yield Wait(self.of_item[before], node)
            elif self._is_free(before):
                for slot in self.free[row].slots:
                    if slot.present is True:
                        yield Wait(slot, node)
                    else:
                        self.conditional.append(Conditional(slot, node, 0, slot.present))
            else:
                node.low = max(node.low, graph.end(before))

    def _implied(self) -> Iterator[Wait]:
        """What other constraints say: absent W's, and the order of microbatches."""
        for row in self.free.values():
            for slot in row.slots:
                if slot.item is None and slot.done[1] == "W":
                    yield Wait(self.of[slot.op.stage, "B", slot.op.microbatch], slot)
            for one, two in row.neighbours():
                together = row.may_be_together(one.op)
                yield Wait(one, two, -one.least if together else 0)

    def _settle(self, waits: list[Wait]) -> None:
        """Tighten limits and sequences (:func:`pipesat.kernels.windows.settle`)."""
        value, latest = self.graph.value, self.graph.value + max(self.graph.release)
        waits.sort(key=lambda wait: wait.after.place)
        for before, after, delay in reversed(waits):
            if after.fixed:
                before.tail = max(before.tail, delay + after.least + after.tail)
        segments = [*self.free.values()]
        slots = [slot for segment in segments for slot in segment.slots]
        nodes = [*slots, *self.of_item.values()]
        number = {id(node): at for at, node in enumerate(nodes)}
        sizes = [len(segment.slots) for segment in segments]

        first = np.zeros((sum(sizes), max(sizes)), np.uint8)
        begin = [*accumulate(sizes, initial=0)]
        for segment, at, size in zip(segments, begin, sizes, strict=False):
            first[at : at + size, :size] = segment.first
        found = kernel.WindowNodes(
            low=ints(node.low for node in nodes),
            high=ints(min(latest, value - node.tail) for node in nodes),
            least=ints(node.least for node in nodes),
            present=ints(slot.present is True for slot in slots),
            taken=ints(min(one.taken for one in slot.alternatives) for slot in slots),
            net=ints(min(one.memory.net for one in slot.alternatives) for slot in slots),
            before=ints(number[id(wait.before)] for wait in waits),
            after=ints(number[id(wait.after)] for wait in waits),
            delay=ints(wait.delay for wait in waits),
            begin=ints(begin),
            slack=ints(UNLIMITED if x.slack is None else x.slack for x in segments),
            held=ints(segment.least_held for segment in segments),
            apart=ints([self.problem.overlap is None]),
        )
        kernel.settle(found, first)
        for node, low, high in zip(nodes, found.low.tolist(), found.high.tolist(), strict=True):
            node.low, node.high = low, high
        for segment, at, size in zip(segments, begin, sizes, strict=False):
            segment.said, segment.first = segment.first, first[at : at + size, :size]
