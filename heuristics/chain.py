"""What the one-stage-per-device schedules share: the chain, and how a backward is written."""

from __future__ import annotations

from collections.abc import Callable

from pipesat.errors import NotApplicable
from pipesat.ops import Item, Op
from pipesat.problem import Problem
from pipesat.schedule import Schedule
from pipesat.timing import time_order


def stages_of_chain(problem: Problem) -> tuple[int, ...]:
    """Return the stages in route order, one per device; the d-th is the schedule's rank d.

    Raises
    ------
    NotApplicable
        If there are several routes, or a device holds several stages or none.
    """
    if len(problem.routes) > 1:
        raise NotApplicable("needs a single route")
    if not problem.one_stage_per_device:
        raise NotApplicable("needs exactly one stage per device")
    return problem.routes[0].stages


def schedule_by_rank(
    problem: Problem, row: Callable[[int, int], list[Item]], source: str
) -> Schedule:
    """Time the order whose rank d, holding stage s, runs ``row(d, s)``.

    Raises
    ------
    NotApplicable
        As :func:`stages_of_chain`.
    """
    rows: list[tuple[Item, ...]] = [() for _ in problem.devices]
    for rank, stage in enumerate(stages_of_chain(problem)):
        rows[problem.stages[stage].device] = tuple(row(rank, stage))
    return time_order(problem, tuple(rows), source=source)


def full_backward(problem: Problem, stage: int, microbatch: int) -> list[Op]:
    """BW, or B and W in a row where the stage may not fuse them."""
    if problem.stages[stage].may_fuse:
        return [Op(stage, "BW", microbatch)]
    return [Op(stage, "B", microbatch), Op(stage, "W", microbatch)]


def split_backward(problem: Problem, stage: int, microbatch: int) -> tuple[list[Op], list[Op]]:
    """(ops where the schedule has B, ops where it has W); BW and nothing if it may not split."""
    if problem.stages[stage].may_split:
        return [Op(stage, "B", microbatch)], [Op(stage, "W", microbatch)]
    return [Op(stage, "BW", microbatch)], []
