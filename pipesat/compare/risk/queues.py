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

from collections import defaultdict
from typing import Any, Final, Literal, TypeAlias

from pipesat.core.errors import require_applicable
from pipesat.problem.problem import Problem
from pipesat.runtimes.steps import in_rounds, outgoing
from pipesat.schedule.copies import offloads_anything
from pipesat.schedule.linear_order import LinearOrder
from pipesat.schedule.schedule import Order
from pipesat.schedule.timing import linearize

Links: TypeAlias = Literal["independent", "pair", "rank"]
"""How transfers queue: not at all, per unordered pair of ranks, or per rank."""
LINKS: Final[tuple[Links, ...]] = ("independent", "pair", "rank")


def network_of(problem: Problem, order: Order, links: Links) -> LinearOrder:
    """Put an order's items, and its transfers if they queue, into one sequence.

    Transfers (:class:`pipesat.runtimes.steps.Transfer`) are items on device -1.

    Raises
    ------
    Deadlock, ValueError
        As :func:`pipesat.schedule.timing.time_order`.
    """
    linear = linearize(problem, order)
    require_applicable(
        not offloads_anything(problem, linear),
        "risk knows no copies yet: memory of offloaded microbatches depends on when they run",
    )
    return linear if links == "independent" else _with_transfers(problem, linear, links)


def _with_transfers(problem: Problem, linear: LinearOrder, links: Links) -> LinearOrder:
    """Go through the items in the order of torch's lowering; transfers follow their producer."""
    result = LinearOrder([], [], [], [], [])
    received: dict[int, list[int]] = defaultdict(list)  # nodes of the transfers to each item
    last: dict[int, int] = {}  # node of each device's last item so far
    channel: dict[tuple[int, ...], int] = {}  # node of each channel's last transfer so far
    sent = outgoing(problem, linear)

    def add(node: Any, device: int, duration: int, waits: list[int]) -> int:
        result.item.append(node)
        result.device.append(device)
        result.duration.append(duration)
        result.before.append(last.get(device, -1))
        result.inputs.append(tuple((source, 0) for source in waits))
        return len(result.item) - 1

    for item in in_rounds(linear):
        device = linear.device[item]
        inputs = received.pop(item, [])  # those from this device are before the one before it
        here = last[device] = add(linear.item[item], device, linear.duration[item], inputs)
        for transfer in sent.get(item, ()):
            pair = sorted((device, transfer.receiver))
            channels = [tuple(pair)] if links == "pair" else [(rank,) for rank in pair]
            known = [last.get(transfer.receiver), *map(channel.get, channels)]
            waits = [here, *(node for node in known if node is not None)]
            number = add(transfer, -1, transfer.delay, waits)
            channel.update(dict.fromkeys(channels, number))
            received[transfer.consumer].append(number)
    return result
