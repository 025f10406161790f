"""From a grid of slots to an order: what meets is paired, weight gradients fill gaps."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pipesat.core.ops import Item, Kind, Op, Pair
from pipesat.core.problem import Problem
from pipesat.core.rules import in_order, link_delay
from pipesat.core.schedule import Order
from pipesat.heuristics.shared.slot_grid import Facts, SlotGrid


class SlotReplay:
    """One run through a grid, as early as its sequence allows.

    A backward that is in no pair is split where it may be. Its W waits for a gap that it fits
    into, or for the moment when its memory is needed; with ``wait`` false it runs at once.
    """

    def __init__(self, grid: SlotGrid, facts: Facts, *, wait: bool) -> None:
        self.problem: Problem = grid.problem
        self.grid, self.facts, self.wait = grid, facts, wait
        devices = len(self.problem.devices)
        self.busy_until = [0] * devices
        self.rows: list[list[Item]] = [[] for _ in range(devices)]
        self._held = [0] * devices
        self._due: list[deque[Op]] = [deque() for _ in range(devices)]
        self._ends: dict[tuple[int, bool, int], int] = {}

    def run(self, entries: Sequence[int]) -> int:
        """Run everything; return the makespan."""
        for cells in self.grid.cells(entries):
            device, ops = cells[0].device, [(c.stage, c.backward, c.microbatch) for c in cells]
            paired = None
            if len(ops) == 2:
                paired = self.facts.pairs.get((ops[0][0], ops[1][0]))
            if paired is not None:
                self._together(device, ops, *paired)
            else:
                for op in ops:
                    self._alone(device, *op)
        for device, due in enumerate(self._due):
            while due:
                self._weight(device)
        return max(self.busy_until)

    @property
    def order(self) -> Order:
        """What ran, device by device."""
        return tuple(map(tuple, self.rows))

    def _together(
        self, device: int, ops: Sequence[tuple[int, bool, int]], kind: Kind, time: int
    ) -> None:
        (stage, _, number), (other, _, later) = ops
        pair = Pair(Op(stage, "F", number), Op(other, kind, later))
        arrival = max(self._arrival(*op) for op in ops)
        self._start(device, in_order(self.problem, pair), [*pair], arrival, time)
        if kind == "B":
            self._leave(device, Op(other, "W", later))

    def _alone(self, device: int, stage: int, backward: bool, number: int) -> None:
        kind: Kind = "F"
        if backward:
            kind = "B" if self.facts.splits[stage] else "BW"
        op = Op(stage, kind, number)
        arrival = self._arrival(stage, backward, number)
        self._start(device, op, [op], arrival, self.facts.time[stage, kind])
        if kind == "B":
            self._leave(device, Op(stage, "W", number))

    def _arrival(self, stage: int, backward: bool, number: int) -> int:
        """When an op's input is there."""
        problem = self.problem
        before = problem.next[stage] if backward else problem.previous[stage]
        if before is None:
            return self._ends[stage, False, number] if backward else 0
        delay = link_delay(problem, stage, "B") if backward else link_delay(problem, before, "F")
        return self._ends[before, backward, number] + delay

    def _start(self, device: int, item: Item, ops: Sequence[Op], arrival: int, time: int) -> None:
        """Run an item when its inputs are there, after weight gradients that fit or have to run."""
        room, times = self.problem.devices[device].room, self.facts.time
        changes = [self.facts.memory[op.stage, op.kind] for op in ops]
        takes = sum(change.at_start for change in changes)
        due = self._due[device]
        while due:
            fits = self.busy_until[device] + times[due[0].stage, "W"] <= arrival
            if not fits and (room is None or self._held[device] + takes <= room):
                break
            self._weight(device)
        end = max(self.busy_until[device], arrival) + time
        self.busy_until[device] = end
        self._held[device] += sum(change.net for change in changes)
        for op in ops:
            self._ends[op.stage, op.kind != "F", op.microbatch] = end
        self.rows[device].append(item)

    def _leave(self, device: int, weight: Op) -> None:
        self._due[device].append(weight)
        if not self.wait:
            self._weight(device)

    def _weight(self, device: int) -> None:
        op = self._due[device].popleft()
        self.busy_until[device] += self.facts.time[op.stage, "W"]
        self._held[device] += self.facts.memory[op.stage, "W"].net
        self.rows[device].append(op)
