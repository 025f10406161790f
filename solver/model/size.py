"""How large the model of a problem would be, before it is built."""

from __future__ import annotations

from pipesat.problem import Problem
from pipesat.solver.model.staircase import staircase_applies


def model_size(problem: Problem) -> int:
    """Estimate the number of constraints, within a factor of about two."""
    size = 3 * problem.op_count
    for device, stages in enumerate(problem.stages_on):
        room = problem.devices[device].room
        if room is None:
            continue
        if staircase_applies(problem, device):
            stage = problem.stages[stages[0]]
            steps = room // stage.held_after_F if stage.held_after_F else 0
            m = problem.microbatches[stages[0]]
            size += 2 * m * min(steps, m)
            continue
        forwards = sum(problem.microbatches[s] for s in stages)
        events = forwards + sum(
            problem.microbatches[s]
            for s in stages
            if problem.stages[s].held_after_B > problem.stages[s].held_after_F
        )
        size += 4 * events * forwards  # about half of all pairs need a literal, with 4 constraints
    return size
