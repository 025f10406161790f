"""1F1B (PipeDream-Flush; Narayanan et al., ICML 2021)."""

from __future__ import annotations

from pipesat.heuristics.parts.rows import full_backward, schedule_by_rank
from pipesat.heuristics.placement import chain_of
from pipesat.heuristics.registry import published
from pipesat.ops import Item, Op
from pipesat.problem import Problem
from pipesat.schedule import Schedule


@published(
    "1f1b",
    placement="one stage per device",
    source="Narayanan et al., ICML 2021",
    promises=("one_f_one_b_bubble", "one_f_one_b_peak"),
)
def one_f_one_b(problem: Problem) -> Schedule:
    """``min(p - 1 - d, m)`` warm-up forwards on rank d, then F and BW in turn, then the other BWs.

    Holds ``min(p - d, m)`` activations on rank d; bubble ``(p - 1)(F + BW)`` on a uniform chain
    without delays, as GPipe's.

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
        # steady state
        for microbatch in range(m - warm_up):
            items.append(Op(stage, "F", warm_up + microbatch))
            items += full_backward(problem, stage, microbatch)
        # cool-down
        for microbatch in range(m - warm_up, m):
            items += full_backward(problem, stage, microbatch)
        return items

    return schedule_by_rank(problem, ranks, row, "1f1b")
