"""From a grid of slots to an order: what meets is paired, weight gradients fill gaps."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pipesat.core.ops import Item, Kind, Op, Pair
from pipesat.core.problem import Problem
from pipesat.core.rules import in_order
from pipesat.core.schedule import Order
from pipesat.heuristics.shared.slot_grid import Facts, Microbatch, SlotGrid

Alone: TypeAlias = Mapping[tuple[int, int, bool], bool]
"""Stage, microbatch and whether a backward, of ops that form no pair: whether each runs first."""


class SlotReplay:
    """One run through a grid, as early as its sequence allows.

    A backward that is in no pair is split where it may be. Its W waits for a gap that it fits
    into by the part ``wait`` of its time, or for the moment when its memory is needed; with 0 it
    runs at once. Ops that are in ``alone`` run before or after what they meet. What runs is noted
    with ``note`` only: most grids are run for their makespan.
    """

    def __init__(
        self,
        grid: SlotGrid,
        facts: Facts,
        *,
        wait: float,
        alone: Alone | None = None,
        note: bool = False,
    ) -> None:
        self.problem: Problem = grid.problem
        self.grid, self.facts, self.wait, self.note = grid, facts, wait, note
        self.alone: Alone = alone or {}
        devices = len(self.problem.devices)
        self.busy_until = [0] * devices
        self.rows: list[list[Item]] = [[] for _ in range(devices)]
        self._held = [0] * devices
        self._due: list[deque[tuple[int, int]]] = [deque() for _ in range(devices)]
        numbers = self.problem.microbatches
        self._forward_ends = [[0] * count for count in numbers]
        self._backward_ends = [[0] * count for count in numbers]

    def run(self, entries: Sequence[int], entering: Sequence[Microbatch] | None = None) -> int:
        """Run everything; return the makespan."""
        cells, pair = self.grid.cells(entries, entering), self.facts.pair
        last = (-1, -1)  # what has run as the second of two that meet
        for place, (slot, device, backward, stage, number) in enumerate(cells):
            if (slot, device) == last:
                continue
            if not backward and place + 1 < len(cells):
                other = cells[place + 1]
                meets = other[:2] == (slot, device)
                if meets and (as_pair := pair(stage, number, *other[3:])) is not None:
                    self._meet(device, stage, number, other[3], other[4], as_pair)
                    last = (slot, device)
                    continue
            kind = self.facts.backward[stage] if backward else "F"
            self._one(device, stage, number, kind)
        for device, due in enumerate(self._due):
            while due:
                self._weight(device)
        return max(self.busy_until)

    @property
    def order(self) -> Order:
        """What ran, device by device."""
        return tuple(map(tuple, self.rows))

    def _meet(
        self, device: int, stage: int, number: int, other: int, later: int, pair: tuple[Kind, int]
    ) -> None:
        """Run a forward with a backward, or one after the other if either is to be alone."""
        sooner = self.alone.get((other, later, True))
        if sooner is None and (mine := self.alone.get((stage, number, False))) is not None:
            sooner = not mine
        if sooner is None:
            self._together(device, stage, number, other, later, pair)
        elif sooner:
            self._one(device, other, later, self.facts.backward[other])
            self._one(device, stage, number, "F")
        else:
            self._one(device, stage, number, "F")
            self._one(device, other, later, self.facts.backward[other])

    def _one(self, device: int, stage: int, number: int, kind: Kind) -> None:
        """Run a forward or a backward alone."""
        facts = self.facts.ops[stage, kind][number]
        if kind == "F":
            arrival, ends = self._forward_arrival(stage, number), self._forward_ends
        else:
            arrival, ends = self._backward_arrival(stage, number), self._backward_ends
        ends[stage][number] = self._start(device, arrival, facts.takes, facts.net, facts.time)
        if self.note:
            self.rows[device].append(Op(stage, kind, number))
        if kind == "B":
            self._leave(device, stage, number)

    def _together(
        self, device: int, stage: int, number: int, other: int, later: int, pair: tuple[Kind, int]
    ) -> None:
        kind, time = pair
        one, two = self.facts.ops[stage, "F"][number], self.facts.ops[other, kind][later]
        arrival = max(self._forward_arrival(stage, number), self._backward_arrival(other, later))
        end = self._start(device, arrival, one.takes + two.takes, one.net + two.net, time)
        self._forward_ends[stage][number] = self._backward_ends[other][later] = end
        if self.note:
            both = Pair(Op(stage, "F", number), Op(other, kind, later))
            self.rows[device].append(in_order(self.problem, both))
        if kind == "B":
            self._leave(device, other, later)

    def _forward_arrival(self, stage: int, number: int) -> int:
        """When a forward's input is there."""
        before, delays = self.facts.before[stage]
        return 0 if before is None else self._forward_ends[before][number] + delays[number]

    def _backward_arrival(self, stage: int, number: int) -> int:
        """When a backward's input is there."""
        after, delays = self.facts.after[stage]
        if after is None:
            return self._forward_ends[stage][number]
        return self._backward_ends[after][number] + delays[number]

    def _start(self, device: int, arrival: int, takes: int, net: int, time: int) -> int:
        """Run an item when its inputs are there, after weight gradients that fit or have to run."""
        due, most = self._due[device], self.facts.room[device] - takes
        while due:
            gap = arrival - self.busy_until[device]
            stage, number = due[0]
            waits = self.wait * self.facts.ops[stage, "W"][number].time > gap
            if self._held[device] <= most and waits:
                break
            self._weight(device)
        end = max(self.busy_until[device], arrival) + time
        self.busy_until[device] = end
        self._held[device] += net
        return end

    def _leave(self, device: int, stage: int, number: int) -> None:
        self._due[device].append((stage, number))
        if not self.wait:
            self._weight(device)

    def _weight(self, device: int) -> None:
        stage, number = self._due[device].popleft()
        facts = self.facts.ops[stage, "W"][number]
        self.busy_until[device] += facts.time
        self._held[device] += facts.net
        if self.note:
            self.rows[device].append(Op(stage, "W", number))
