"""A problem and its schedules with fewer microbatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from pipesat.core.ops import Item, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule


def with_microbatches(problem: Problem, counts: Sequence[int]) -> Problem:
    """Return the problem with other numbers of microbatches, one per route."""
    routes = zip(problem.routes, counts, strict=True)
    return replace(problem, routes=tuple(replace(r, microbatches=count) for r, count in routes))


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
