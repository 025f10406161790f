"""Models of a part of a problem: some devices, or the first microbatches.

A relaxation keeps the ops of some devices. What lies between two of them on a route becomes a lag:
the durations and delays of the stages in between, as if their devices were never busy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from pipesat.problem.ops import Item, Phase, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import link_delay, round_trip
from pipesat.schedule.schedule import Order, Schedule


class Lag(NamedTuple):
    """Start >= end of ``phase`` of the same microbatch on ``stage`` + delay.

    Without a stage: start >= delay.
    """

    stage: int | None
    phase: Phase
    delay: int


def lag_before(problem: Problem, kept: Collection[int], stage: int, phase: Phase) -> Lag:
    """Return what an op of a kept stage waits for among kept stages, in time units."""
    if phase == "W":
        return Lag(stage, "B", 0)
    if phase == "F":
        delay, here = 0, stage
        while (before := problem.previous[here]) is not None:
            delay += link_delay(problem, before, "F")
            if before in kept:
                return Lag(before, "F", delay)
            delay += problem.stages[before].F
            here = before
        return Lag(None, "F", delay)
    delay, here = 0, stage
    while (after := problem.next[here]) is not None:
        delay += link_delay(problem, here, "B")
        if after in kept:
            return Lag(after, "B", delay)
        delay += problem.stages[after].shortest_backward
        here = after
    return Lag(stage, "F", round_trip(problem, stage))


def tail_after(problem: Problem, kept: Collection[int], stage: int, only: int | None = None) -> int:
    """Least time from the end of a kept stage's last backward to the end of what follows it.

    That is the work of the stages before it on its route, down to the next kept one; with ``only``,
    to the end of what follows on that device: a span does not wait for weight gradients elsewhere.
    """
    longest, way, here = 0, 0, stage
    while (before := problem.previous[here]) is not None and before not in kept:
        way += link_delay(problem, before, "B")
        data = problem.stages[before]
        if only is None or data.device == only:
            longest = max(longest, way + data.least_backward_work)
        way += data.shortest_backward
        here = before
    return longest


def with_microbatches(problem: Problem, counts: Sequence[int]) -> Problem:
    """Return the problem with other numbers of microbatches, one per route; the first of lists."""
    routes = (
        replace(r, microbatches=count, classes=r.classes and r.classes[:count])
        for r, count in zip(problem.routes, counts, strict=True)
    )
    return replace(problem, routes=tuple(routes))


def first_microbatches(schedule: Schedule, few: Problem) -> Order:
    """Return the order of a schedule's first microbatches, as many as ``few`` has.

    All rules hold that held before: nothing waits for what is left out, and less is held. Of a pair
    with one member left out, the other runs alone, which may take longer than the pair did.
    """
    return tuple(
        tuple(chain.from_iterable(_kept(item, few) for item in row)) for row in schedule.order
    )


def _kept(item: Item, few: Problem) -> tuple[Item, ...]:
    kept = tuple(op for op in members(item) if op.microbatch < few.microbatches[op.stage])
    return (item,) if len(kept) == len(members(item)) else kept


def one_by_one(problem: Problem, device: int | None = None) -> int:
    """Return the time of all ops of one microbatch, on a device or with all delays."""
    stages = problem.stages
    if device is not None:
        stages = tuple(stages[s] for s in problem.stages_on[device])
    one = sum(stage.F + max(stage.B + stage.W, stage.BW) for stage in stages)
    return one + sum(link.F + link.B for link in problem.links.values() if device is None)
