"""ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2)."""

from __future__ import annotations

from pipesat.heuristics.parts.rows import schedule_by_rank, split_backward
from pipesat.heuristics.placement import chain_of
from pipesat.heuristics.registry import published
from pipesat.ops import Item, Op
from pipesat.problem import Problem
from pipesat.schedule import Schedule


@published(
    "zb-h1",
    placement="one stage per device",
    splits=True,
    source="Qi et al., ICLR 2024",
    promises=("zb_h1_span", "zb_h1_bubble", "zb_h1_peak", "zb_h1_peak_memory"),
)
def zb_h1(problem: Problem) -> Schedule:
    """1F1B's shape with B and W apart: on rank d, W of microbatch j follows B of microbatch j + d.

    Every rank so holds 1F1B's ``p - d`` activations and up to d parts that wait for their W, and
    the last d W fill the cool-down. On a uniform chain with delay c,
    ``span = m (F + B + W) + (p - 1)(F + B - W + 4c)``. A stage that may not split runs BW for B.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    ranks = chain_of(problem)

    def row(rank: int) -> list[Item]:
        (stage,) = ranks.stages[rank]
        m = problem.microbatches[stage]
        warm_up = min(len(problem.devices) - 1 - rank, m)
        # warm-up
        items: list[Item] = [Op(stage, "F", microbatch) for microbatch in range(warm_up)]
        # steady state, then cool-down from the microbatch on that finds no forward left
        for microbatch in range(m):
            if warm_up + microbatch < m:
                items.append(Op(stage, "F", warm_up + microbatch))
            items += split_backward(problem, stage, microbatch)[0]
            if microbatch >= rank:
                items += split_backward(problem, stage, microbatch - rank)[1]
        for microbatch in range(max(m - rank, 0), m):
            items += split_backward(problem, stage, microbatch)[1]
        return items

    return schedule_by_rank(problem, ranks, row, "zb-h1")
