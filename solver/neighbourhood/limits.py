"""When what a window models can start and end, so that its model lacks what cannot be.

Heads and tails along all that holds whatever the order of the free ops: data flow, the sequence of
what is not free, the order of microbatches. Solutions that count are no longer than the present
order, so they keep to these limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from pipesat.core.arrays import ints
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited
from pipesat.kernels import windows as kernel
from pipesat.kernels.arrays import UNLIMITED
from pipesat.solver.model.alternatives import COPIES, Literal
from pipesat.solver.neighbourhood.graph import Done, Graph, needs
from pipesat.solver.neighbourhood.node import NO_PATH, Node
from pipesat.solver.neighbourhood.slots import FreeRow, Planned


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
        self.of = {plan.done: plan for row in free.values() for plan in row.planned}
        self.conditional: list[Conditional] = []
        self._set_tails()
        self.waits = [*self._data_flow(), *self._trips(), *self._between(), *self._sequence()]
        self._settle([*self.waits, *self._implied()])

    def _free(self) -> Iterator[Planned]:
        """Yield what is free and there at present."""
        yield from (plan for plan in self.of.values() if plan.item is not None)

    def _waited_for(self, source: int, item: int, delay: int) -> Iterator[tuple[Planned, bool]]:
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
            for plan in row.planned:
                own = plan.item == source if kind == "L" else plan.done[1] == kind
                if own and plan.item is not None and place[plan.item] <= most:
                    yield plan, False
        elif item in copies and copies[item].kind == "L":
            most = place[row.row[-1]] if delay < 0 else place[source]
            for plan in row.planned:
                if plan.item is not None and place[plan.item] <= most:
                    yield plan, delay < 0
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
            here = [times[plan.done][1] for plan in row.planned if plan.done in times]
            begin = max(here if row.before is None else [*here, ends[row.before]], default=begin)
        elif before >= 0:
            begin = ends[before]
        for source, delay in sequence.inputs[item]:
            if not self._is_free(source):
                begin = max(begin, ends[source] + delay)
                continue
            for plan, begun in self._waited_for(source, item, delay):
                if plan.done in times:
                    start, end = times[plan.done]
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
                    for plan, begun in self._waited_for(source, item, delay):
                        node = plan.node
                        if begun:
                            node.tail_of_start = max(node.tail_of_start, path)
                        else:
                            node.tail = max(node.tail, delay + path)
        last = [(self._next(n), sequence.device[n], [node]) for n, node in self.of_item.items()]
        last += [(x.after, x.number, [p.node for p in x.planned]) for x in self.free.values()]
        for after, row, nodes in last:
            tail = -graph.release[row] if row < len(graph.release) else NO_PATH
            if after in modelled:
                continue
            if after is not None:
                tail = sequence.duration[after] + graph.tail[after]
            for node in nodes:
                node.tail = max(tail, node.tail)

    def _next(self, item: int) -> int | None:
        row, place = self.graph.rows[self.graph.sequence.device[item]], self.graph.place[item]
        return row[place + 1] if place + 1 < len(row) else None

    def _modelled(self, done: Done) -> Node | None:
        """What completes a part, if it is modelled."""
        plan = self.of.get(done)
        return self.of_item.get(self.graph.number.get(done, -1)) if plan is None else plan.node

    def _data_flow(self) -> Iterator[Wait]:
        """What free ops wait for; of what is not modelled the end is known."""
        for plan in self._free():
            if plan.done[1] in COPIES or (need := awaited(self.problem, plan.op)) is None:
                continue
            if (source := self._modelled(need.event)) is not None:
                yield Wait(source, plan.node, need.delay)
            else:
                end = self.graph.end(self.graph.number[need.event])
                plan.node.low = max(plan.node.low, end + need.delay)

    def _trips(self) -> Iterator[Wait]:
        """A copy out comes after its F, the copy back after that, the backward after that."""
        for stage, part, microbatch in (done for done in self.of if done[1] != "W"):
            before = {"F": None, "O": "F", "L": "O", "B": "L"}[part]
            source, plan = (stage, before, microbatch), self.of[stage, part, microbatch]
            copy = self.of.get(source) if part == "B" else plan
            if before is None:
                continue
            if (node := self._modelled(source)) is None:
                if (number := self.graph.number.get(source)) is not None:
                    plan.node.low = max(plan.node.low, self.graph.end(number))
            elif copy is None or copy.present is True:
                yield Wait(node, plan.node)
            else:
                self.conditional.append(Conditional(node, plan.node, 0, copy.present))

    def _between(self) -> Iterator[Wait]:
        """What items between free ones wait for."""
        inputs = self.graph.sequence.inputs
        for item, node in self.of_item.items():
            for source, delay in inputs[item]:
                if source in self.of_item:
                    yield Wait(self.of_item[source], node, delay)
                elif self._is_free(source):
                    for plan, begun in self._waited_for(source, item, delay):
                        if plan.present is True and not begun:
                            yield Wait(plan.node, node, delay)
                        else:
                            wait = None if begun else delay
                            self.conditional.append(
                                Conditional(plan.node, node, wait, plan.present)
                            )
                else:
                    node.low = max(node.low, self.graph.end(source) + delay)

    def _is_free(self, item: int) -> bool:
        row = self.free.get(self.graph.sequence.device[item])
        return row is not None and 0 <= self.graph.place[item] - len(row.earlier) < len(row.row)

    def _sequence(self) -> Iterator[Wait]:
        """What stands on its device before a segment, or before an item between free ones."""
        graph = self.graph
        first = [(x.before, x.number, plan.node) for x in self.free.values() for plan in x.planned]
        before_items = graph.sequence.before
        first += [
            (None if before_items[n] < 0 else before_items[n], graph.sequence.device[n], node)
            for n, node in self.of_item.items()
        ]
        for before, row, node in first:
            if before is None:
                known = graph.release[row] if row < len(graph.release) else 0
                node.low = max(node.low, known)
            elif before in self.of_item:
                yield Wait(self.of_item[before], node)
            elif self._is_free(before):
                for plan in self.free[row].planned:
                    if plan.present is True:
                        yield Wait(plan.node, node)
                    else:
                        self.conditional.append(Conditional(plan.node, node, 0, plan.present))
            else:
                node.low = max(node.low, graph.end(before))

    def _implied(self) -> Iterator[Wait]:
        """What other constraints say: absent W's, and the order of microbatches."""
        for row in self.free.values():
            for plan in row.planned:
                if plan.item is None and plan.done[1] == "W":
                    yield Wait(self.of[plan.op.stage, "B", plan.op.microbatch].node, plan.node)
            for one, two in row.neighbours(row.planned):
                if one.present is True and two.present is True:
                    together = row.may_be_together(one.op)
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
            taken=ints(min(one.taken for one in plan.alternatives) for plan in plans),
            net=ints(min(one.memory.net for one in plan.alternatives) for plan in plans),
            before=ints(number[id(wait.before)] for wait in waits),
            after=ints(number[id(wait.after)] for wait in waits),
            delay=ints(wait.delay for wait in waits),
            begin=ints(begin),
            room=ints(UNLIMITED if x.room is None else x.room for x in segments),
            held=ints(segment.least_held for segment in segments),
            apart=ints([self.problem.overlap is None]),
        )
        kernel.settle(found, first)
        for node, low, high in zip(nodes, found.low.tolist(), found.high.tolist(), strict=True):
            node.low, node.high = low, high
        for segment, at, size in zip(segments, begin, sizes, strict=False):
            segment.said, segment.first = segment.first, first[at : at + size, :size]
