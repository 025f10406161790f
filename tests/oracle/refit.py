"""Refitting: an order of B's and F's kept, but for gaps, and its W's placed by the true times.

Orders that are published for equal times leave gaps elsewhere on other times. The order is run
once; where a device would wait for the input of its next op, it takes

1. a later F or B of its row whose input is there, if that ends before the gap does and the ops
   that it overtakes still fit into memory; else
2. the oldest due W, if the gap is long enough for a given part of it.

A W also runs before an op that would not fit into memory otherwise. Nothing can deadlock: an op
overtakes others only once its input is there. After V-schedules' own ways of filling bubbles
(Qi et al., ICLR 2024, section 6; NeurIPS 2024, section 3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from pipesat.core.event_engine import EventEngine
from pipesat.core.ops import Event, Kind, Op
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, duration, memory_change, one_of_each
from pipesat.core.schedule import Order

_FAR = 64  # overtaken ops, at most


class Refitted(NamedTuple):
    """An order, when its last op ended, and whether it kept within room.

    Timed as early as possible, the order may end sooner.
    """

    order: Order
    end: int
    fits: bool


def refitted(problem: Problem, order: Order, room: Sequence[int], patience: float) -> Refitted:
    """Run an order without pairs anew within ``room`` memory units per device.

    ``patience`` is the least gap that a W is put into, in parts of the W. The result does not fit
    where the F's and B's of a row need more than the room though every W follows its B.
    """
    run = _Run(problem, order, room, patience)
    run.run()
    return Refitted(tuple(map(tuple, run.rows)), max(run.busy_until), run.fits)


class _Run(EventEngine[Op]):
    """Lists are indexed by device. One that has started an item is asked again after others."""

    def __init__(
        self, problem: Problem, order: Order, room: Sequence[int], patience: float
    ) -> None:
        super().__init__(len(order))
        self.room, self.patience = room, patience
        ops = list(one_of_each(problem))
        self.waits = {op[:2]: need for op in ops if (need := awaited(problem, op)) is not None}
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

    def step(self, device: int, now: int) -> bool:
        """Start the next op, or what fills the gap before it, if anything can."""
        row, position = self.ahead[device], self.position[device]
        while position < len(row) and row[position] is None:
            position += 1
        self.position[device] = position
        op = row[position] if position < len(row) else None
        if op is None:
            self._weight(device, now)
            return False
        arrival = self._arrival(op)
        if arrival is not None and arrival <= now:
            self._in_turn(device, op, now)
            return False
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
        return False

    def _in_turn(self, device: int, op: Op, now: int) -> None:
        if self.used[device] + self.taken[op[:2]] > self.room[device]:
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
        now_free = self.room[device] - self.used[device]
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
