"""Refitting by its definition, event by event: what the compiled run has to do as well."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from pipesat.problem.ops import Event, Kind, Op
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration, inputs_of, memory_change, one_of_each
from pipesat.schedule.schedule import Order

_FAR = 64


def refitted(
    problem: Problem, order: Order, slack: Sequence[int], patience: float
) -> tuple[Order, int, bool]:
    """Order, when its last op ended, and whether it kept within room."""
    run = _Run(problem, order, slack, patience)
    while run.events:
        now, device = heapq.heappop(run.events)
        while run.events and run.events[0] == (now, device):
            heapq.heappop(run.events)
        if run.busy_until[device] <= now:
            run.step(device, now)
    return tuple(map(tuple, run.rows)), max(run.busy_until), run.fits


class _Run:
    """Lists are indexed by device. One that has started an item is asked again after others."""

    def __init__(
        self, problem: Problem, order: Order, slack: Sequence[int], patience: float
    ) -> None:
        self.rows: list[list[Op]] = [[] for _ in order]
        self.busy_until = [0] * len(order)
        self.events = [(0, device) for device in range(len(order))]
        self.slack, self.patience = slack, patience
        ops = list(one_of_each(problem))
        self.waits = {
            op[:2]: need
            for op in ops
            if (need := next(iter(inputs_of(problem, op)), None)) is not None
        }
        self.length = {op[:2]: duration(problem, op) for op in ops}
        changes = {op[:2]: memory_change(problem, op) for op in ops}
        self.taken = {key: change.at_start for key, change in changes.items()}
        self.kept = {key: change.net for key, change in changes.items()}
        self.pending = [stage.held_after_B for stage in problem.stages]
        self.series = [2 * len(stages) for stages in problem.stages_on]
        self.ahead: list[list[Op | None]] = [  # None: has overtaken others
            [op for op in row if isinstance(op, Op) and op.kind != "W"] for row in order
        ]
        self.position = [0] * len(order)
        self.used = [0] * len(order)
        self.freeable = [0] * len(order)  # part of it that W's which are due would free
        self.due: list[deque[Op]] = [deque() for _ in order]
        self.ends: dict[Event, int] = {}
        self.asleep: dict[Event, list[int]] = {}
        self.fits = True

    def wake(self, device: int, time: int) -> None:
        heapq.heappush(self.events, (time, device))

    def occupy(self, device: int, item: Op, end: int) -> None:
        self.rows[device].append(item)
        self.busy_until[device] = end
        self.wake(device, end)

    def step(self, device: int, now: int) -> None:
        """Start the next op, or what fills the gap before it, if anything can."""
        row, position = self.ahead[device], self.position[device]
        while position < len(row) and row[position] is None:
            position += 1
        self.position[device] = position
        op = row[position] if position < len(row) else None
        if op is None:
            self._weight(device, now)
            return
        arrival = self._arrival(op)
        if arrival is not None and arrival <= now:
            self._in_turn(device, op, now)
            return
        gap = self._least_wait(op) if arrival is None else arrival - now
        if early := self._overtaker(device, now, gap):
            self._execute(device, early, now)
        elif self.due[device] and gap >= self.patience * self.length[self.due[device][0][:2]]:
            self._weight(device, now)
        elif arrival is not None:
            self.wake(device, arrival)
        else:
            source = (*self.waits[op[:2]].event[:2], op.microbatch)
            self.asleep.setdefault(source, []).append(device)

    def _in_turn(self, device: int, op: Op, now: int) -> None:
        if self.used[device] + self.taken[op[:2]] > self.slack[device]:
            if self.due[device]:
                self._weight(device, now)
                return
            self.fits = False
        self.position[device] += 1
        self._execute(device, op, now)

    def _weight(self, device: int, now: int) -> None:
        if self.due[device]:
            op = self.due[device].popleft()
            self.freeable[device] -= self.pending[op.stage]
            self._execute(device, op, now)

    def _execute(self, device: int, op: Op, now: int) -> None:
        end = now + self.length[op[:2]]
        self.used[device] += self.kept[op[:2]]
        if op.kind == "B":
            self.due[device].append(op._replace(kind="W"))
            self.freeable[device] += self.pending[op.stage]
        event = op.event
        self.ends[event] = end
        for sleeper in self.asleep.pop(event, ()):
            self.wake(sleeper, max(now, self.busy_until[sleeper]))
        self.occupy(device, op, end)

    def _overtaker(self, device: int, now: int, gap: int) -> Op | None:
        """Take the first op out of the row that is ready, fills no more than the gap, and fits."""
        row, position = self.ahead[device], self.position[device]
        now_free = self.slack[device] - self.used[device]
        free = now_free + self.freeable[device]
        seen: set[tuple[int, Kind]] = set()
        held = most = 0  # by the ops in between, were each W run right after its B
        for place in range(position, min(position + _FAR, len(row))):
            op = row[place]
            if op is None:
                continue
            key = (op.stage, op.kind)
            kept = self.kept[key] - (self.pending[op.stage] if op.kind == "B" else 0)
            if place > position and key not in seen and self.length[key] <= gap:
                arrival = self._arrival(op)
                small = self.taken[key] <= now_free and (kept <= 0 or most + kept <= free)
                if arrival is not None and arrival <= now and small:
                    row[place] = None
                    return op
            seen.add(key)
            if len(seen) == self.series[device]:
                return None  # every later op has one of its kind before it
            most = max(most, held + self.taken[key])
            held += kept
        return None

    def _arrival(self, op: Op) -> int | None:
        """When the input is there; ``None`` while that is unknown."""
        need = self.waits.get(op[:2])
        if need is None:
            return 0
        end = self.ends.get((*need.event[:2], op.microbatch))
        return None if end is None else end + need.delay

    def _least_wait(self, op: Op) -> int:
        """Bound on the time until an input arrives whose op has not begun."""
        need = self.waits[op[:2]]
        return self.length[need.event[:2]] + need.delay
