"""A problem and its schedules with fewer microbatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipesat.core.ops import Item, Op, Pair
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule


def with_microbatches(problem: Problem, counts: Sequence[int]) -> Problem:
    """Return the problem with other numbers of microbatches, one per route."""
    routes = zip(problem.routes, counts, strict=True)
    return replace(problem, routes=tuple(replace(r, microbatches=count) for r, count in routes))


def first_microbatches(schedule: Schedule, few: Problem) -> Order:
    """Return the order of a schedule's first microbatches, as many as ``few`` has.

    All rules hold that held before: nothing waits for what is left out, and less is held.

    Raises
    ------
    ValueError
        If there are overlapped pairs: half of one could be left out.
    """
    return tuple(
        tuple(op for op in map(_op, row) if op.microbatch < few.microbatches[op.stage])
        for row in schedule.order
    )


def _op(item: Item) -> Op:
    if isinstance(item, Pair):
        raise ValueError(f"{item} is an overlapped pair")
    return item
