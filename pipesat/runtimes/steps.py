"""Step lists: what each rank does, communication included, for any schedule.

A rank's list has its compute steps in the schedule's order and a send or a receive for everything
that crosses ranks; stages on one device hand over without communication. Sends and receives may
block until the other side is there (*rendezvous*), and the lists still cannot deadlock:

    Put all compute steps and all transfers into **one** sequence in which a transfer stands once,
    after the op that produces its data and before the op that needs it, and ops stand after what
    they wait for and in their device's order. A rank's list is the part of that sequence in which
    the rank takes part. Take the first entry that has not completed yet. Its ranks have completed
    all their earlier entries, so it is the next one of each of them: a compute step has its inputs
    and runs, a transfer finds both sides waiting. So there is always an entry that can proceed.

It follows too that two ranks see the messages between them in one order, so that channels without
tags (NCCL, gloo) match them correctly.

The sequence is the order of time of the schedule at its earliest. A transfer stands at the latest
instant between the producer's end and the consumer's start (less the link's delay) at which neither
rank computes: there, waiting for the other side delays no op. Where no such instant is found near
the consumer, it stands where it delays least.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Literal, NamedTuple, TypeAlias

from pipesat.core.grouping import grouped
from pipesat.problem.ops import Event, Item, Op, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import inputs_of
from pipesat.schedule.linear_order import LinearOrder
from pipesat.schedule.schedule import Order, Schedule
from pipesat.schedule.timing import earliest_ends, linearize

StepKind: TypeAlias = Literal[
    "RecvActivations",
    "Forward",
    "SendActivations",
    "RecvGradient",
    "Backward",
    "Weight",
    "SendGradient",
    "WaitSendActivations",
    "WaitSendGradient",
    "ForwardAndForward",
    "ForwardAndBackward",
    "ForwardAndWeight",
    "BackwardAndBackward",
    "BackwardAndWeight",
    "WeightAndWeight",
]

_GAPS = 16  # of the receiver before the consumer, that are searched for a free instant


class RankStep(NamedTuple):
    """One step of a rank.

    ``item`` is the op that is computed, or the pair (``ForwardAndBackward`` and its like, whatever
    the order of the members); of a send, the op whose result leaves; of a receive, the op that
    needs it. ``peer`` is the other rank. A ``Wait`` is for an earlier send.
    """

    kind: StepKind
    item: Item
    peer: int | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.item}"


Steps: TypeAlias = tuple[tuple[RankStep, ...], ...]
"""Per rank (device), its steps in order."""

COMPUTE: Final[dict[str, StepKind]] = {
    "F": "Forward",
    "B": "Backward",
    "BW": "Backward",
    "W": "Weight",
}


def steps_of(problem: Problem, schedule: Schedule, *, at_once: bool = False) -> Steps:
    """Return every rank's steps. O(n log n) for n ops.

    With ``at_once``, transfers stand directly after the ops that produce their data.
    """
    linear = linearize(problem, schedule.order)
    ends = earliest_ends(linear, [0] * len(problem.devices))
    events = [
        (end - length, int(length > 0), 2 * number, 0)
        for number, (end, length) in enumerate(zip(ends, linear.duration, strict=True))
    ]
    transfers = list(_transfers(problem, linear))
    rows, place = _rows(linear, ends, len(problem.devices))
    for number, transfer in enumerate(transfers):
        instant = ends[transfer.producer]
        if not at_once:
            sender, receiver = rows[linear.device[transfer.producer]], rows[transfer.receiver]
            instant = _meeting(sender, receiver, place[transfer.consumer], instant, transfer.delay)
        # at one instant: ops without length and transfers by dependency, then the ops that start
        events.append((instant, 0, 2 * transfer.producer + 1, number))
    steps: list[list[RankStep]] = [[] for _ in problem.devices]
    for _, _, tie, number in sorted(events):
        here = linear.device[tie // 2]
        if tie % 2 == 0:
            steps[here].append(computed(linear.item[tie // 2]))
        else:
            steps[here].append(transfers[number].send)
            steps[transfers[number].receiver].append(transfers[number].receive)
    return tuple(map(tuple, steps))


def late_steps(problem: Problem, order: Order) -> Steps:
    """Post each receive directly before the op that needs it, each send directly after its op.

    A pair has both receives before it and both sends after it, each time the forward's first, and
    those of two forwards or two backwards as the pair is written: a sender does not know in which
    order its receiver will want them.
    """
    linear = linearize(problem, order)
    transfers = list(_transfers(problem, linear))
    before = grouped((transfer.consumer, transfer.receive) for transfer in transfers)
    after = grouped((transfer.producer, transfer.send) for transfer in transfers)
    steps: list[list[RankStep]] = [[] for _ in problem.devices]
    for number, (device, item) in enumerate(zip(linear.device, linear.item, strict=True)):
        written = sorted(members(item), key=lambda op: op.kind != "F")
        posts = (
            sorted(of.get(number, ()), key=lambda step: written.index(members(step.item)[0]))
            for of in (before, after)
        )
        receives, sends = posts
        steps[device] += [*receives, computed(item), *sends]
    return tuple(map(tuple, steps))


def lowered_steps(problem: Problem, order: Order) -> Steps:
    """Return what torch makes of an order of ops (``_add_send_recv``, 2.13 and 2.15).

    It goes through the ops in rounds (:func:`in_rounds`). A send stands directly after its op, of a
    pair the forward's first. Its receive joins the other rank's list at that moment.
    """
    linear = linearize(problem, order)
    sent = outgoing(problem, linear)
    steps: list[list[RankStep]] = [[] for _ in problem.devices]
    for number in in_rounds(linear):
        steps[linear.device[number]].append(computed(linear.item[number]))
        for transfer in sent.get(number, ()):
            steps[linear.device[number]].append(transfer.send)
            steps[transfer.receiver].append(transfer.receive)
    return tuple(map(tuple, steps))


def in_rounds(linear: LinearOrder) -> list[int]:
    """Items by the round in which torch's lowering takes them, then by rank.

    An item comes one round after the one before it on its rank; within a round ranks take turns
    from 0 on, so data of a lower rank is there in the same round, of a higher one in the next.
    """
    rounds: list[int] = []
    for device, before, inputs in zip(linear.device, linear.before, linear.inputs, strict=True):
        after = [rounds[before] + 1] if before >= 0 else []
        sent = (rounds[j] + (linear.device[j] > device) for j, _ in inputs)
        rounds.append(max(chain(after, sent), default=0))
    return sorted(range(len(rounds)), key=lambda i: (rounds[i], linear.device[i]))


def computed(item: Item) -> RankStep:
    """Return the step in which an item is computed."""
    return RankStep(compute_kind(item), item)


def compute_kind(item: Item) -> StepKind:
    """Return the kind of step in which an item is computed."""
    ordered = sorted((COMPUTE[op.kind] for op in members(item)), key=[*COMPUTE.values()].index)
    return "And".join(ordered)  # type: ignore[return-value]


class Transfer(NamedTuple):
    """From item ``producer`` to item ``consumer`` of the linear order, as steps of both ranks."""

    producer: int
    consumer: int
    send: RankStep
    receive: RankStep
    delay: int

    @property
    def receiver(self) -> int:
        """The rank that receives."""
        return self.send.peer or 0

    @property
    def sender(self) -> int:
        """The rank that sends."""
        return self.receive.peer or 0

    @property
    def gives(self) -> Op:
        """The op whose result is sent."""
        return members(self.send.item)[0]


def outgoing(problem: Problem, linear: LinearOrder) -> dict[int, list[Transfer]]:
    """Per producing item, its transfers; a pair sends its forward's result first, as in torch."""
    transfers = sorted(_transfers(problem, linear), key=lambda one: one.gives.kind != "F")
    return grouped((transfer.producer, transfer) for transfer in transfers)


