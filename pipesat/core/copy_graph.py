"""An order's items and copies with what each waits for, put into one sequence at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pipesat.core.deadlock import sequenced
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
        whole = replace(self.all, inputs=[tuple(own) for own in self.inputs])
        order = sequenced([[source for source, _ in own] for own in whole.waits])
        return None if order is None else whole.rearranged(order)
