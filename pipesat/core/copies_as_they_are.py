"""A schedule's own copies when its times change: the three rules that keep memory what it was.

Memory with copies depends on times. What a device held when an item or copy took memory is not
exceeded at any other times with

1. the same sequence on every channel,
2. every O that had ended by the start of an item or L that takes memory still ending by it,
3. every L starting no earlier than the start of the item of its device that was the last to start
   at or before it, and the end of the one that was the last to end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from pipesat.core.linear_order import LinearOrder
from pipesat.core.ops import PHASE_OF, Copy, Unreadable, members
from pipesat.core.rules import memory_change

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule, TimedCopy


def as_copied(problem: Problem, sequence: LinearOrder, schedule: Schedule) -> LinearOrder | None:
    """Return a valid schedule's sequence with its copies and what the rules make it wait for.

    ``None`` if no one sequence does all that, which only lengths of zero can bring about.
    """
    graph = _Graph(problem, sequence, schedule)
    for device in range(len(problem.devices)):
        graph.add_copies(device)
        graph.wait_for_copies_out(device)
    return graph.sequence()


class _Graph:
    """Items keep their numbers, copies follow; ``inputs[i]`` is what i waits for, with delays."""

    def __init__(self, problem: Problem, sequence: LinearOrder, schedule: Schedule) -> None:
        self.problem, self.schedule = problem, schedule
        self.all = LinearOrder(
            list(sequence.device), list(sequence.item), list(sequence.duration),
            list(sequence.before), [],
        )  # fmt: skip
        self.inputs = [list(inputs) for inputs in sequence.inputs]
        self.rows: list[list[int]] = [[] for _ in problem.devices]
        for number, device in enumerate(sequence.device):
            self.rows[device].append(number)
        self.home = {
            (op.stage, PHASE_OF[op.kind], op.microbatch): number
            for number, item in enumerate(sequence.item)
            for op in members(item)
            if op.mode
        }
        self.place = {number: at for row in self.rows for at, number in enumerate(row)}
        self.number: dict[Copy, int] = {}

    def add_copies(self, device: int) -> None:
        """Add a device's copies, in sequence: rules 1 and 3, and what a copy itself waits for."""
        devices, shared = (
            len(self.schedule.devices),
            self.problem.devices[device].copy_channels == 1,
        )
        timed_items = self.schedule.devices[device]
        starts = [timed.start for timed in timed_items]
        ends = [timed.end for timed in timed_items]
        last: dict[int, int] = {}
        for copy, start, end in self.schedule.copies_of(device):
            if isinstance(copy, Unreadable):
                raise ValueError(f"{copy.text!r} is not a copy")
            channel = devices + 2 * device + (copy.kind == "L" and not shared)
            number = self.number[copy] = len(self.all.item)
            forward = self.home[copy.stage, "F", copy.microbatch]
            self.all.copies[number] = copy
            self.all.device.append(channel)
            self.all.item.append(self.all.item[forward])
            self.all.duration.append(end - start)
            self.all.before.append(last.get(channel, -1))
            last[channel] = number
            self.inputs.append([(forward, 0)] if copy.kind == "O" else [])
            if copy.kind == "L":
                self.inputs[number].append((self.number[Copy(copy.stage, "O", copy.microbatch)], 0))
                backward = self.home[copy.stage, "B", copy.microbatch]
                self.inputs[backward].append((number, 0))
                # of items at one instant, the backward itself and all after it come after the L
                most = self.place[backward]
                begun = min(bisect_right(starts, start), most)
                over = min(bisect_right(ends, start), most)
                if begun:
                    item = self.rows[device][begun - 1]
                    self.inputs[number].append((item, -self.all.duration[item]))
                if over:
                    self.inputs[number].append((self.rows[device][over - 1], 0))

    def wait_for_copies_out(self, device: int) -> None:
        """Rule 2. On a channel ends follow each other: the last O stands for all before it."""
        out = [t for t in self.schedule.copies_of(device) if t.copy.kind == "O"]  # type: ignore[union-attr]
        if not out:
            return
        ends = [timed.end for timed in out]
        for number, timed in zip(self.rows[device], self.schedule.devices[device], strict=True):
            if memory_change(self.problem, self.all.item[number]).at_start > 0:
                self._wait(number, out, bisect_right(ends, timed.start))
        for copy, start, _ in self.schedule.copies_of(device):
            if copy.kind == "L":  # type: ignore[union-attr]
                self._wait(self.number[copy], out, bisect_right(ends, start))  # type: ignore[index]

    def _wait(self, number: int, out: list[TimedCopy], ended: int) -> None:
        if ended:
            self.inputs[number].append((self.number[out[ended - 1].copy], 0))  # type: ignore[index]

    def sequence(self) -> LinearOrder | None:
        """Everything after what it waits for; ``None`` if there is a circle."""
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
