"""An order's items and copies with what each waits for, put into one sequence at the end."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pipesat.core.linear_order import LinearOrder
from pipesat.core.ops import Copy, Event, members
from pipesat.core.rules import offload_of

if TYPE_CHECKING:
    from pipesat.core.problem import Problem


class CopyGraph:
    """Items keep their numbers, copies follow; ``inputs[i]`` is what i waits for, with delays.

    ``rows`` has the numbers of each device's items, ``item_of`` the number of what completes a
    (stage, phase, microbatch), ``number`` that of each copy.
    """

    def __init__(self, problem: Problem, sequence: LinearOrder) -> None:
        self.problem = problem
        self.all = LinearOrder(
            list(sequence.device),
            list(sequence.item),
            list(sequence.duration),
            list(sequence.before),
            [],
        )
        self.inputs = [list(inputs) for inputs in sequence.inputs]
        self.rows: list[list[int]] = [[] for _ in problem.devices]
        for number, device in enumerate(sequence.device):
            self.rows[device].append(number)
        self.item_of: dict[Event, int] = {
            op.event: number for number, item in enumerate(sequence.item) for op in members(item)
        }
        self.number: dict[Copy, int] = {}
        self._last: dict[int, int] = {}

    def add(self, copy: Copy) -> int:
        """Add the next copy of its channel, with what it and its backward wait for.

        An O waits for its F, an L for its O, and the backward for the L.
        """
        device = self.problem.stages[copy.stage].device
        own = copy.kind == "L" and self.problem.devices[device].copy_channels > 1
        channel = len(self.problem.devices) + 2 * device + own
        forward = self.item_of[copy.stage, "F", copy.microbatch]
        number = self.number[copy] = len(self.all.item)
        self.all.copies[number] = copy
        self.all.device.append(channel)
        self.all.item.append(self.all.item[forward])
        self.all.duration.append(self._length(copy, forward))
        self.all.before.append(self._last.get(channel, -1))
        self._last[channel] = number
        if copy.kind == "O":
            self.inputs.append([(forward, 0)])
        else:
            self.inputs.append([(self.number[copy._replace(kind="O")], 0)])
            backward = self.item_of[copy.stage, "B", copy.microbatch]
            self.inputs[backward].append((number, 0))
        return number

    def _length(self, copy: Copy, forward: int) -> int:
        for op in members(self.all.item[forward]):
            if (op.stage, op.microbatch) == (copy.stage, copy.microbatch):
                times = offload_of(self.problem, op)
                if times is not None:
                    return times.time_out if copy.kind == "O" else times.time_in
        raise ValueError(f"{copy}: its microbatch is not offloaded")

    def sequence(self) -> LinearOrder | None:
        """Everything after what it waits for; ``None`` if there is a cyclic wait."""
        followers: dict[int, list[int]] = defaultdict(list)
        missing = [0] * len(self.all.item)
        for number, before in enumerate(self.all.before):
            sources = {source for source, _ in self.inputs[number]} | ({before} - {-1})
            missing[number] = len(sources)
            for source in sources:
                followers[source].append(number)
        order = [number for number, count in enumerate(missing) if not count]
        for number in order:
            for follower in followers[number]:
                missing[follower] -= 1
                if not missing[follower]:
                    order.append(follower)
        if len(order) < len(missing):
            return None
        place = {number: at for at, number in enumerate(order)} | {-1: -1}
        return LinearOrder(
            device=[self.all.device[n] for n in order],
            item=[self.all.item[n] for n in order],
            duration=[self.all.duration[n] for n in order],
            before=[place[self.all.before[n]] for n in order],
            inputs=[tuple((place[s], delay) for s, delay in self.inputs[n]) for n in order],
            copies={place[n]: copy for n, copy in self.all.copies.items()},
        )
