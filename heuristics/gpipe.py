"""GPipe (Huang et al., NeurIPS 2019)."""

from __future__ import annotations

from pipesat.heuristics.chain import full_backward, stages_of_chain
from pipesat.ops import Item, Op
from pipesat.problem import Problem
from pipesat.schedule import Schedule
from pipesat.timing import time_order


def gpipe(problem: Problem) -> Schedule:
    """All forwards, then all backwards, both in microbatch order (as torch's ScheduleGPipe).

    Holds m activations per device; bubble ``(p - 1)(F + BW)`` on a uniform chain without delays.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    rows: list[tuple[Item, ...]] = [() for _ in problem.devices]
    for stage in stages_of_chain(problem):
        row: list[Item] = []
        microbatches = range(problem.microbatches[stage])
        # warm-up
        row += [Op(stage, "F", microbatch) for microbatch in microbatches]
        # cool-down
        for microbatch in microbatches:
            row += full_backward(problem, stage, microbatch)
        rows[problem.stages[stage].device] = tuple(row)
    return time_order(problem, tuple(rows), source="gpipe")
