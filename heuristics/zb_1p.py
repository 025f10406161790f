"""ZB-1P in closed form, as schedule visualisers draw it."""

from __future__ import annotations

from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.rows import schedule_by_rank, split_backward
from pipesat.placement.recognise import chain_of


@published(
    "zb-1p",
    placement="chain",
    splits=True,
    source="PP-Schedule-Visualization, 2025; after Qi et al., ICLR 2024",
)
def zb_1p(problem: Problem) -> Schedule:
    """1F1B with B and W apart, where a W waits until p microbatches are ahead of it.

    In the steady state a W follows F and B if ``forwards done - Ws done >= p``; in the cool-down
    every B is followed by the oldest W; the other Ws end the row. From ``m >= p - 1`` on this is
    ZB-H1, op for op; with fewer microbatches its Ws come earlier. A stage that may not split runs
    BW for B.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    ranks = chain_of(problem)
    p = len(ranks)

    def row(rank: int) -> list[Item]:
        (stage,) = ranks.stages[rank]
        m = problem.microbatches[stage]
        warm_up = min(p - 1 - rank, m)
        weights = 0
        # warm-up
        items: list[Item] = [Op(stage, "F", microbatch) for microbatch in range(warm_up)]
        for microbatch in range(m):
            forwards = warm_up + microbatch + 1
            # steady state, and cool-down from the microbatch on that finds no forward left
            if steady := forwards <= m:
                items.append(Op(stage, "F", forwards - 1))
            items += split_backward(problem, stage, microbatch)[0]
            if not steady or forwards - weights >= p:
                items += split_backward(problem, stage, weights)[1]
                weights += 1
        for microbatch in range(weights, m):
            items += split_backward(problem, stage, microbatch)[1]
        return items

    return schedule_by_rank(problem, ranks, row, "zb-1p")
