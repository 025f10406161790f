"""Eager 1F1B (Zhuang et al., "On Optimizing the Communication of Model Parallelism", 2023)."""

from __future__ import annotations

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.alternate import Pass, alternate, chain_schedule, whole


@published(
    "eager-1f1b",
    placement="chain",
    source="Zhuang et al., MLSys 2023",
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

    def row(passes: list[Pass], before: int, after: int) -> list[Item]:
        del before
        return alternate(passes, whole(problem, passes), 2 * after)

    return chain_schedule(problem, "eager-1f1b", row)
