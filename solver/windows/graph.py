"""An order as a graph with the longest paths into, out of and between its items and copies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from pipesat.kernels.timing import tails_of
from pipesat.problem.ops import members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import inputs_of
from pipesat.schedule.linear_order import LinearOrder
from pipesat.schedule.schedule import Objective, Order, Schedule
from pipesat.schedule.timing import earliest_ends, linearize, releases, schedule_of, sequence_of
from pipesat.solver.model.alternatives import Part

Done: TypeAlias = tuple[int, Part, int]
"""A part of (stage, part, microbatch) is completed: an event, or the end of a copy."""


@dataclass(frozen=True)
class Graph:
    """A timed order; items are numbered as in ``sequence``. Lists are indexed by item.

    Where microbatches may be offloaded, copies are items as well, each in the row of its channel.

    Parameters
    ----------
    rows, place
        Items of each device in order, then those of the channels; position of each in its row.
    start
        Times, earliest for the makespan, of least span for the span.
    tail
        The objective is at least ``end of i + tail[i]``: the longest path from the end of i to the
        end of a device's last item, for the span less the start of that device's first item.
    release
        Start of each device's first item (0 for the makespan).
    """

    sequence: LinearOrder
    rows: list[list[int]]
    place: list[int]
    start: list[int]
    tail: list[int]
    release: list[int]
    value: int

    def end(self, item: int) -> int:
        """End of an item."""
        return self.start[item] + self.sequence.duration[item]

    @cached_property
    def order(self) -> Order:
        """The items of each device."""
        item = self.sequence.item
        return tuple(tuple(item[n] for n in row) for row in self.rows[: len(self.release)])

    @cached_property
    def number(self) -> dict[Done, int]:
        """The item that completes each part."""
        return {done: item for item in range(len(self.start)) for done in self.done(item)}

    def done(self, item: int) -> set[Done]:
        """Return what an item completes."""
        if (copy := self.sequence.copies.get(item)) is not None:
            return {(copy.stage, copy.kind, copy.microbatch)}
        return {op.event for op in members(self.sequence.item[item])}

    def schedule(self, source: str) -> Schedule:
        """Return it as a schedule."""
        ends = [self.end(i) for i in range(len(self.start))]
        return schedule_of(self.sequence, len(self.release), ends, source)


def graph_of(problem: Problem, made: Order | Schedule, objective: Objective) -> Graph:
    """Time an order, or a schedule with its copies, for the objective and build its graph.

    O(items), with the span O(items p).
    """
    if isinstance(made, Schedule):
        sequence = sequence_of(problem, made)
    else:
        sequence = linearize(problem, made)
    devices = len(problem.devices)
    release = releases(sequence, devices, objective)
    ends = earliest_ends(sequence, release)
    start = [end - length for end, length in zip(ends, sequence.duration, strict=True)]
    rows: list[list[int]] = [[] for _ in range(devices * (3 if problem.has_copies else 1))]
    place = []
    for item, row in enumerate(sequence.device):
        place.append(len(rows[row]))
        rows[row].append(item)
    own = rows[:devices]
    begin = release if objective == "makespan" else [start[r[0]] if r else 0 for r in own]
    tail = tails_of(sequence.arrays, np.array(begin, np.int64)).tolist()
    value = max((ends[row[-1]] - begin[d] for d, row in enumerate(own) if row), default=0)
    return Graph(sequence, rows, place, start, tail, begin, value)


def channel_of(problem: Problem, device: int, part: Part) -> int:
    """Row of the channel on which a device copies out (O) or back (L)."""
    apart = part == "L" and problem.devices[device].copy_channels > 1
    return len(problem.devices) + 2 * device + apart


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


def needs(problem: Problem, graph: Graph, item: int) -> set[tuple[Done, int]]:
    """Return what an item waits for by the data flow, and the delays after that."""
    if (copy := graph.sequence.copies.get(item)) is not None:
        return {((copy.stage, "F" if copy.kind == "O" else "O", copy.microbatch), 0)}
    ops = members(graph.sequence.item[item])
    return {(event, delay) for op in ops for event, delay in inputs_of(problem, op)}
