"""Where the copies of an order's offloaded microbatches go: out soon, back just in time.

An order says which (stage, microbatch) are offloaded (the mode of their ops), not when they are
copied. Each device's memory is followed along its row. At the place before item q of the row, every
item before q has started and ended, and none from q on has started. There

* an O may run once its F is one of the items before q;
* an L may run if its microbatch fits in full beside all that items q, q + 1, ... hold up to its
  backward. It is placed so that it ends when its backward could start, or as soon after that as
  memory allows; the L's of a device are in the order of their backwards;
* whoever takes memory, an item or an L, waits for as many O's as must have ended for it to fit.

All of these are waits for earlier places of the same row, so that no order that can run without
copies is blocked by them; and memory that suffices with every O ended and every L right before its
backward suffices here, whatever the times are. Times come from the pass that times everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pipesat.core.linear_order import LinearOrder
from pipesat.core.ops import PHASE_OF, Copy, Op, members
from pipesat.core.rules import copied_amount, memory_change, offload_of

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.stage import Offload

_UNLIMITED: Final = 1 << 62


class _Trip(NamedTuple):
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
        return Copy(self.stage, "O", self.microbatch)

    @property
    def back(self) -> Copy:
        return Copy(self.stage, "L", self.microbatch)


@dataclass
class _Row:
    """What one device runs: ``items`` are numbers in the sequence, ``place`` the inverse of it."""

    room: int
    channels: int
    items: list[int] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)
    trips: list[_Trip] = field(default_factory=list)


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
    rows = _rows_of(problem, sequence)
    guess = _Guess(sequence, ends)
    builders = [_Builder(problem, d, row, sequence, guess, lead) for d, row in enumerate(rows)]
    result = LinearOrder([], [], [], [], [])
    new = [0] * len(sequence.item)
    for number, device in enumerate(sequence.device):
        builder = builders[device]
        for copy in builder.before_item(number):
            builder.emit(result, copy, new)
        before = sequence.before[number]
        inputs = [(new[source], delay) for source, delay in sequence.inputs[number]]
        inputs += [(source, 0) for source in builder.item_waits(number)]
        new[number] = len(result.item)
        result.device.append(device)
        result.item.append(sequence.item[number])
        result.duration.append(sequence.duration[number])
        result.before.append(-1 if before < 0 else new[before])
        result.inputs.append(tuple(inputs))
    for builder in builders:
        for copy in builder.at_the_end():
            builder.emit(result, copy, new)
    return result, new


def offloads_anything(problem: Problem, sequence: LinearOrder) -> bool:
    """Whether an item of the sequence belongs to an offloaded microbatch."""
    return not problem.plain and any(
        op.mode and op.kind == "F" and offload_of(problem, op)
        for item in sequence.item
        for op in members(item)
    )


class _Guess:
    """When items will end, and when each could start if it did not wait for copies."""

    def __init__(self, sequence: LinearOrder, ends: Sequence[int]) -> None:
        self.sequence, self.ends = sequence, ends

    def ready(self, number: int) -> int:
        """When the device is free for an item and its inputs are there."""
        before = self.sequence.before[number]
        ready = 0 if before < 0 else self.ends[before]
        for source, delay in self.sequence.inputs[number]:
            ready = max(ready, self.ends[source] + delay)
        return ready


def _rows_of(problem: Problem, sequence: LinearOrder) -> list[_Row]:
    rows = [
        _Row(_UNLIMITED if d.room is None else d.room, d.copy_channels) for d in problem.devices
    ]
    forwards: dict[tuple[int, int], int] = {}
    backwards: dict[tuple[int, int], int] = {}
    offloaded: list[tuple[Op, Offload]] = []
    for number, (device, item) in enumerate(zip(sequence.device, sequence.item, strict=True)):
        row = rows[device]
        row.place[number] = len(row.items)
        row.items.append(number)
        for op in members(item):
            offload = offload_of(problem, op)
            if offload is None or op.kind == "W":
                continue
            if PHASE_OF[op.kind] == "B":
                backwards[op.stage, op.microbatch] = number
                offloaded.append((op, offload))
            else:
                forwards[op.stage, op.microbatch] = number
    for op, offload in offloaded:
        key = (op.stage, op.microbatch)
        if key in forwards:  # else two modes for one microbatch: the checker's business
            times = offload.time_out, offload.time_in
            trip = _Trip(*key, forwards[key], backwards[key], *times, copied_amount(problem, op))
            rows[problem.stages[op.stage].device].trips.append(trip)
    return rows


class _Builder:
    """Builds one device's copies, place after place along its row."""

    def __init__(
        self,
        problem: Problem,
        device: int,
        row: _Row,
        sequence: LinearOrder,
        guess: _Guess,
        lead: int,
    ) -> None:
        self.row, self.guess, self.device = row, guess, device
        self.first_channel = len(problem.devices) + 2 * device
        self.changes = [memory_change(problem, sequence.item[number]) for number in row.items]
        self.trips = sorted(row.trips, key=lambda trip: trip.backward)
        self.targets = self._targets(lead if row.channels == 1 else 0)
        self.places = self._places()
        self.by_forward = _grouped(self.trips, lambda trip: trip.forward)
        self.by_backward = _grouped(self.trips, lambda trip: trip.backward)
        self.waiting: deque[_Trip] = deque()  # out copies that have no place on the channel yet
        self.ended: deque[_Trip] = deque()  # out copies on the channel that nobody waits for yet
        self.held = 0
        self.free_at = 0  # by guess: when a shared channel is free
        self.number: dict[Copy, int] = {}
        self.last: dict[int, int] = {}
        self.awaited: Copy | None = None
        self.next_back = 0
        self.trip_of = {copy: trip for trip in self.trips for copy in (trip.out, trip.back)}
        self.after: dict[Copy, list[Copy | int]] = {}  # an L's O's, and the item it comes after

    def _targets(self, lead: int) -> list[int]:
        """When each L should start: so that it and all after it end in time, or as early as 0."""
        targets = [0] * len(self.trips)
        latest = _UNLIMITED
        for index in range(len(self.trips) - 1, -1, -1):
            trip = self.trips[index]
            latest = min(latest, self.guess.ready(trip.backward)) - trip.time_in
            targets[index] = latest
            latest -= lead * trip.time_out
        return [target - lead * t.time_out for t, target in zip(self.trips, targets, strict=True)]

    def _places(self) -> list[int]:
        """Place of each L: the one of its target, or the first after that where memory suffices."""
        spare = self._spare()
        places = []
        earliest = 0
        for trip, target in zip(self.trips, self.targets, strict=True):
            last = self.row.place[trip.backward]
            first = max(earliest, self.row.place[trip.forward] + 1)
            at = last
            while at > first and spare[at - 1] >= trip.freed and self._later(at - 1, target):
                at -= 1
            for item in range(at, last):
                spare[item] -= trip.freed
            places.append(at)
            earliest = at
        return places

    def _later(self, at: int, target: int) -> bool:
        """Whether the place after item ``at`` comes too late for a start at ``target``."""
        return self.guess.ends[self.row.items[at]] > target

    def _spare(self) -> list[int]:
        """Room left while each item runs, with all O's ended and L's right before backwards."""
        held, spare = 0, []
        opened = {self.row.place[t.backward]: 0 for t in self.trips}
        for trip in self.trips:
            opened[self.row.place[trip.backward]] += trip.freed
        closed: dict[int, int] = {}
        for trip in self.trips:
            at = self.row.place[trip.forward]
            closed[at] = closed.get(at, 0) + trip.freed
        for at, change in enumerate(self.changes):
            held += opened.get(at, 0) + change.at_start
            spare.append(self.row.room - held)
            held += change.at_end - closed.get(at, 0)
        return spare

    def before_item(self, number: int) -> Iterator[Copy]:
        """Copies that get their place on a channel before an item, in this order."""
        at = self.row.place[number]
        while self.next_back < len(self.trips) and self.places[self.next_back] == at:
            trip, target = self.trips[self.next_back], self.targets[self.next_back]
            self.next_back += 1
            while self.waiting and self._ends_by(self.waiting[0], target):
                yield self._send()
            while trip in self.waiting:
                yield self._send()
            if trip in self.ended:  # nobody has waited for its O, which its L itself waits for
                self.ended.remove(trip)
            else:
                yield from self._make_room(trip.freed)
                self.held += trip.freed
            self.after[trip.back] = [trip.out, self.row.items[at - 1]]
            if self.awaited is not None:
                self.after[trip.back].append(self.awaited)
            self.free_at = max(self.free_at, target) + trip.time_in
            yield trip.back
        change = self.changes[at]
        if change.at_start > 0:
            yield from self._make_room(change.at_start)
        self.held += change.at_start + change.at_end
        self.waiting.extend(self.by_forward.get(number, ()))

    def at_the_end(self) -> Iterator[Copy]:
        """Copies out that nobody waited for."""
        while self.waiting:
            yield self._send()

    def _ends_by(self, trip: _Trip, time: int) -> bool:
        """Whether an O would end by then, if it were next on the channel."""
        return max(self.free_at, self.guess.ends[trip.forward]) + trip.time_out <= time

    def _send(self) -> Copy:
        trip = self.waiting.popleft()
        self.free_at = max(self.free_at, self.guess.ends[trip.forward]) + trip.time_out
        self.ended.append(trip)
        return trip.out

    def _make_room(self, amount: int) -> Iterator[Copy]:
        """Wait for O's until so much more fits, or none is left."""
        while self.held + amount > self.row.room and (self.ended or self.waiting):
            if not self.ended:
                yield self._send()
            trip = self.ended.popleft()
            self.held -= trip.freed
            self.awaited = trip.out

    def emit(self, result: LinearOrder, copy: Copy, new: Sequence[int]) -> None:
        """Append a copy to the sequence; ``new`` has the numbers of items that are there."""
        trip = self.trip_of[copy]
        out = copy.kind == "O"
        channel = self.first_channel + (not out and self.row.channels == 2)
        after: list[Copy | int] = [trip.forward] if out else self.after[copy]
        number = self.number[copy] = len(result.item)
        result.copies[number] = copy
        result.device.append(channel)
        result.item.append(result.item[new[trip.forward]])
        result.duration.append(trip.time_out if out else trip.time_in)
        result.before.append(self.last.get(channel, -1))
        result.inputs.append(
            tuple((self.number[x] if isinstance(x, Copy) else new[x], 0) for x in after)
        )
        self.last[channel] = number

    def item_waits(self, number: int) -> list[int]:
        """Copies that an item waits for: L's before backwards, the last O that sets memory free."""
        waits = [self.number[trip.back] for trip in self.by_backward.get(number, ())]
        if self.awaited is not None and self.changes[self.row.place[number]].at_start > 0:
            waits.append(self.number[self.awaited])
        return waits


def _grouped(trips: Sequence[_Trip], key: Callable[[_Trip], int]) -> dict[int, list[_Trip]]:
    groups: dict[int, list[_Trip]] = {}
    for trip in trips:
        groups.setdefault(key(trip), []).append(trip)
    return groups
