"""How large the model of a problem would be, before it is built."""

from __future__ import annotations

from collections.abc import Collection

from pipesat.core.problem import Problem, Stage
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.staircase import staircase_applies

CONSTRAINTS_PER_SECOND = 8_000  # that can be built and presolved in a part of each second


def model_size(problem: Problem, devices: Collection[int] | None = None) -> int:
    """Estimate the number of constraints, within a factor of about two.

    ``devices`` are those of a relaxation; by default all.
    """
    chosen = range(len(problem.devices)) if devices is None else devices
    return sum(_size_of(problem, device) for device in chosen)


def _size_of(problem: Problem, device: int) -> int:
    stages = problem.stages_on[device]
    microbatches = {s: problem.microbatches[s] for s in stages}
    size = 9 * sum(microbatches.values()) + _size_of_pairs(problem, device)
    room = problem.devices[device].room
    if room is None or not stages:
        return size
    if staircase_applies(problem, device):
        stage, m = problem.stages[stages[0]], microbatches[stages[0]]
        steps = room // stage.held_after_F if stage.held_after_F else 0
        size += 2 * m * min(steps, m)
        return size + 4 * m * m * _takes_more(stage)
    forwards = sum(microbatches.values())
    backwards = sum(microbatches[s] for s in stages if _takes_more(problem.stages[s]))
    events = forwards + backwards
    if not problem.plain:  # order and data flow decide little between two classes
        return size + 8 * max(events, forwards) * forwards
    return size + 4 * events * forwards  # about half of all pairs need a literal, 4 constraints


def _takes_more(stage: Stage) -> bool:
    """Whether a backward may take memory at its start."""
    return max(stage.held_after_B, stage.held_in_backward) > stage.held_after_F


def _size_of_pairs(problem: Problem, device: int) -> int:
    """Candidates, as many per microbatch and two kinds as memory admits microbatches at a time."""
    room, size = problem.devices[device].room, 0
    for (one, _), (other, _) in gains(problem):
        if problem.stages[one].device == device:
            least = min(problem.stages[s].held_after_F for s in (one, other))
            depth = room // least if room is not None and least else problem.microbatches[other]
            size += problem.microbatches[one] * min(depth, problem.microbatches[other])
    return 4 * size  # of 8 constraints each; every two kinds were there in both orders
