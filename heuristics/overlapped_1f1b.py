"""1F1B with every steady-state forward and backward overlapped."""

from __future__ import annotations

from pipesat.heuristics.parts.alternate import alternate_in_pairs
from pipesat.heuristics.parts.rows import schedule_by_rank
from pipesat.heuristics.placement import chain_of
from pipesat.heuristics.registry import published
from pipesat.ops import Item
from pipesat.problem import Problem
from pipesat.schedule import Schedule


@published(
    "1f1b-overlapped",
    placement="one stage per device",
    pairs=True,
    source="PP-Schedule-Visualization, 2025",
)
def overlapped_1f1b(problem: Problem) -> Schedule:
    """``min(2 (p - 1 - d) + 1, m)`` warm-up forwards on rank d, then pairs of F and BW.

    Both members of a pair need their inputs at its start and hand on their outputs at its end, so
    the way to the next rank and back takes two pairs: hence the warm-up of eager 1F1B, and one more
    because the last rank cannot pair a microbatch with itself. Holds ``min(2 (p - d), m)``
    activations on rank d; makespan ``p (F + BW) + (m - 1) P`` on a uniform chain without delays, P
    being a pair's time. Where the problem or the stage knows no pairs, their members run one after
    the other.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    ranks = chain_of(problem)

    def row(rank: int) -> list[Item]:
        (stage,) = ranks.stages[rank]
        m = problem.microbatches[stage]
        passes = [(stage, microbatch) for microbatch in range(m)]
        warm_up = min(2 * (len(ranks) - 1 - rank) + 1, m)
        return alternate_in_pairs(problem, passes, passes, warm_up)

    return schedule_by_rank(problem, ranks, row, "1f1b-overlapped")
