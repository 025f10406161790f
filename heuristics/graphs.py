"""List scheduling of routes that are graphs, sequences in slices, stages without a backward.

Whenever a device is idle, it runs the backward that has waited longest, else a forward that may
start, else a weight gradient. A stage holds at most ``limit`` microbatches between F and backward:
those that 1F1B would hold where it lies, times a depth. That is the number of stages on the longest
way from there to a last stage, and the slices of a sequence less one. A forward starts only if
memory is left for all that its device holds, as each holds most between ops, and for any one op.
Several stages of a device share its memory so that all may reach their limits. So no order stops:
the oldest sequence always finds its place, and weight gradients need none.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import product

from pipesat.problem.ops import Event, Item, Kind, Op, Phase
from pipesat.problem.problem import Problem, once
from pipesat.problem.rules import duration, inputs_of
from pipesat.problem.variants import Variant, variant_of
from pipesat.schedule.schedule import Order

_DEPTHS = (1.0, 2.0, 1.5, 0.5, 4.0)
_PATIENCES = (0.0, 1.0)


def graph_orders(problem: Problem) -> Iterator[Order]:
    """Yield orders of several depths, with weight gradients early or late; all fit memory."""
    seen = set()
    for depth, patience in product(_DEPTHS, _PATIENCES):
        limits = limits_of(problem, depth)
        if limits is not None and (limits, patience) not in seen:
            seen.add((limits, patience))
            yield GraphScheduler(problem, limits, patience).order()


def depths(problem: Problem) -> list[int]:
    """Stages on the longest way from each stage to a last one of its route, itself included."""
    found = [1] * len(problem.stages)
    for route in problem.routes:
        for stage in reversed(route.stages):
            found[stage] += max((found[s] for s in problem.after[stage]), default=0)
    return found


def limits_of(problem: Problem, depth: float) -> tuple[int, ...] | None:
    """Return how many microbatches each stage may hold; ``None`` if not even one sequence fits."""
    slices = problem.slices_of
    wanted = [
        min(m, n - 1 + max(1, round(depth * d)))
        for m, n, d in zip(problem.microbatches, slices, depths(problem), strict=True)
    ]
    limits = [*map(min, slices, wanted)]
    for device, stages in zip(problem.devices, problem.stages_on, strict=True):
        if device.slack is None:
            for stage in stages:
                limits[stage] = wanted[stage]
            continue
        needs = {stage: _need(problem, stage) for stage in stages}
        left = device.slack - max((extra for _, extra in needs.values()), default=0)
        left -= sum(limits[s] * held for s, (held, _) in needs.items())
        if left < 0:
            return None
        if len(stages) == 1:  # memory itself limits it, microbatch by microbatch
            limits[stages[0]] = wanted[stages[0]]
            continue
        growing = {s for s in stages if limits[s] < wanted[s]}
        while growing:
            stage = min(growing, key=lambda s: (limits[s] / wanted[s], s))
            if needs[stage][0] > left:
                growing.discard(stage)
                continue
            left -= needs[stage][0]
            limits[stage] += 1
            if limits[stage] == wanted[stage]:
                growing.discard(stage)
    return tuple(limits)


def _need(problem: Problem, stage: int) -> tuple[int, int]:
    """Most that a microbatch of any class holds between ops of a stage, and more while one runs."""
    own = [variant_on(problem, stage, of_class) for of_class in problem.route(stage).counts]
    held = max(map(_between_ops, own))
    return held, max(one.most for one in own) - held


@once
def variant_on(problem: Problem, stage: int, of_class: int) -> Variant:
    """Return how a class runs: its backward split, unless fusing pays or is all there is."""
    data = problem.resulting(stage, 0, of_class)
    return variant_of(data, split=not data.fusing_may_pay)


def _between_ops(variant: Variant) -> int:
    """Most that a microbatch holds between ops of a stage."""
    return 0 if variant.alone else max(variant.held, variant.after)


class GraphScheduler:
    """One run: ``patience`` is how long a device idles for a known input, in parts of a W."""

    def __init__(self, problem: Problem, limits: Sequence[int], patience: float) -> None:
        self.problem, self.limits, self.patience = problem, limits, patience
        stages = range(len(problem.stages))
        self.forwards, self.backwards = ([0] * len(stages) for _ in range(2))
        self.reserved = [0] * len(problem.devices)
        self.extra = [
            max((_need(problem, stage)[1] for stage in own), default=0) for own in problem.stages_on
        ]
        self.due: list[deque[Op]] = [deque() for _ in problem.devices]
        self.ends: dict[Event, int] = {}
        self.waiting: dict[Event, set[int]] = {}
        self.rows: list[list[Item]] = [[] for _ in problem.devices]
        self.free_at = [0] * len(problem.devices)
        self.events = [(0, device) for device in range(len(problem.devices))]

    def order(self) -> Order:
        """Run it to its end."""
        while self.events:
            now, device = heapq.heappop(self.events)
            if self.free_at[device] <= now:
                self._choose(device, now)
        return tuple(map(tuple, self.rows))

    def _choose(self, device: int, now: int) -> None:
        """Start an op on an idle device, or let it wait until an input arrives."""
        soon: int | None = None
        for phase in ("B", "F"):
            ready = []
            for stage in self.problem.stages_on[device]:
                op = self._next(stage, phase)
                arrival = None if op is None else self._arrival(op, device)
                if op is None or arrival is None:
                    continue
                if arrival <= now:
                    ready.append((arrival if phase == "B" else op.microbatch, -stage, op))
                elif soon is None or arrival < soon:
                    soon = arrival
            if ready:
                self._run(device, now, min(ready)[2])
                return
        due = self.due[device]
        if due and (soon is None or soon - now >= self.patience * duration(self.problem, due[0])):
            self._run(device, now, due.popleft())
            return
        if soon is not None:
            heapq.heappush(self.events, (soon, device))

    def _next(self, stage: int, phase: Phase) -> Op | None:
        """Return the next forward of a stage, unless it holds as many as it may, or backward."""
        problem, slices = self.problem, self.problem.slices_of[stage]
        started, ended = self.forwards[stage], self.backwards[stage]
        backward = problem.stages[stage].has_backward
        if phase == "F":
            full = backward and started - ended >= self.limits[stage]
            if full or started == problem.microbatches[stage]:
                return None
            device = problem.stages[stage].device
            need = self.reserved[device] + _between_ops(self._variant(stage, started))
            slack = problem.devices[device].slack
            fits = slack is None or need + self.extra[device] <= slack
            return Op(stage, "F", started) if fits else None
        if not backward or ended == problem.microbatches[stage]:
            return None
        sequence, place = divmod(ended, slices)
        microbatch = sequence * slices + slices - 1 - place
        kind: Kind = "B" if self._variant(stage, microbatch).split else "BW"
        return Op(stage, kind, microbatch)

    def _variant(self, stage: int, microbatch: int) -> Variant:
        return variant_on(self.problem, stage, self.problem.class_of(stage, microbatch))

    def _arrival(self, op: Op, device: int) -> int | None:
        """When all inputs of an op are there; ``None`` while one is not made: it will wake it."""
        latest = 0
        for event, delay in inputs_of(self.problem, op):
            end = self.ends.get(event)
            if end is None:
                self.waiting.setdefault(event, set()).add(device)
                return None
            latest = max(latest, end + delay)
        return latest

    def _run(self, device: int, now: int, op: Op) -> None:
        end = now + duration(self.problem, op)
        self.rows[device].append(op)
        self.free_at[device] = end
        heapq.heappush(self.events, (end, device))
        own = self._variant(op.stage, op.microbatch)
        if op.kind == "W":
            self.reserved[device] -= own.after
            return
        if op.kind == "F":
            self.forwards[op.stage] += 1
            self.reserved[device] += _between_ops(own)
        else:
            self.backwards[op.stage] += 1
            self.reserved[device] -= _between_ops(own)
            if op.kind == "B":
                self.reserved[device] += own.after
                self.due[device].append(op._replace(kind="W"))
        self.ends[op.event] = end
        for other in sorted(self.waiting.pop(op.event, ())):
            heapq.heappush(self.events, (end, other))
