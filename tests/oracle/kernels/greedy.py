"""List scheduling, alone and in pairs, op by op: plain lists and queues, no arrays.

Of two ops of a pair with one number, that of the earlier stage of the device counts as first.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from itertools import combinations, islice
from typing import NamedTuple

from pipesat.bounds.feasibility import ChunkHolding, capacities_by_order, holding_of
from pipesat.heuristics.list_scheduling import Policy
from pipesat.problem.ops import PHASE_OF, Item, Kind, Op, Pair, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration, in_order, inputs_of, memory_change, pair_time
from pipesat.schedule.schedule import Order


class Ready(NamedTuple):
    """An op that could start, whether it is the first in its queue, and when its input is there."""

    op: Op
    first: bool
    arrival: int


class Greedy:
    """One run of one policy. Lists are indexed by stage or by device; queues are in FIFO order.

    ``wait``: for a partner, in parts of what the pair would save; ``None``: without pairs.
    """

    def __init__(
        self, problem: Problem, policy: Policy, limit: Sequence[int], wait: float | None
    ) -> None:
        self.problem, self.policy, self.limit, self.wait = problem, policy, limit, wait
        stages, devices = range(len(problem.stages)), range(len(problem.devices))
        self.started = {kind: [0 for _ in stages] for kind in "FB"}
        self.arrivals: dict[str, list[list[int]]] = {kind: [[] for _ in stages] for kind in "FB"}
        for route in problem.routes:
            self.arrivals["F"][route.stages[0]] = [0] * route.microbatches
        self.pending: list[deque[int]] = [deque() for _ in stages]  # microbatches due for W
        self.held = [0 for _ in devices]
        self.active = [0 for _ in devices]  # held by forwards whose backward is to come
        self.launched: list[list[tuple[int, int]]] = [[] for _ in devices]
        self.need = [
            need.capacity - device.static
            for need, device in zip(capacities_by_order(problem), problem.devices, strict=True)
        ]
        self.rows: list[list[Item]] = [[] for _ in devices]
        self.busy_until = [0 for _ in devices]
        self.events = [(0, device) for device in devices]

    def order(self) -> Order:
        """Simulate until nothing is left to do, and return what each device did."""
        while self.events:
            now, device = heapq.heappop(self.events)
            while self.events and self.events[0] == (now, device):
                heapq.heappop(self.events)
            while self.busy_until[device] <= now and self._step(device, now):
                pass
        assert self.started["B"] == list(self.problem.microbatches)
        return tuple(map(tuple, self.rows))

    def _step(self, device: int, now: int) -> bool:
        choice: Item | None = None
        soon = False
        if self.wait is not None:
            choice, soon = self._pair(device, now, self.wait)
        if choice is None and not soon:
            backwards = sorted(self._known("B", device))
            choice = (
                self._backward(backwards, device, now)
                or self._forward(device, now)
                or self._weight(backwards, device, now)
            )
        if choice is None:
            return False
        end = now + duration(self.problem, choice)
        self.rows[device].append(choice)
        self.busy_until[device] = end
        heapq.heappush(self.events, (end, device))
        self.held[device] += memory_change(self.problem, choice).net
        for op in sorted(members(choice), key=self._rank):
            self._note(op, device, end)
        return True

    def _rank(self, op: Op) -> tuple[int, int]:
        stages = self.problem.stages_on[self.problem.stages[op.stage].device]
        return op.microbatch, stages.index(op.stage)

    def _known(self, phase: str, device: int) -> list[tuple[int, int, int]]:
        """When the input of each stage's next op of a phase is there, its microbatch and stage."""
        numbers, arrivals = self.started[phase], self.arrivals[phase]
        return [
            (arrivals[stage][numbers[stage]], numbers[stage], stage)
            for stage in self.problem.stages_on[device]
            if numbers[stage] < len(arrivals[stage])
        ]

    def _fits(self, device: int, item: Item) -> bool:
        slack = self.problem.devices[device].slack
        return (
            slack is None or self.held[device] + memory_change(self.problem, item).at_start <= slack
        )

    def _backward(self, known: list[tuple[int, int, int]], device: int, now: int) -> Op | None:
        for arrival, number, stage in known:
            if arrival > now:
                break
            op = Op(stage, self._backward_kind(stage), number)
            if self._fits(device, op):
                return op
            op = op._replace(kind="BW")
            if self.problem.stages[stage].may_fuse and self._fits(device, op):
                return op
        return None

    def _backward_kind(self, stage: int) -> Kind:
        data, fuse = self.problem.stages[stage], self.policy.fuse
        if data.backward != "either":
            return "B" if data.may_split else "BW"
        first = self.problem.previous[stage] is None
        return "BW" if fuse == "fused" or (fuse == "first" and first) else "B"

    def _forward(self, device: int, now: int) -> Op | None:
        known = self._known("F", device)
        for arrival, number, stage in reversed(known) if self.policy.deep_first else known:
            if arrival <= now and number - self.started["B"][stage] < self.limit[stage]:
                op = Op(stage, "F", number)
                if self._forward_is_safe(device, op):
                    return op
        return None

    def _weight(self, backwards: list[tuple[int, int, int]], device: int, now: int) -> Op | None:
        stages = [stage for stage in self.problem.stages_on[device] if self.pending[stage]]
        if not stages:
            return None
        microbatch, stage = min((self.pending[stage][0], stage) for stage in stages)
        op = Op(stage, "W", microbatch)
        patience = self.policy.patience * duration(self.problem, op)
        soon = any(0 < arrival - now < patience for arrival, _, _ in backwards)
        return None if soon else op

    def _note(self, op: Op, device: int, end: int) -> None:
        """Note that an op has started and ends at ``end``."""
        stage, kind, microbatch, _ = op
        problem = self.problem
        if kind == "F":
            self.started["F"][stage] += 1
            self.active[device] += self._activation(op)
            if problem.previous[stage] is None:
                route = problem.route_of[stage]
                for other, chunks in enumerate(problem.chunks_on):
                    if route in chunks:
                        self.launched[other].append((microbatch, route))
            after = problem.next[stage]
            self._announce(
                Op(stage, "B", microbatch) if after is None else Op(after, "F", microbatch), end
            )
        elif kind == "W":
            assert self.pending[stage].popleft() == microbatch
        else:
            self.started["B"][stage] += 1
            self.active[device] -= self._activation(op)
            route = problem.route_of[stage]
            if stage == problem.chunks_on[device][route][0]:
                self.launched[device].remove((microbatch, route))
            if kind == "B":
                self.pending[stage].append(microbatch)
            before = problem.previous[stage]
            if before is not None:
                self._announce(Op(before, "B", microbatch), end)

    def _activation(self, op: Op) -> int:
        return self.problem.amounts(op.stage, op.microbatch).held_after_F

    def _announce(self, op: Op, end: int) -> None:
        """Note when the input of an F or a backward will be there; the op that sends it ends."""
        need = next(iter(inputs_of(self.problem, op)), None)
        assert need is not None
        self.arrivals[op.kind][op.stage].append(end + need.delay)
        heapq.heappush(self.events, (end + need.delay, self.problem.stages[op.stage].device))

    def _forward_is_safe(self, device: int, op: Op) -> bool:
        """Whether a forward fits now and leaves every launched microbatch able to finish."""
        slack = self.problem.devices[device].slack
        if slack is None:
            return True
        if not self._fits(device, op):
            return False
        free = slack - self.active[device] - self._activation(op)
        if free >= self.need[device]:
            return True
        self.started["F"][op.stage] += 1
        try:
            for number, route in self.launched[device]:
                chunks = self.problem.chunks_on[device][route]
                held = [holding_of(self.problem.amounts(chunk, number)) for chunk in chunks]
                up = sum(self.started["F"][chunk] > number for chunk in chunks)
                down = sum(self.started["B"][chunk] <= number for chunk in chunks)
                if further_need(held, up, down) > free:
                    return False
                free += sum(holding.activation for holding in held[: min(up, down)])
                if free >= self.need[device]:
                    return True
        finally:
            self.started["F"][op.stage] -= 1
        return True

    def _pair(self, device: int, now: int, wait: float) -> tuple[Item | None, bool]:
        """The pair that saves most, and whether to wait for one where there is none."""
        best: tuple[int, ...] = ()
        soon = False
        choice: Item | None = None
        for a, b in combinations(self._queued(device, now), 2):
            saved = self._saved(a, b)
            early, late = sorted((a.arrival, b.arrival))
            if saved <= 0:
                continue
            if late > now and (soon or early > now or late - now > wait * saved):
                continue
            worth = (saved, *self._urgency(a, b))
            pair = in_order(self.problem, Pair(a.op, b.op))
            if (late <= now and worth <= best) or not self._pair_fits(device, pair):
                continue
            if late > now:
                soon = True
            else:
                best, choice = worth, pair
        return choice, soon

    def _queued(self, device: int, now: int) -> list[Ready]:
        """The first two of every queue of the device, in every kind that they could run as."""
        found: list[Ready] = []
        for stage in self.problem.stages_on[device]:
            data = self.problem.stages[stage]
            backwards: list[Kind] = ["B"] if data.may_split else []
            backwards += ["BW"] if data.may_fuse else []
            queues: list[tuple[str, list[Kind]]] = [("F", ["F"]), ("B", backwards)]
            for phase, kinds in queues:
                done = self.started[phase][stage]
                for place, arrival in enumerate(self.arrivals[phase][stage][done : done + 2]):
                    ops = (Op(stage, kind, done + place) for kind in kinds)
                    found += [Ready(op, place == 0, arrival) for op in ops]
            for place, microbatch in enumerate(islice(self.pending[stage], 2)):
                found.append(Ready(Op(stage, "W", microbatch), place == 0, now))
        return found

    def _urgency(self, a: Ready, b: Ready) -> tuple[int, int]:
        """Which of two pairs that save as much goes first: the larger one."""
        forwards = [self.problem.place_of[x.op.stage] for x in (a, b) if x.op.kind == "F"]
        backwards = [x.op.microbatch for x in (a, b) if x.op.kind in ("B", "BW")]
        return -sum(backwards), sum(forwards) if self.policy.deep_first else -sum(forwards)

    def _saved(self, a: Ready, b: Ready) -> int:
        """Time that a pair saves; 0 if the two may not pair, or not yet."""
        if not (a.first and b.first) and (
            a.first == b.first
            or a.op.stage != b.op.stage
            or PHASE_OF[a.op.kind] != PHASE_OF[b.op.kind]
        ):
            return 0  # only together with the first may the second of its queue start
        time = pair_time(self.problem, a.op, b.op)
        return 0 if time is None else self._alone(a.op) + self._alone(b.op) - time

    def _alone(self, op: Op) -> int:
        alone = duration(self.problem, op)
        if op.kind == "BW" and self.problem.stages[op.stage].may_split:
            parts = (op._replace(kind="B"), op._replace(kind="W"))
            return min(alone, sum(duration(self.problem, part) for part in parts))
        return alone

    def _pair_fits(self, device: int, pair: Pair) -> bool:
        """Whether a pair fits into memory, and leaves every launched microbatch able to finish."""
        if not self._fits(device, pair):
            return False
        forwards = sorted((op for op in pair if op.kind == "F"), key=self._rank)
        backwards = len(pair) - len(forwards)
        for op in forwards:
            ahead = op.microbatch - self.started["B"][op.stage] - backwards
            if ahead >= self.limit[op.stage]:
                return False
        if not forwards:
            return True
        first, *others = forwards
        if not self._forward_is_safe(device, first):
            return False
        return all(self._safe_after(device, first, op) for op in others)

    def _safe_after(self, device: int, first: Op, second: Op) -> bool:
        """Whether a second forward is safe if a first one has started."""
        known = list(self.launched[device])
        self.started["F"][first.stage] += 1
        self.active[device] += self._activation(first)
        if self.problem.previous[first.stage] is None:
            self.launched[device].append((first.microbatch, self.problem.route_of[first.stage]))
        safe = self._forward_is_safe(device, second)
        self.launched[device] = known
        self.active[device] -= self._activation(first)
        self.started["F"][first.stage] -= 1
        return safe


def further_need(chunks: Sequence[ChunkHolding], up: int, down: int) -> int:
    """Most memory that a microbatch will yet take on a device beyond what it holds there.

    ``chunks`` are its holdings on the device's chunks in route order; it has run the forwards of
    the first ``up`` of them and has the backwards of the first ``down`` still to come.
    """
    most = held = 0
    for activation, excess in chunks[:down]:
        held += activation
        most = max(most, held + excess)
    return max(0, most - sum(chunk.activation for chunk in chunks[: min(up, down)]))
