"""Timing an order where transfers queue: one at a time per pair of ranks, or per rank.

The contract's links are independent: any number of transfers travel at once. NCCL, as PyTorch's
pipeline runtime uses it, gives a pair of ranks one communicator with one stream, so that transfers
between two ranks, in both directions, run one by one in program order; a communicator for the whole
group makes all transfers of a rank do so (PyTorch 2.13, ``_batch_p2p``; pytorch issues 172668 and
188833).

Program order is that of torch's lowering (``_add_send_recv``): ranks take turns, in rounds, each
running its next op if its inputs were sent; the send stands right after the op that produces the
data, and the receive is appended to the other rank's list at that moment. So a transfer starts when

- its producer has ended,
- the op that stands before the receive in the receiver's list has ended: a communication waits for
  the compute that was enqueued before it,
- the channel's previous transfer has ended,

occupies its channel for the link's delay, and then its consumer may start. Every transfer ends no
earlier than with independent links, so no op does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from pipesat.core.copies import offloads_anything
from pipesat.core.errors import NotApplicable
from pipesat.core.linear_order import LinearOrder
from pipesat.core.ops import Event, Op, members
from pipesat.core.rules import awaited
from pipesat.core.schedule import Order
from pipesat.core.timing import earliest_ends, linearize

if TYPE_CHECKING:
    from pipesat.core.problem import Problem

Links: TypeAlias = Literal["independent", "pair", "rank"]
"""How transfers queue: not at all, per unordered pair of ranks, or per rank."""


class Transfer(NamedTuple):
    """Data that crosses ranks: of the op that produces it, to the op that needs it."""

    sender: int
    receiver: int
    gives: Op
    needs: Op


class Queued(NamedTuple):
    """How late the transfers between two ranks start: the sum of start - end of the producer."""

    ranks: tuple[int, int]
    waiting: int


def queued(network: LinearOrder) -> list[Queued]:
    """Waiting time of the transfers of every pair of ranks, the longest first.

    It need not cost makespan: what arrives late may be needed later still.
    """
    ends = earliest_ends(network, [0])
    total = Counter[tuple[int, int]]()
    for number, node in enumerate(network.item):
        if isinstance(node, Transfer):
            (producer, _), *_ = network.inputs[number]
            waited = ends[number] - network.duration[number] - ends[producer]
            total[_pair(node.sender, node.receiver)] += waited
    return sorted((Queued(*entry) for entry in total.items()), key=lambda q: (-q.waiting, q.ranks))


def network_of(problem: Problem, order: Order, links: Links) -> LinearOrder:
    """Put an order's items, and its transfers if they queue, into one sequence.

    Transfers (:class:`Transfer`) are items on device -1.

    Raises
    ------
    Deadlock, ValueError
        As :func:`pipesat.core.timing.time_order`.
    """
    linear = linearize(problem, order)
    if offloads_anything(problem, linear):
        raise NotApplicable(
            "risk knows no copies yet: memory of offloaded microbatches depends on when they run"
        )
    return linear if links == "independent" else _with_transfers(problem, linear, links)


class _Crossing(NamedTuple):
    """Transfer to item ``consumer`` of the linear order, which takes ``delay``."""

    consumer: int
    transfer: Transfer
    delay: int


def _with_transfers(problem: Problem, linear: LinearOrder, links: Links) -> LinearOrder:
    """Go through the items in the order of torch's lowering; transfers follow their producer."""
    result = LinearOrder([], [], [], [], [])
    place: dict[int, int] = {}  # node of each item
    received: dict[int, list[int]] = defaultdict(list)  # nodes of the transfers to each item
    last: dict[int, int] = {}  # node of each device's last item so far
    channel: dict[tuple[int, ...], int] = {}  # node of each channel's last transfer so far
    outgoing = _outgoing(problem, linear)

    def add(node: Any, device: int, duration: int, waits: list[int]) -> int:
        result.item.append(node)
        result.device.append(device)
        result.duration.append(duration)
        result.before.append(last.get(device, -1))
        result.inputs.append(tuple((source, 0) for source in waits))
        return len(result.item) - 1

    for item in _in_torch_s_order(linear):
        device = linear.device[item]
        inputs = received.pop(item, [])  # those from this device are before the one before it
        here = add(linear.item[item], device, linear.duration[item], inputs)
        place[item] = last[device] = here
        for consumer, transfer, delay in outgoing.get(item, ()):
            waits = [here]
            if transfer.receiver in last:
                waits.append(last[transfer.receiver])
            channels = _channels(transfer, links)
            waits += [channel[name] for name in channels if name in channel]
            number = add(transfer, -1, delay, waits)
            channel.update(dict.fromkeys(channels, number))
            received[consumer].append(number)
    return result


def _channels(transfer: Transfer, links: Links) -> list[tuple[int, ...]]:
    if links == "pair":
        return [_pair(transfer.sender, transfer.receiver)]
    return [(transfer.sender,), (transfer.receiver,)]


def _pair(a: int, b: int) -> tuple[int, int]:
    return (min(a, b), max(a, b))


def _outgoing(problem: Problem, linear: LinearOrder) -> dict[int, list[_Crossing]]:
    """Per producing item, its transfers; a pair sends its forward's result first, as in torch."""
    giver: dict[Event, Op] = {}
    result: dict[int, list[_Crossing]] = defaultdict(list)
    for number, item in enumerate(linear.item):
        sources = iter(linear.inputs[number])
        for op in members(item):
            need = awaited(problem, op)
            if need is None:
                continue
            source, delay = next(sources)
            sender, receiver = linear.device[source], linear.device[number]
            if sender != receiver:
                gives = giver[need.event]
                transfer = Transfer(sender, receiver, gives, op)
                result[source].append(_Crossing(number, transfer, delay))
        for op in members(item):
            giver[op.event] = op
    for crossings in result.values():
        crossings.sort(key=lambda crossing: crossing.transfer.gives.kind != "F")
    return result


def _in_torch_s_order(linear: LinearOrder) -> list[int]:
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