def _transfers(problem: Problem, linear: LinearOrder) -> Iterator[Transfer]:
    """All data that crosses devices, by consumer."""
    giver: dict[Event, tuple[int, Op]] = {}
    for number, (there, item) in enumerate(zip(linear.device, linear.item, strict=True)):
        for op in members(item):
            for need in inputs_of(problem, op):
                producer, gives = giver[need.event]
                if (here := linear.device[producer]) != there:
                    send: StepKind = "SendActivations" if op.kind == "F" else "SendGradient"
                    receive: StepKind = "RecvActivations" if op.kind == "F" else "RecvGradient"
                    ends = RankStep(send, gives, there), RankStep(receive, op, here)
                    yield Transfer(producer, number, *ends, need.delay)
        for op in members(item):
            giver[op.event] = number, op


@dataclass
class _DeviceRow:
    """Starts and ends of a device's items, and where each stands in it."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def free_until(self, instant: int) -> int:
        """Latest time, not after ``instant``, at which the device is not inside an item."""
        before = bisect_left(self.starts, instant) - 1
        return instant if before < 0 or self.ends[before] <= instant else self.starts[before]

    def busy_until(self, instant: int) -> int:
        """When the item ends that runs at ``instant``; ``instant`` if none does."""
        before = bisect_left(self.starts, instant) - 1
        return instant if before < 0 else max(instant, self.ends[before])

    def delayed(self, instant: int, until: int) -> int:
        """By how much the first item from ``instant`` on starts late if it waits for ``until``."""
        after = bisect_left(self.starts, instant)
        return max(0, until - self.starts[after]) if after < len(self.starts) else 0


def _rows(linear: LinearOrder, ends: list[int], devices: int) -> tuple[list[_DeviceRow], list[int]]:
    """Return the devices' rows, and the place of each item within its own."""
    rows, place = [_DeviceRow() for _ in range(devices)], []
    for device, length, end in zip(linear.device, linear.duration, ends, strict=True):
        place.append(len(rows[device].starts))
        rows[device].starts.append(end - length)
        rows[device].ends.append(end)
    return rows, place


def _meeting(sender: _DeviceRow, receiver: _DeviceRow, place: int, ready: int, delay: int) -> int:
    """When a transfer happens: from the producer's end to the consumer's start less the delay."""
    needed = receiver.starts[place] - delay
    candidates = [needed, ready]
    for gap in range(place, max(-1, place - _GAPS), -1):  # the gap before each item, going back
        opens = max(ready, receiver.ends[gap - 1] if gap else 0)
        closes = min(needed, receiver.starts[gap])
        if opens <= closes:
            instant = sender.free_until(closes)
            if instant >= opens:
                return instant
            candidates += [closes, opens]
        if opens == ready:
            break

    def lost(instant: int) -> int:
        both = max(sender.busy_until(instant), receiver.busy_until(instant))
        return sender.delayed(instant, both) + receiver.delayed(instant, both)

    return min(candidates, key=lost)
