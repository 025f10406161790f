"""1F1B (PipeDream-Flush; Narayanan et al., ICML 2021)."""

from __future__ import annotations

from pipesat.heuristics.chain import full_backward, stages_of_chain
from pipesat.ops import Item, Op
from pipesat.problem import Problem
from pipesat.schedule import Schedule
from pipesat.timing import time_order


def one_f_one_b(problem: Problem) -> Schedule:
    """``min(p - 1 - d, m)`` warm-up forwards on rank d, then F and BW in turn, then the other BWs.

    Holds ``min(p - d, m)`` activations on rank d; bubble ``(p - 1)(F + BW)`` on a uniform chain
    without delays, as GPipe's.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    chain = stages_of_chain(problem)
    rows: list[tuple[Item, ...]] = [() for _ in problem.devices]
    for rank, stage in enumerate(chain):
        m = problem.microbatches[stage]
        warm_up = min(len(chain) - 1 - rank, m)
        row: list[Item] = []
        # warm-up
        row += [Op(stage, "F", microbatch) for microbatch in range(warm_up)]
        # steady state
        for microbatch in range(m - warm_up):
            row.append(Op(stage, "F", warm_up + microbatch))
            row += full_backward(problem, stage, microbatch)
        # cool-down
        for microbatch in range(m - warm_up, m):
            row += full_backward(problem, stage, microbatch)
        rows[problem.stages[stage].device] = tuple(row)
    return time_order(problem, tuple(rows), source="1f1b")
