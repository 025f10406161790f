"""List scheduling: a portfolio of greedy, event-driven policies for any placement and any cap.

A device that falls idle takes the first of: a backward whose input is there, a forward that fits
into memory, a weight gradient. Policies differ in how long a device waits for a backward that is
about to arrive, in how many microbatches may be in flight, in which chunk goes first, and in
where the backward is fused.

Memory safety. Microbatches are launched one after the other; let them be completed in that order.
A forward may start on a device only if afterwards every launched microbatch, in launch order, can
still obtain what it needs there: with ``extra(i)`` the most that microbatch i will yet take beyond
what it holds, ``extra(i) <= room - held by all + held by those before i``. Memory of started
backwards and of pending weight gradients counts as free, since these need nothing to finish. Such
a state always lets the oldest microbatch advance, so the scheduler cannot deadlock on any problem
in which one microbatch alone fits.

Long runs. Once all repeats, the rest is not simulated (:mod:`pipesat.heuristics.shared.repeating`).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, starmap
from operator import attrgetter, sub
from typing import Any, Literal, TypeAlias

from pipesat.bounds.feasibility import (
    Holding,
    capacities_by_order,
    further_need,
    holding_of,
    holdings,
    lacking,
    preflight,
    sure_order,
)
from pipesat.core.arrays import nothing_collected
from pipesat.core.errors import Fault, Infeasible, NotApplicable
from pipesat.core.event_engine import DeviceMemory, EventEngine
from pipesat.core.ops import Item, Kind, Op, members
from pipesat.core.plain_problems import without_modes
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, duration, round_trip
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import time_order
from pipesat.heuristics.registry import GiveUp, never, published, unless_given_up
from pipesat.heuristics.shared.repeating import LeftOut, Moment

NAME = "list-scheduling"

Fuse: TypeAlias = Literal["split", "first", "fused"]

_Known: TypeAlias = tuple[int, int, int]
"""When the input of a stage's next forward or backward is there, its microbatch and stage."""


@dataclass(frozen=True)
class Policy:
    """What distinguishes one greedy scheduler from another.

    Parameters
    ----------
    patience
        How long a device idles for a backward that is known to arrive, in parts of the W that it
        could run instead.
    in_flight
        Limit ``(factor, offset)`` on microbatches between F and backward of a stage with r stages
        after it: ``factor * r + offset``; (1, 1) is 1F1B's, (2, 1) eager 1F1B's.
    pace
        Limit them to ``pace * l / T`` instead, where l is the least time from a stage's F to the
        end of its backward and T the least period that device loads and memory allow: what a
        steady stream of microbatches would hold.
    deep_first
        Among forwards, whether the later chunk of a device goes first.
    fuse
        ``either`` stages: always split, fuse on the first stage of a route (nothing waits for its
        input gradient), or always fuse.
    """

    patience: float = 1.0
    in_flight: tuple[float, int] | None = None
    pace: float | None = None
    deep_first: bool = True
    fuse: Fuse = "split"


_LOOKED_AT = 2  # microbatches of a queue, by any policy
_LIMITS: tuple[tuple[float, int] | None, ...] = (None, (1, 1), (2, 1), (0.67, 1), (1.5, 1), (1, 2))
_PACES = (1.0, 1.25, 1.5, 0.8, 2.0)


_MOST_OPS = 600_000  # simulated by all policies together: a few seconds
_FEWEST = 4


