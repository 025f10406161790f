"""The copies of an order's offloaded microbatches: where they go, or stay as a schedule has them.

Where they go (:func:`with_copies`): out soon, back just in time.

An order says which (stage, microbatch) are offloaded (the mode of their ops), not when they are
copied. Each device's memory is followed along its row. At the place before item q of the row, every
item before q has started and ended, and none from q on has started. There

* an O may run once its F is one of the items before q;
* an L may run if its microbatch fits in full beside all that items q, q + 1, ... hold up to its
  backward. It is placed so that it ends when its backward could start, or as soon after that as
  memory allows; the L's of a device are in the order of their backwards;
* what takes memory, an item or an L, waits for as many O's as must have ended for it to fit.

All of these are waits for earlier places of the same row, so that no order that can run without
copies is blocked by them; and memory that suffices with every O ended and every L right before its
backward suffices here, whatever the times are. Times come from the pass that times everything.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from pipesat.core.grouping import grouped, in_rows
from pipesat.problem.ops import Copy, Unreadable, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import copied_amount, memory_change, offload_of
from pipesat.schedule.deadlock import sequenced
from pipesat.schedule.linear_order import LinearOrder
from pipesat.schedule.schedule import Schedule


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


_UNLIMITED: Final = 1 << 62


def with_copies(
    problem: Problem, sequence: LinearOrder, ends: Sequence[int], lead: int = 0
) -> tuple[LinearOrder, list[int]]:
    """Return a sequence of items with the copies of what is offloaded, and where its items are now.

    Parameters
    ----------
    ends
        When the items will end, by the best guess there is: what just in time means.
    lead
        How many copies out an L allows for before it, on a channel that both directions share.
    """
    graph = CopyGraph(problem, sequence)
    devices = ((problem.stages[trip.stage].device, trip) for trip in graph.trips.values())
    trips = in_rows(len(problem.devices), devices)
    builders = [_Builder(graph, device, own, ends, lead) for device, own in enumerate(trips)]
    order: list[int] = []
    place = []
    for number, device in enumerate(sequence.device):
        order += builders[device].before_item(number)
        place.append(len(order))
        order.append(number)
    return graph.rearranged(order), place


def offloads_anything(problem: Problem, sequence: LinearOrder) -> bool:
    """Whether an item of the sequence belongs to an offloaded microbatch."""
    return not problem.plain and any(
        op.mode and op.kind == "F" and offload_of(problem, op)
        for item in sequence.item
        for op in members(item)
    )


class _Builder:
    """Places one device's copies, item after item along its row."""

    def __init__(
        self, graph: CopyGraph, device: int, trips: Sequence[Trip], ends: Sequence[int], lead: int
    ) -> None:
        problem, self.graph, self.ends = graph.problem, graph, ends
        data, self.items = problem.devices[device], graph.rows[device]
        self.slack = _UNLIMITED if data.slack is None else data.slack
        self.place = {number: at for at, number in enumerate(self.items)}
        self.changes = [memory_change(problem, graph.all.item[number]) for number in self.items]
        self.trips = sorted(trips, key=lambda trip: trip.backward)
        self.targets = self._targets(lead if data.copy_channels == 1 else 0)
        self.places = self._places()
        self.starting = grouped((trip.forward, trip) for trip in self.trips)  # by the item of F
        self.waiting: deque[Trip] = deque()  # out copies that have no place on the channel yet
        self.ended: deque[Trip] = deque()  # out copies on the channel that no one waits for yet
        self.held = 0
        self.free_at = 0  # by guess: when a shared channel is free
        self.awaited: list[tuple[int, int]] = []  # the last O that sets memory free
        self.next_back = 0

    def _ready(self, number: int) -> int:
        """When by guess the device is free for an item and its inputs are there, without copies."""
        before = self.graph.all.before[number]
        ready = 0 if before < 0 else self.ends[before]
        for source, delay in self.graph.inputs[number]:
            ready = max(ready, self.ends[source] + delay)
        return ready

    def _targets(self, lead: int) -> list[int]:
        """When each L should start: so that it and all after it end in time, or as early as 0."""
        targets = []
        latest = _UNLIMITED
        for trip in reversed(self.trips):
            latest = min(latest, self._ready(trip.backward)) - trip.time_in
            targets.append(latest - lead * trip.time_out)
            latest -= lead * trip.time_out
        return targets[::-1]

    def _places(self) -> list[int]:
        """Place of each L: the one of its target, or the first after that where memory suffices."""
        spare, ends = self._spare(), [self.ends[number] for number in self.items]
        places = []
        earliest = 0
        for trip, target in zip(self.trips, self.targets, strict=True):
            last = self.place[trip.backward]
            first = max(earliest, self.place[trip.forward] + 1)
            at = last
            while at > first and spare[at - 1] >= trip.freed and ends[at - 1] > target:
                at -= 1
            for item in range(at, last):
                spare[item] -= trip.freed
            places.append(at)
            earliest = at
        return places

    def _spare(self) -> list[int]:
        """Slack left while each item runs, with all O's ended and L's right before backwards."""
        opened, closed = [0] * len(self.items), [0] * len(self.items)
        for trip in self.trips:
            opened[self.place[trip.backward]] += trip.freed
            closed[self.place[trip.forward]] += trip.freed
        held, spare = 0, []
        for change, more, less in zip(self.changes, opened, closed, strict=True):
            held += more + change.at_start
            spare.append(self.slack - held)
            held += change.at_end - less
        return spare

    def before_item(self, number: int) -> Iterator[int]:
        """Numbers of the copies that get their place on a channel before an item, in this order."""
        at = self.place[number]
        while self.next_back < len(self.trips) and self.places[self.next_back] == at:
            trip, target = self.trips[self.next_back], self.targets[self.next_back]
            self.next_back += 1
            while self.waiting and self._next_end() <= target:
                yield self.send()
            while trip in self.waiting:
                yield self.send()
            if trip in self.ended:  # no one has waited for its O, which its L itself waits for
                self.ended.remove(trip)
            else:
                yield from self._make_fit(trip.freed)
                self.held += trip.freed
            back = self.graph.add(trip.back)
            self.graph.inputs[back] += [(self.items[at - 1], 0), *self.awaited]
            self.free_at = max(self.free_at, target) + trip.time_in
            yield back
        change = self.changes[at]
        if change.at_start > 0:
            yield from self._make_fit(change.at_start)
            self.graph.inputs[number] += self.awaited
        self.held += change.at_start + change.at_end
        self.waiting.extend(self.starting.get(number, ()))

    def _next_end(self) -> int:
        """When the next O would end, if it were next on the channel."""
        return max(self.free_at, self.ends[self.waiting[0].forward]) + self.waiting[0].time_out

    def send(self) -> int:
        """Put the next O on the channel."""
        self.free_at = self._next_end()
        trip = self.waiting.popleft()
        self.ended.append(trip)
        return self.graph.add(trip.out)

    def _make_fit(self, amount: int) -> Iterator[int]:
        """Wait for O's until so much more fits, or none is left."""
        while self.held + amount > self.slack and (self.ended or self.waiting):
            if not self.ended:
                yield self.send()
            trip = self.ended.popleft()
            self.held -= trip.freed
            self.awaited = [(self.graph.number[trip.out], 0)]


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
