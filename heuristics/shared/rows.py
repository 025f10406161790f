"""How hand-written schedules are written down: a row of items per rank, then timed."""

from __future__ import annotations

from collections.abc import Callable

from pipesat.core.ops import Item, Op, Pair
from pipesat.core.problem import Problem
from pipesat.core.rules import in_order, pair_time
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.placement.recognise import Ranks


def schedule_by_rank(
    problem: Problem, ranks: Ranks, row: Callable[[int], list[Item]], source: str
) -> Schedule:
    """Time the order whose rank d runs ``row(d)``."""
    rows: list[tuple[Item, ...]] = [() for _ in problem.devices]
    for rank, device in enumerate(ranks.device):
        rows[device] = tuple(row(rank))
    return time_order(problem, tuple(rows), source=source)


def full_backward(problem: Problem, stage: int, microbatch: int) -> list[Item]:
    """BW, or B and W in a row where the stage may not fuse them."""
    if problem.stages[stage].may_fuse:
        return [Op(stage, "BW", microbatch)]
    return [Op(stage, "B", microbatch), Op(stage, "W", microbatch)]


def split_backward(problem: Problem, stage: int, microbatch: int) -> tuple[list[Item], list[Item]]:
    """(ops where the schedule has B, ops where it has W); BW and nothing if it may not split."""
    if problem.stages[stage].may_split:
        return [Op(stage, "B", microbatch)], [Op(stage, "W", microbatch)]
    return [Op(stage, "BW", microbatch)], []


def overlapped(problem: Problem, forward: Op, stage: int, microbatch: int) -> list[Item]:
    """A forward and the whole backward of (stage, microbatch) as a pair.

    Where the problem does not allow this pair, or the stage may not fuse its backward: the two, one
    after the other.
    """
    backward = Op(stage, "BW", microbatch)
    if problem.stages[stage].may_fuse and pair_time(problem, forward, backward) is not None:
        return [in_order(problem, Pair(forward, backward))]
    return [forward, *full_backward(problem, stage, microbatch)]
