"""DynaPipe's wait-free cyclic schedule (Jiang et al., EuroSys 2024), for microbatches that differ.

The order comes from cycles in which every device runs one backward and one forward of each of its
stages, however long they take; it is then run without waiting for cycles to end.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import zip_longest
from typing import Final, Literal, NamedTuple

from pipesat.core.errors import require_applicable
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.rows import full_backward
from pipesat.problem.ops import Item, Op
from pipesat.problem.problem import Problem
from pipesat.problem.rules import memory_change
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order

NAME: Final = "wait-free-cyclic"


@published(NAME, placement="any", source="Jiang et al., EuroSys 2024 (DynaPipe)")
def wait_free_cyclic(problem: Problem) -> Schedule:
    """In each cycle a device runs a backward and a forward of each of its stages, as memory admits.

    What a cycle has run is there for the next device in the next cycle. Backwards and forwards of a
    device take turns, lower microbatches first; the forward of a microbatch that is new to the
    device waits for a later cycle where it does not fit beside what is held. On a chain without
    capacities, that is the order of ``eager-1f1b``.

    Raises
    ------
    NotApplicable
        If no cycle goes on, as a microbatch does not fit into an empty device.
    """
    cycles = _Cycles(problem)
    passes = 2 * sum(problem.microbatches)
    while passes:
        ran = cycles.run()
        require_applicable(ran, "its cycles stop where a microbatch does not fit into memory")
        passes -= ran
    return time_order(problem, tuple(map(tuple, cycles.rows)), source=NAME)


class _Queue(NamedTuple):
    """Microbatches that are ready for a stage's forwards, or for its backwards."""

    stage: int
    phase: Literal["F", "B"]


class _Cycles:
    """What is ready, what has run, and what each device holds."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.ready: dict[_Queue, deque[int]] = defaultdict(deque)
        for route in problem.routes:
            self.ready[_Queue(route.stages[0], "F")].extend(range(route.microbatches))
        self.rows: list[list[Item]] = [[] for _ in problem.devices]
        self.held = [0] * len(problem.devices)
        self.known: set[tuple[int, int, int]] = set()  # (device, route, microbatch)

    def run(self) -> int:
        """Run one cycle on every device; return how many forwards and backwards it had."""
        ran: list[tuple[_Queue, int]] = []
        for device in {self.problem.stages[queue.stage].device for queue in self.ready}:
            for queue in self._in_turn(device):
                microbatch = self.ready[queue][0]
                if self._run(device, queue, microbatch):
                    ran.append((queue, microbatch))
        for queue, microbatch in ran:  # what comes of it is there in the next cycle
            self.ready[queue].popleft()
            if not self.ready[queue]:
                del self.ready[queue]
            if (after := self._after(queue)) is not None:
                self.ready[after].append(microbatch)
        return len(ran)

    def _in_turn(self, device: int) -> Iterator[_Queue]:
        """A backward and a forward in turn, those of lower microbatches first."""
        stages = self.problem.stages_on[device]
        place = self.problem.place_of
        backwards = [queue for s in stages if (queue := _Queue(s, "B")) in self.ready]
        forwards = [queue for s in stages if (queue := _Queue(s, "F")) in self.ready]
        backwards.sort(key=lambda queue: (self.ready[queue][0], -place[queue.stage]))
        forwards.sort(key=lambda queue: (self.ready[queue][0], place[queue.stage]))
        for both in zip_longest(backwards, forwards):
            yield from filter(None, both)

    def _run(self, device: int, queue: _Queue, microbatch: int) -> bool:
        """Run it, unless it is a forward that is new to the device and does not fit."""
        items: list[Item] = [Op(queue.stage, "F", microbatch)]
        if queue.phase == "B":
            items = full_backward(self.problem, queue.stage, microbatch)
        name = device, self.problem.route_of[queue.stage], microbatch
        changes = [memory_change(self.problem, item) for item in items]
        slack = self.problem.devices[device].slack
        full = slack is not None and self.held[device] + changes[0].at_start > slack
        if full and name not in self.known:
            return False
        self.known.add(name)
        self.held[device] += sum(change.net for change in changes)
        self.rows[device] += items
        return True

    def _after(self, queue: _Queue) -> _Queue | None:
        """Where a microbatch goes on; ``None`` after its last backward."""
        stage, phase = queue
        if phase == "B":
            before = self.problem.previous[stage]
            return None if before is None else _Queue(before, "B")
        after = self.problem.next[stage]
        return _Queue(stage, "B") if after is None else _Queue(after, "F")
