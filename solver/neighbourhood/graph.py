"""An order as a graph with the longest paths into, out of and between its items."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pipesat.core.linear_order import LinearOrder
from pipesat.core.ops import Event, Item, Op, members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, offload_of
from pipesat.core.schedule import Objective, Order, Schedule
from pipesat.core.timing import earliest_ends, linearize, releases, schedule_of
from pipesat.kernels.timing import tails_of


@dataclass(frozen=True)
class Graph:
    """A timed order; items are numbered as in ``sequence``. Lists are indexed by item.

    Parameters
    ----------
    rows, place
        Items of each device in order; position of each item in its row.
    start
        Times, earliest for the makespan, of least span for the span.
    tail
        The objective is at least ``end of i + tail[i]``: the longest path from the end of i to the
        end of a device's last item, for the span less the start of that device's first item.
    release
        Start of each device's first item (0 for the makespan).
    forwards
        Item of every (stage, microbatch)'s F, where there are memory modes.
    """

    order: Order
    sequence: LinearOrder
    rows: list[list[int]]
    place: list[int]
    start: list[int]
    tail: list[int]
    release: list[int]
    value: int
    forwards: Mapping[tuple[int, int], int]

    def end(self, item: int) -> int:
        """End of an item."""
        return self.start[item] + self.sequence.duration[item]

    def schedule(self, source: str) -> Schedule:
        """Return it as a schedule."""
        return schedule_of(
            self.sequence, len(self.rows), [self.end(i) for i in range(len(self.start))], source
        )


def graph_of(problem: Problem, order: Order, objective: Objective) -> Graph:
    """Time an order for the objective and build its graph. O(items), with the span O(items p)."""
    sequence = linearize(problem, order)
    forwards: dict[tuple[int, int], int] = {}
    if problem.has_modes:
        for number, own in enumerate(sequence.item):
            forwards |= {op[::2]: number for op in members(own) if op.kind == "F"}
        sequence = _with_trips(problem, sequence, forwards)
    release = releases(sequence, len(problem.devices), objective)
    ends = earliest_ends(sequence, release)
    start = [end - length for end, length in zip(ends, sequence.duration, strict=True)]
    rows: list[list[int]] = [[] for _ in problem.devices]
    place = []
    for item, device in enumerate(sequence.device):
        place.append(len(rows[device]))
        rows[device].append(item)
    begin = release if objective == "makespan" else [start[r[0]] if r else 0 for r in rows]
    tail = tails_of(sequence.arrays, np.array(begin, np.int64)).tolist()
    value = max((ends[row[-1]] - begin[d] for d, row in enumerate(rows) if row), default=0)
    return Graph(order, sequence, rows, place, start, tail, begin, value, forwards)


def _with_trips(
    problem: Problem, sequence: LinearOrder, forwards: Mapping[tuple[int, int], int]
) -> LinearOrder:
    """Let backwards of offloaded microbatches wait as long as their copies take at least."""
    inputs = [*sequence.inputs]
    for number, item in enumerate(sequence.item):
        for op in members(item):
            if op.kind in ("B", "BW") and (trip := least_trip(problem, op)):
                inputs[number] = (*inputs[number], (forwards[op[::2]], trip))
    return replace(sequence, inputs=inputs)


def least_trip(problem: Problem, op: Op) -> int:
    """Least time from the end of a F to its backward for its copies; 0 if it is not offloaded."""
    offload = offload_of(problem, op)
    return 0 if offload is None else offload.time_out + offload.time_in


def between(graph: Graph, free: Collection[int]) -> set[int]:
    """Return the other items that lie on a path between two free ones."""
    sequence = graph.sequence
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
    return (leads & follows) - set(free)


def following(problem: Problem, graph: Graph, modelled: Collection[int]) -> dict[Event, int]:
    """Longest path from an event of a modelled item through its receivers not modelled."""
    sequence = graph.sequence
    result: dict[Event, int] = {}
    for item in range(min(modelled), len(sequence.item)):
        if item in modelled:
            continue
        for source, delay in sequence.inputs[item]:
            if source in modelled:
                path = delay + sequence.duration[item] + graph.tail[item]
                for event in events_of(graph, source) & _awaited_of(problem, sequence.item[item]):
                    result[event] = max(path, result.get(event, path))
    return result


def events_of(graph: Graph, item: int) -> set[Event]:
    """Return what an item completes."""
    return {op.event for op in members(graph.sequence.item[item])}


def _awaited_of(problem: Problem, item: Item) -> set[Event]:
    """Return what an item waits for; backwards of offloaded microbatches for their F's too."""
    found: set[Event] = set()
    for op in members(item):
        if (need := awaited(problem, op)) is not None:
            found.add(need.event)
        if op.kind in ("B", "BW") and least_trip(problem, op):
            found.add((op.stage, "F", op.microbatch))
    return found
