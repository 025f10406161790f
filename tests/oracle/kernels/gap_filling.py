"""Gap filling by its definition, with a heap of steps: what the compiled run has to do as well."""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

from pipesat.bounds.closed_form import least_warm_ups
from pipesat.heuristics.shared.gap_filling import Switches
from pipesat.problem.geometry import Ranks
from pipesat.problem.ops import Item, Kind, Op
from pipesat.problem.problem import Problem
from pipesat.problem.rules import link_delay, round_trip
from pipesat.schedule.schedule import Order


class _Step(NamedTuple):
    """What a rank would do next: ``kind`` at ``start``, after ``drains`` weight gradients."""

    start: int
    kind: Kind
    drains: int


def fill_gaps(problem: Problem, ranks: Ranks, switches: Switches) -> tuple[int, int, Order]:
    """Makespan, span and order of one setting."""
    line = [_Rank(problem, ranks, d, switches) for d in range(len(ranks))]
    if switches.depth == "least idle":
        _set_warm_ups(problem, line)
    _simulate(line)
    rows: list[tuple[Item, ...]] = [() for _ in problem.devices]
    for home, rank in zip(ranks.device, line, strict=True):
        assert rank.backwards == rank.microbatches
        rank.run_weights(len(rank.due))
        rows[home] = tuple(rank.items)
    makespan = max(rank.free_at for rank in line)
    span = max(rank.free_at - rank.first_start for rank in line)
    return makespan, span, tuple(rows)


def _set_warm_ups(problem: Problem, line: list[_Rank]) -> None:
    """Let the ranks warm up with the least idling, none deeper than the one that feeds it."""
    wanted = least_warm_ups(problem, [rank.load for rank in line]).forwards
    most = line[0].limit
    for rank, forwards in zip(line, wanted, strict=True):
        rank.exact_warm_up = most = min(most, rank.limit, forwards)


def _simulate(line: list[_Rank]) -> None:
    """Place F and backwards in the order of their starts, later ranks first among equals."""
    steps: list[_Step | None] = [None] * len(line)
    events: list[tuple[int, int, _Step]] = []

    def look(d: int) -> None:
        step = steps[d] = line[d].next_step()
        if step is not None:
            heapq.heappush(events, (step.start, -d, step))

    worst = max(rank.debt for rank in line)
    look(0)
    while events:
        _, minus_d, step = heapq.heappop(events)
        d = -minus_d
        if step is not steps[d]:
            continue
        rank = line[d]
        rank.fill(step, worst)
        rank.run(step.kind, step.start)
        worst = max(worst, rank.debt)
        if step.kind != "F":
            if d:
                line[d - 1].gradients.append(rank.free_at + line[d - 1].delay_back)
                look(d - 1)
        elif d + 1 < len(line):
            line[d + 1].activations.append(rank.free_at + rank.delay)
            look(d + 1)
        else:
            rank.gradients.append(rank.free_at)
        look(d)


