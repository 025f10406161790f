"""The shape that 1F1B gave to most schedules: warm-up, one forward and one backward in turn, rest.

A *pass* is a (stage, microbatch). Whatever a rank's forwards and backwards are, one stage's or
several chunks' in groups, a row is put together here from its two sequences of passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.shared.rows import (
    full_backward,
    overlapped,
    schedule_by_rank,
    split_backward,
)
from pipesat.placement.recognise import chain_of

Pass: TypeAlias = tuple[int, int]
"""(stage, microbatch)."""


def alternate(
    forwards: Sequence[Pass], backwards: Sequence[Sequence[Item]], warm_up: int
) -> list[Item]:
    """``warm_up`` forwards, then a forward and a backward in turn, then the other backwards.

    ``backwards[k]`` are the items that stand where the k-th backward does.
    """
    ops = [Op(stage, "F", microbatch) for stage, microbatch in forwards]
    items: list[Item] = [*ops[:warm_up]]
    for number, backward in enumerate(backwards):
        items += ops[warm_up + number : warm_up + number + 1]
        items += backward
    return items


def alternate_in_pairs(
    problem: Problem, forwards: Sequence[Pass], backwards: Sequence[Pass], warm_up: int
) -> list[Item]:
    """As :func:`alternate`, each forward of the steady state overlapped with its backward."""
    ops = [Op(stage, "F", microbatch) for stage, microbatch in forwards]
    steady = len(ops) - warm_up
    items: list[Item] = [*ops[:warm_up]]
    for forward, (stage, microbatch) in zip(ops[warm_up:], backwards, strict=False):
        items += overlapped(problem, forward, stage, microbatch)
    for stage, microbatch in backwards[steady:]:
        items += full_backward(problem, stage, microbatch)
    return items


def whole(problem: Problem, backwards: Sequence[Pass]) -> list[list[Item]]:
    """Every backward as BW, or as B and W in a row where its stage may not fuse them."""
    return [full_backward(problem, stage, microbatch) for stage, microbatch in backwards]


def with_late_weights(problem: Problem, backwards: Sequence[Pass], delay: int) -> list[list[Item]]:
    """B and W apart: the k-th W follows the (k + ``delay``)-th B, the last ones follow the last B.

    Where a stage may not split, BW stands for B.
    """
    split = [split_backward(problem, stage, microbatch) for stage, microbatch in backwards]
    rows = [list(before) for before, _ in split]
    for number, (_, weights) in enumerate(split):
        rows[min(number + delay, len(rows) - 1)] += weights
    return rows


def chain_schedule(
    problem: Problem, source: str, row: Callable[[list[Pass], int, int], list[Item]]
) -> Schedule:
    """Time the order whose rank runs ``row(passes, before, after)`` on a chain.

    ``passes`` are the rank's, in microbatch order; so many ranks lie before and after it.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    ranks = chain_of(problem)

    def row_of(rank: int) -> list[Item]:
        (stage,) = ranks.stages[rank]
        passes = [(stage, microbatch) for microbatch in range(problem.microbatches[stage])]
        return row(passes, rank, len(ranks) - 1 - rank)

    return schedule_by_rank(problem, ranks, row_of, source)
