"""Interleaved 1F1B with every steady-state forward and backward overlapped (Megatron-Core)."""

from __future__ import annotations

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.alternate import alternate_in_pairs
from pipesat.heuristics.shared.loops import depth_first, schedule_in_groups

NAME = "interleaved-overlapped"


def in_overlapped_groups(
    problem: Problem, group: int | None = None, source: str = NAME
) -> Schedule:
    """Interleaved 1F1B in pairs, with groups of ``group`` microbatches, the last possibly smaller.

    Rank d warms up with ``(v - 1) g + 2 (p - 1 - d) + 1`` forwards (megatron-core,
    ``get_pp_rank_microbatches``). ``None``: groups of p, or slightly more where p does not divide
    the number of microbatches.

    Raises
    ------
    NotApplicable
        If stages do not lie so, or groups so small make ranks wait for each other.
    BadInput
        If ``group`` is less than 1.
    """
    order = depth_first(problem, group)

    def row(rank: int) -> list[Item]:
        warm_up = order.warm_up(rank, per_hop=2, extra=1)
        return alternate_in_pairs(problem, order.forwards(rank), order.backwards(rank), warm_up)

    return schedule_in_groups(problem, order, row, source)


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
    return in_overlapped_groups(problem)
