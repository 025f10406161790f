"""Models of a part of a problem: some devices, or the first microbatches.

A relaxation keeps the ops of some devices. What lies between two of them on a route becomes a lag:
the durations and delays of the stages in between, as if their devices were never busy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, TypeAlias

from pipesat.problem.ops import Item, Op, Phase, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import link_delay, sources_of
from pipesat.schedule.schedule import Order, Schedule


class Lag(NamedTuple):
    """Start >= end of ``phase`` of the same microbatch on ``stage`` + delay.

    Without a stage: start >= delay.
    """

    stage: int | None
    phase: Phase
    delay: int


def lags_before(problem: Problem, kept: Collection[int], stage: int, phase: Phase) -> list[Lag]:
    """Return what an op of a kept stage waits for among kept stages, in time units.

    On a chain that is one thing; of a graph each kept stage that ways of left-out ones lead from.
    """
    if phase == "W":
        return [Lag(stage, "B", 0)]
    found = _reached(problem, kept, (stage, phase), {})
    return [Lag(*source, delay) for source, delay in found.items()]


_Source: TypeAlias = tuple[int | None, Phase]


def _reached(
    problem: Problem,
    kept: Collection[int],
    node: tuple[int, Phase],
    known: dict[tuple[int, Phase], dict[_Source, int]],
) -> dict[_Source, int]:
    """Return where the ways to the start of an op begin, at kept ones or at none, and how long."""
    waiting = [node]
    while waiting:  # no recursion: there may be thousands of stages in a row
        stage, phase = waiting[-1]
        sources = sources_of(problem, Op(stage, phase, 0))
        missing = [one for one, _ in sources if one[0] not in kept and one not in known]
        if missing:
            waiting += missing
            continue
        found: dict[_Source, int] = {} if sources else {(None, "F"): 0}
        for source, delay in sources:
            ways: dict[_Source, int] = {source: 0}
            if source[0] not in kept:
                data = problem.stages[source[0]]
                own = data.F if source[1] == "F" else data.shortest_backward
                ways = {begin: way + own for begin, way in known[source].items()}
            for begin, way in ways.items():
                found[begin] = max(found.get(begin, 0), way + delay)
        known[stage, phase] = found
        waiting.pop()
    return known[node]


def tail_after(problem: Problem, kept: Collection[int], stage: int, only: int | None = None) -> int:
    """Least time from the end of a kept stage's last backward to the end of what follows it.

    That is the work of the stages before it on its route, down to the next kept ones; with
    ``only``, to the end of what follows on that device: a span does not wait for weight gradients
    elsewhere.
    """
    ways, longest = {stage: 0}, 0
    route = problem.route(stage)
    for here in reversed(route.stages[: problem.place_of[stage] + 1]):
        if here not in ways:
            continue
        for before in problem.before[here]:
            data = problem.stages[before]
            if before in kept or not data.has_backward:
                continue
            way = ways[here] + link_delay(problem, before, "B", after=here)
            if only is None or data.device == only:
                longest = max(longest, way + data.least_backward_work)
            ways[before] = max(ways.get(before, 0), way + data.shortest_backward)
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


def one_by_one(problem: Problem) -> int:
    """Return the time of all ops and delays of one microbatch."""
    one = sum(stage.F + max(stage.B + stage.W, stage.BW) for stage in problem.stages)
    return one + sum(link.F + link.B for link in problem.links.values())
