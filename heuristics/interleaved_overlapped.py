"""Interleaved 1F1B with every steady-state forward and backward overlapped (Megatron-Core)."""

from __future__ import annotations

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.alternate import alternate_in_pairs
from pipesat.heuristics.shared.loops import (
    DepthFirst,
    chunked_loop_of,
    full_groups,
    schedule_in_groups,
)

NAME = "interleaved-overlapped"


@published(NAME, placement="loop", pairs=True, source="Megatron-Core, 2025")
def interleaved_overlapped(problem: Problem) -> Schedule:
    """Interleaved 1F1B with one more warm-up forward; then each F and the BW after it are a pair.

    Without that forward the last rank would pair a microbatch's F and BW on the last stage. With p
    dividing m, the makespan is ``p v (F + BW) + (m v - (v - 1) p - 1) P`` on a uniform loop without
    delays (F, BW, P: times of a chunk's ops and of a pair). Where the problem or the stage knows no
    pairs, their members run one after the other.

    Raises
    ------
    NotApplicable
        Unless the stages of one route go round the devices twice or more.
    """
    ranks = chunked_loop_of(problem)
    order = DepthFirst(ranks, full_groups(problem.routes[0].microbatches, len(ranks)))

    def row(rank: int) -> list[Item]:
        warm_up = order.warm_up(rank, per_hop=2, extra=1)
        return alternate_in_pairs(problem, order.forwards(rank), order.backwards(rank), warm_up)

    return schedule_in_groups(problem, order, row, NAME)
