"""An order's items and copies with what each waits for, put into one sequence at the end.

Copies are placed anew (:mod:`pipesat.core.copies`) or stay as a schedule has them
(:func:`as_copied`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pipesat.core.deadlock import sequenced
from pipesat.core.linear_order import LinearOrder
from pipesat.core.ops import Copy, Unreadable, members
from pipesat.core.rules import copied_amount, memory_change, offload_of

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule


class Trip(NamedTuple):
    """One offloaded (stage, microbatch): items of F and backward, copy times, what O sets free."""

    stage: int
    microbatch: int
    forward: int
    backward: int
    time_out: int
    time_in: int
    freed: int

    @property
    def out(self) -> Copy:
        """The copy out."""
        return Copy(self.stage, "O", self.microbatch)

    @property
    def back(self) -> Copy:
        """The copy back."""
        return Copy(self.stage, "L", self.microbatch)


class CopyGraph:
    """Items keep their numbers, copies follow; ``inputs[i]`` is what i waits for, with delays.

    ``rows`` has the numbers of each device's items, ``number`` that of each copy, ``trips`` what is
    offloaded.
    """

    def __init__(self, problem: Problem, sequence: LinearOrder) -> None:
        self.problem = problem
        self.all = LinearOrder(
            [*sequence.device], [*sequence.item], [*sequence.duration], [*sequence.before], []
        )
        self.inputs = [list(inputs) for inputs in sequence.inputs]
        self.rows: list[list[int]] = [[] for _ in problem.devices]
        self.trips: dict[tuple[int, int], Trip] = {}
        self.number: dict[Copy, int] = {}
        self._last: dict[int, int] = {}
        forwards: dict[tuple[int, int], int] = {}
        for number, (device, item) in enumerate(zip(sequence.device, sequence.item, strict=True)):
            self.rows[device].append(number)
            for op in members(item):
                offload = None if op.kind == "W" else offload_of(problem, op)
                key = op.stage, op.microbatch
                if offload and op.kind == "F":
                    forwards[key] = number
                elif offload and key in forwards:  # else in two modes: the checker's business
                    times, freed = (offload.time_out, offload.time_in), copied_amount(problem, op)
                    self.trips[key] = Trip(*key, forwards[key], number, *times, freed)

    def add(self, copy: Copy) -> int:
        """Add the next copy of its channel, with what it and its backward wait for.

        An O waits for its F, an L for its O, and the backward for the L.

        Raises
        ------
        ValueError
            If its microbatch is not offloaded.
        """
        trip = self.trips.get((copy.stage, copy.microbatch))
        if trip is None:
            raise ValueError(f"{copy}: its microbatch is not offloaded")
        device = self.problem.stages[copy.stage].device
        out = copy.kind == "O"
        own = not out and self.problem.devices[device].copy_channels > 1
        channel = len(self.problem.devices) + 2 * device + own
        number = self.number[copy] = len(self.all.item)
        self.all.copies[number] = copy
        self.all.device.append(channel)
        self.all.item.append(self.all.item[trip.forward])
        self.all.duration.append(trip.time_out if out else trip.time_in)
        self.all.before.append(self._last.get(channel, -1))
        self._last[channel] = number
        self.inputs.append([(trip.forward if out else self.number[trip.out], 0)])
        if not out:
            self.inputs[trip.backward].append((number, 0))
        return number

    def rearranged(self, order: Sequence[int]) -> LinearOrder:
        """Return everything in an order that respects what it waits for."""
        return replace(self.all, inputs=[tuple(own) for own in self.inputs]).rearranged(order)

    def sequence(self) -> LinearOrder | None:
        """Everything after what it waits for; ``None`` if there is a cyclic wait."""
        before = ([n] if n >= 0 else [] for n in self.all.before)
        waits = zip(before, self.inputs, strict=True)
        order = sequenced([[*first, *(source for source, _ in own)] for first, own in waits])
        return None if order is None else self.rearranged(order)


def as_copied(problem: Problem, sequence: LinearOrder, schedule: Schedule) -> LinearOrder | None:
    """Return a valid schedule's sequence with its copies and what memory makes it wait for.

    Memory with copies depends on times. What a device held when an item or copy took memory is not
    exceeded at any other times with

    1. the same sequence on every channel,
    2. every O that had ended by the start of an item or L that takes memory still ending by it,
    3. every L starting no earlier than the start of the item of its device that was the last to
       start at or before it, and the end of the one that was the last to end.

    ``None`` if no one sequence does all that, which only lengths of zero can bring about.
    """
    graph = CopyGraph(problem, sequence)
    for device in range(len(problem.devices)):
        _add_copies(graph, schedule, device)
        _wait_for_copies_out(graph, schedule, device)
    return graph.sequence()


def _add_copies(graph: CopyGraph, schedule: Schedule, device: int) -> None:
    """Add a device's copies, in sequence: rules 1 and 3, and what a copy itself waits for."""
    row = graph.rows[device]
    starts = [timed.start for timed in schedule.devices[device]]
    ends = [timed.end for timed in schedule.devices[device]]
    for copy, start, _ in schedule.copies_of(device):
        if isinstance(copy, Unreadable):
            raise ValueError(f"{copy.text!r} is not a copy")
        number = graph.add(copy)
        if copy.kind == "L":
            # of items at one instant, the backward itself and all after it come after the L
            most = bisect_left(row, graph.trips[copy.stage, copy.microbatch].backward)
            if begun := min(bisect_right(starts, start), most):
                item = row[begun - 1]
                graph.inputs[number].append((item, -graph.all.duration[item]))
            if over := min(bisect_right(ends, start), most):
                graph.inputs[number].append((row[over - 1], 0))


def _wait_for_copies_out(graph: CopyGraph, schedule: Schedule, device: int) -> None:
    """Rule 2. On a channel ends follow each other: the last O stands for all before it."""
    copies = [(graph.number[t.copy], t) for t in schedule.copies_of(device)]  # type: ignore[index]
    out = [(number, timed.end) for number, timed in copies if timed.copy.kind == "O"]  # type: ignore[union-attr]
    items = zip(graph.rows[device], schedule.devices[device], strict=True)
    taking = [(n, timed.start) for n, timed in copies if timed.copy.kind == "L"]  # type: ignore[union-attr]
    taking += [
        (number, timed.start)
        for number, timed in items
        if out and memory_change(graph.problem, graph.all.item[number]).at_start > 0
    ]
    for number, start in taking:
        if ended := bisect_right(out, start, key=lambda one: one[1]):
            graph.inputs[number].append((out[ended - 1][0], 0))