class _Rank:
    """One rank's data and state. Counts are of ops already placed."""

    def __init__(self, problem: Problem, ranks: Ranks, d: int, switches: Switches) -> None:
        (self.stage,) = ranks.stages[d]
        data = problem.stages[self.stage]
        self.switches = switches
        self.length: dict[Kind, int] = {"F": data.F, "B": data.B, "W": data.W, "BW": data.BW}
        self.held, self.kept = data.held_after_F, data.held_after_B
        self.excess_fused = max(0, data.held_in_backward - self.held)
        self.excess = max(self.excess_fused, self.kept - self.held)
        self.slack = problem.devices[data.device].slack
        self.microbatches = problem.microbatches[self.stage]
        self.may_fuse = data.may_fuse
        fused = data.may_fuse and (d in switches.fused_ranks or not data.may_split)
        self.backward: Kind = "BW" if fused else "B"
        self.delay = link_delay(problem, self.stage, "F")
        self.delay_back = link_delay(problem, self.stage, "B")
        head = _head(problem, ranks, d)
        self.first_backward = head + data.F + round_trip(problem, self.stage)
        self.limit = self._limit(len(ranks), d)
        self.warm_up = self.limit  # microbatches held when the first backward starts
        self.exact_warm_up: int | None = None  # number of F; otherwise as many as come in time
        self.load = self.microbatches * (data.F + data.least_backward_work)
        self.debt = {"end": head + self.load, "load": self.load}.get(switches.critical, 0)

        self.free_at = self.first_start = 0
        self.used = 0
        self.forwards = self.backwards = 0
        self.due: deque[int] = deque()  # microbatches whose W is still to run
        self.activations = [0] * self.microbatches if d == 0 else []  # when they arrive
        self.gradients: list[int] = []
        self.items: list[Item] = []

    def _limit(self, p: int, d: int) -> int:
        most = self.microbatches
        if self.slack is not None and self.held:
            splits = self.switches.fuse == "split" or not self.may_fuse
            reserve = self.excess if splits and self.backward == "B" else self.excess_fused
            most = max(1, min(most, (self.slack - reserve) // self.held))
        if self.switches.depth in ("memory", "least idle"):
            return most
        slope = -(-most * (p - d) // p)
        wanted = {"1f1b": p - d, "eager": 2 * (p - 1 - d) + 1, "slope": slope}
        return min(most, wanted.get(self.switches.depth, slope + 1))

    def next_step(self) -> _Step | None:
        """Choose between the next F and the next backward; ``None`` while neither is known."""
        if self.exact_warm_up is not None and not self.backwards:
            warming_up = self.forwards < self.exact_warm_up
            return self._forward_step() if warming_up else self._backward_step()
        backward = self._backward_step()
        forward = self._forward_step()
        if forward is None:
            return None if self._waits_for_forward() else backward
        if backward is None or self._is_due_for_forward():
            return forward
        end = forward.start + (self.length["F"] if self.switches.spare else 0)
        return forward if forward.start < backward.start and end <= backward.start else backward

    def _is_due_for_forward(self) -> bool:
        """Whether the pattern wants an F before the next backward."""
        if self.switches.pattern == "free" or not self.backwards:
            return False
        skipped = self.switches.pattern == "skip"
        return self.forwards - self.backwards < self.warm_up - skipped

    def _waits_for_forward(self) -> bool:
        """Whether the pattern waits for an F whose input is not known yet."""
        unknown = len(self.activations) == self.forwards < self.microbatches
        return unknown and self._is_due_for_forward()

    def _forward_step(self) -> _Step | None:
        number, in_flight = self.forwards, self.forwards - self.backwards
        if number == len(self.activations) or in_flight >= self.limit:
            return None
        drains = self._drains(self.held)
        if drains > len(self.due):
            return None
        start = max(self.free_at + drains * self.length["W"], self.activations[number])
        delays_backward = start + self.length["F"] > self.first_backward
        if self.backwards:
            if self.switches.pattern != "free" and in_flight >= self.warm_up:
                return None
        elif number and delays_backward and not (self.switches.late_first or self.exact_warm_up):
            return None
        return _Step(start, "F", drains)

    def _backward_step(self) -> _Step | None:
        if self.backwards == len(self.gradients):
            return None
        arrival = self.gradients[self.backwards]
        fusing = self._drains(self.excess_fused)
        fused = _Step(max(self.free_at + fusing * self.length["W"], arrival), "BW", fusing)
        if self.backward == "BW":
            return fused
        drains = self._drains(self.excess)
        split = _Step(max(self.free_at + drains * self.length["W"], arrival), "B", drains)
        if drains and self.may_fuse and fusing <= len(self.due):
            sooner = fused.start + self.length["BW"] <= split.start + self.length["B"]
            return fused if sooner or drains > len(self.due) else split
        return split

    def _drains(self, amount: int) -> int:
        """How many W have to run before ``amount`` fits; more than there are if it cannot."""
        if self.slack is None or self.used + amount <= self.slack:
            return 0
        return (
            -(-(self.used + amount - self.slack) // self.kept) if self.kept else len(self.due) + 1
        )

    def fill(self, step: _Step, worst: int) -> None:
        """Run the W that memory needs, those that the gap holds, and one that is worth a delay."""
        self.run_weights(step.drains)
        if not self.items:
            self.first_start = self.free_at = step.start
        length = self.length["W"]
        while self.due and step.start - self.free_at >= length:
            self.run_weights(1)
        gap = step.start - self.free_at
        if gap <= 0 or not self.due:
            return
        hurts = self.switches.critical != "never" and self.debt + gap > worst
        if hurts or gap >= self.switches.part * length:
            self.run_weights(1)

    def run_weights(self, count: int) -> None:
        """Run the oldest weight gradients at once."""
        for _ in range(count):
            self.items.append(Op(self.stage, "W", self.due.popleft()))
            self.free_at += self.length["W"]
            self.used -= self.kept

    def run(self, kind: Kind, start: int) -> None:
        """Run the next F or backward, not before ``start``."""
        self.debt += max(0, start - self.free_at)
        self.free_at = max(start, self.free_at) + self.length[kind]
        if kind == "F":
            self.items.append(Op(self.stage, "F", self.forwards))
            self.forwards += 1
            self.used += self.held
            return
        if not self.backwards:
            self.warm_up = self.forwards
        self.items.append(Op(self.stage, kind, self.backwards))
        self.used -= self.held
        if kind == "B":
            self.used += self.kept
            self.due.append(self.backwards)
        self.backwards += 1


def _head(problem: Problem, ranks: Ranks, d: int) -> int:
    """Earliest start of rank d's first F."""
    return sum(
        problem.stages[stage].F + link_delay(problem, stage, "F") for (stage,) in ranks.stages[:d]
    )
