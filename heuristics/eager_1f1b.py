"""Eager 1F1B (Zhuang et al., "On Optimizing the Communication of Model Parallelism", 2023)."""

from __future__ import annotations

from pipesat.heuristics.parts.alternate import alternate, whole
from pipesat.heuristics.parts.rows import schedule_by_rank
from pipesat.heuristics.placement import chain_of
from pipesat.heuristics.registry import published
from pipesat.ops import Item
from pipesat.problem import Problem
from pipesat.schedule import Schedule


@published(
    "eager-1f1b",
    placement="one stage per device",
    source="Zhuang et al., MLSys 2023",
    promises=("eager_1f1b_peak",),
)
def eager_1f1b(problem: Problem) -> Schedule:
    """1F1B with ``min(2 (p - 1 - d), m)`` warm-up forwards on rank d: delays hide behind them.

    Holds ``min(2 (p - d) - 1, m)`` activations on rank d. On a uniform chain with a delay c of at
    most half a microbatch's ``F + BW``, only fill and drain wait for transfers: makespan
    ``m (F + BW) + (p - 1)(F + BW + 2 c)``.

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
        return alternate(passes, whole(problem, passes), min(2 * (len(ranks) - 1 - rank), m))

    return schedule_by_rank(problem, ranks, row, "eager-1f1b")