def policies(problem: Problem) -> Iterator[Policy]:
    """Yield the policies that differ on this problem, the usually best ones first.

    On large problems only as many as take a few seconds together.
    """
    yield from islice(_all_policies(problem), max(_FEWEST, _MOST_OPS // problem.op_count))


def _all_policies(problem: Problem) -> Iterator[Policy]:
    fuses: tuple[Fuse, ...] = ("split",)
    if any(stage.backward == "either" and stage.fusing_may_pay for stage in problem.stages):
        fuses = ("split", "first", "fused")
    chunked = any(len(stages) > 1 for stages in problem.stages_on)
    for patience in (1.0, 0.0, 0.5, 0.25, 0.75):
        bases = [Policy(patience, pace=pace) for pace in _PACES if chunked]
        bases += [Policy(patience, limit) for limit in _LIMITS]
        for base in bases:
            for fuse in fuses:
                yield replace(base, fuse=fuse)
                if chunked:
                    yield replace(base, fuse=fuse, deep_first=False)


def list_schedules(
    problem: Problem,
    give_up: GiveUp = never,
    chosen: Iterable[Policy] | None = None,
) -> Iterator[Schedule]:
    """Yield one schedule per policy, as it is made; each fits into memory.

    ``give_up`` is asked now and then; once it says yes, nothing more is yielded. ``chosen`` are the
    policies, all that differ unless given.

    Policies count memory op by op. Where one microbatch alone exceeds a capacity that way, it may
    still pass if ops of length zero share instants; the one schedule is then that of one microbatch
    after the other, or none if the problem is infeasible.
    """
    own, problem = problem, without_modes(problem)
    if lacking(problem, capacities_by_order(problem)):
        with contextlib.suppress(Infeasible):
            yield time_order(own, sure_order(problem), source=NAME)
        return
    for policy in policies(problem) if chosen is None else chosen:
        order = Simulation(problem, policy).order(give_up)
        if order is None:
            return
        yield time_order(own, order, source=NAME)


@published(NAME, placement="any", splits=True, source="pipesat", slow=True)
def list_scheduling(problem: Problem, give_up: GiveUp = never) -> Schedule:
    """Return the portfolio's schedule of least makespan; among equals that of least span."""
    try:
        preflight(without_modes(problem))
    except Infeasible as error:
        raise NotApplicable(f"no schedule fits into memory: {error}") from error
    made = list(list_schedules(problem, give_up))
    unless_given_up(give_up)
    return min(made, key=lambda schedule: (schedule.makespan, schedule.span))


class Simulation(EventEngine[Item]):
    """One run of one policy. Lists are indexed by stage or by device; queues are in FIFO order."""

    def __init__(self, problem: Problem, policy: Policy) -> None:
        super().__init__(len(problem.devices))
        self.problem, self.policy = problem, policy
        stages = len(problem.stages)
        self.started = {kind: [0] * stages for kind in ("F", "B")}
        self.arrivals: dict[str, list[list[int]]] = {
            "F": [[] for _ in range(stages)],  # when the input of the next forwards is there
            "B": [[] for _ in range(stages)],
        }
        for route in problem.routes:
            self.arrivals["F"][route.stages[0]] = [0] * route.microbatches
        self.pending: list[deque[int]] = [deque() for _ in range(stages)]  # microbatches due for W
        self.limit = self._limits()
        self.memory = [DeviceMemory(problem, device.room) for device in problem.devices]
        self.active = [0] * len(problem.devices)  # held by forwards whose backward is to come
        self.launched: list[list[tuple[int, int]]] = [[] for _ in problem.devices]
        self.chunks = problem.chunks_on
        self.entry = problem.routes[0].stages[0]
        self.seen: Moment | None = None  # one that later ones are compared with
        self.left_out: LeftOut | None = None
        self.held = holdings(problem)
        self.need = [
            need.capacity - device.static
            for need, device in zip(capacities_by_order(problem), problem.devices, strict=True)
        ]

    @nothing_collected()
    def order(self, give_up: GiveUp) -> Order | None:
        """Simulate until nothing is left to do, and return what each device did."""
        if not self.run(give_up):
            return None
        rows: Iterable[Iterable[Item]] = self.rows
        missing = list(map(sub, self.problem.microbatches, self.started["B"]))
        if (left_out := self.left_out) is not None:
            missing = [number - left_out.microbatches for number in missing]
            self.busy_until = [end and end + left_out.time for end in self.busy_until]
            rows = starmap(left_out.whole, enumerate(self.rows))
        if any(missing):
            raise Fault(f"list scheduling ({self.policy}) stopped before the end")
        return tuple(map(tuple, rows))

    def step(self, device: int, now: int) -> bool:
        """Start one item on an idle device; False if it has to, or chooses to, wait."""
        backwards = sorted(self._known("B", device))
        choice = (
            self._backward(backwards, device, now)
            or self._forward(device, now)
            or self._weight(backwards, device, now)
        )
        if choice is not None:
            self.start(choice, device, now)
        return choice is not None

    def _known(self, phase: Literal["F", "B"], device: int) -> list[_Known]:
        """The next forward or backward of each stage whose input's arrival is known."""
        numbers, arrivals = self.started[phase], self.arrivals[phase]
        return [
            (arrivals[stage][numbers[stage]], numbers[stage], stage)
            for stage in self.problem.stages_on[device]
            if numbers[stage] < len(arrivals[stage])
        ]

    def _backward(self, known: list[_Known], device: int, now: int) -> Op | None:
        for arrival, number, stage in known:
            if arrival > now:
                break
            op = Op(stage, self._backward_kind(stage), number)
            if self.memory[device].fits(op):
                return op
            op = op._replace(kind="BW")
            if self.problem.stages[stage].may_fuse and self.memory[device].fits(op):
                return op
        return None

    def _backward_kind(self, stage: int) -> Kind:
        data = self.problem.stages[stage]
        if data.backward != "either":
            return "B" if data.may_split else "BW"
        if self.policy.fuse == "fused":
            return "BW"
        if self.policy.fuse == "first" and self.problem.previous[stage] is None:
            return "BW"
        return "B"

    def _forward(self, device: int, now: int) -> Op | None:
        known = self._known("F", device)
        for arrival, number, stage in reversed(known) if self.policy.deep_first else known:
            limit = self.limit[stage]
            if arrival > now or (limit is not None and number - self.started["B"][stage] >= limit):
                continue
            op = Op(stage, "F", number)
            if self.forward_is_safe(device, op):
                return op
        return None

    def _weight(self, backwards: list[_Known], device: int, now: int) -> Op | None:
        ready = [
            (self.pending[stage][0], stage)
            for stage in self.problem.stages_on[device]
            if self.pending[stage]
        ]
        if not ready:
            return None
        microbatch, stage = min(ready)
        op = Op(stage, "W", microbatch)
        patience = self.policy.patience * duration(self.problem, op)
        soon = any(0 < arrival - now < patience for arrival, _, _ in backwards)
        return None if soon else op

    def start(self, item: Item, device: int, now: int) -> None:
        """Run an item, and note what comes of it."""
        end = now + duration(self.problem, item)
        before = self.started["F"][self.entry]
        self.occupy(device, item, end)
        self.memory[device].run(item)
        for op in sorted(members(item), key=attrgetter("microbatch")):
            self._note(op, device, end)
        if (entered := self.started["F"][self.entry]) > before:
            self._look_back(entered, now)

    def _look_back(self, entered: int, now: int) -> None:
        """Leave out what repeats, if all stands as when fewer microbatches had entered.

        It is compared with the last time that their number was a power of two, or just above.
        """
        if self.left_out is not None or not self.problem.plain:
            return
        here = Moment(now, entered, list(map(len, self.rows)), self._view(entered, now))
        if self.seen is None or entered >= 2 * self.seen.entered:
            self.seen = here._replace(view=list(here.view))
        elif here.repeats(self.seen):
            queues = [self.arrivals["F"][route.stages[0]] for route in self.problem.routes]
            started = [self.started["F"][route.stages[0]] for route in self.problem.routes]
            left = min(map(sub, map(len, queues), started)) - _LOOKED_AT
            since = entered - self.seen.entered
            left_out = LeftOut(max(0, left // since), self.seen, here)
            if max(map(len, queues)) - left_out.microbatches >= self.seen.two + 2 * since:
                return  # a route is much longer than another
            self.left_out = left_out
            for queue in queues:
                del queue[len(queue) - left_out.microbatches :]

    def _view(self, entered: int, now: int) -> Iterator[list[Any]]:
        """What the rest of a run depends on (:class:`Moment`).

        What devices hold follows from what has started and what is due.
        """
        for numbers in self.started.values():
            yield [number - entered for number in numbers]
        yield [max(0, end - now) for end in self.busy_until]
        yield sorted((time - now, device) for time, device in self.events)
        for phase, numbers in self.started.items():
            for stage, number in enumerate(numbers):
                if phase == "B" or self.problem.previous[stage] is not None:
                    yield [arrival - now for arrival in self.arrivals[phase][stage][number:]]
        for due in self.pending:
            yield [number - entered for number in due]
        for launched in self.launched:
            yield [(number - entered, route) for number, route in launched]

    def _note(self, op: Op, device: int, end: int) -> None:
        """Note that an op has started and ends at ``end``."""
        stage, kind, microbatch, _ = op
        problem = self.problem
        if kind == "F":
            self.started["F"][stage] += 1
            self.active[device] += self.activation(op)
            self._launch(stage, microbatch)
            after = problem.next[stage]
            follower = Op(stage, "B", microbatch) if after is None else Op(after, "F", microbatch)
            self._announce(follower, end)
        elif kind == "W":
            self.pending[stage].popleft()
        else:
            self.started["B"][stage] += 1
            self.active[device] -= self.activation(op)
            route = problem.route_of[stage]
            if stage == self.chunks[device][route][0]:
                self.launched[device].remove((microbatch, route))
            if kind == "B":
                self.pending[stage].append(microbatch)
            before = problem.previous[stage]
            if before is not None:
                self._announce(Op(before, "B", microbatch), end)

    def activation(self, op: Op) -> int:
        """What the forward of an op's stage and microbatch takes."""
        return self._holding(op.stage, op.microbatch).activation

    def _holding(self, stage: int, microbatch: int) -> Holding:
        if self.problem.plain:
            return self.held[stage]
        return holding_of(self.problem.amounts(stage, microbatch))

    def _announce(self, op: Op, end: int) -> None:
        """Note when the input of an F or a backward will be there; the op that sends it ends."""
        need = awaited(self.problem, op)
        arrival = end if need is None else end + need.delay
        self.arrivals[op.kind][op.stage].append(arrival)
        self.wake(self.problem.stages[op.stage].device, arrival)

    def _launch(self, stage: int, microbatch: int) -> None:
        """Note on every device of its route that a microbatch is under way."""
        if self.problem.previous[stage] is None:
            route = self.problem.route_of[stage]
            for device, chunks in enumerate(self.chunks):
                if route in chunks:
                    self.launched[device].append((microbatch, route))

    def forward_is_safe(self, device: int, op: Op) -> bool:
        """Whether a forward fits now and leaves every launched microbatch able to finish."""
        room = self.problem.devices[device].room
        if room is None:
            return True
        if not self.memory[device].fits(op):
            return False
        free = room - self.active[device] - self.activation(op)
        if free >= self.need[device]:
            return True
        self.started["F"][op.stage] += 1
        try:
            for number, route in self.launched[device]:
                chunks = self.chunks[device][route]
                held = [self._holding(chunk, number) for chunk in chunks]
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

    def _limits(self) -> list[int | None]:
        if self.policy.pace is not None:
            return list(_paced_limits(self.problem, self.policy.pace))
        if self.policy.in_flight is None:
            return [None] * len(self.problem.stages)
        factor, offset = self.policy.in_flight
        limits: list[int | None] = [None] * len(self.problem.stages)
        for route in self.problem.routes:
            for after, stage in enumerate(reversed(route.stages)):
                limits[stage] = max(1, int(factor * after) + offset)
        return limits


def _paced_limits(problem: Problem, pace: float) -> list[int]:
    stages = range(len(problem.stages))
    lifetimes = [
        problem.stages[s].F + round_trip(problem, s) + problem.stages[s].shortest_backward
        for s in stages
    ]
    period = 1.0
    for device, chunks in zip(problem.devices, problem.stages_on, strict=True):
        load = sum(problem.stages[s].F + problem.stages[s].least_backward_work for s in chunks)
        area = sum(lifetimes[s] * problem.stages[s].held_after_F for s in chunks)
        period = max(period, load, area / device.room if device.room else 0)
    return [max(1, round(pace * lifetime / period + 0.3)) for lifetime in lifetimes]
