"""1F1B with every steady-state forward and backward overlapped."""

from __future__ import annotations

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.alternate import Pass, alternate_in_pairs, chain_schedule


@published(
    "1f1b-overlapped",
    placement="chain",
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

    def row(passes: list[Pass], before: int, after: int) -> list[Item]:
        del before
        return alternate_in_pairs(problem, passes, passes, min(2 * after + 1, len(passes)))

    return chain_schedule(problem, "1f1b-overlapped", row)
