"""What microbatch order and data flow say of two phases, in every schedule of the model."""

from __future__ import annotations

from typing import NamedTuple

from pipesat.core.ops import Phase
from pipesat.core.problem import Problem
from pipesat.solver.model.turns import known_order


class Name(NamedTuple):
    """A phase of a stage and microbatch."""

    stage: int
    phase: Phase
    microbatch: int


def precedes(problem: Problem, x: Name, y: Name) -> bool:
    """Whether x ends before y starts, if both exist and do not run as a pair."""
    if problem.route_of[x.stage] != problem.route_of[y.stage]:
        return False
    if x[:2] == y[:2]:
        return known_order(problem, x.stage, x.phase, x.microbatch, y.microbatch)
    if x.microbatch == y.microbatch or known_order(
        problem, x.stage, "F", x.microbatch, y.microbatch
    ):
        return follows(problem, x, y)
    return False


def follows(problem: Problem, x: Name, y: Name) -> bool:
    """Whether y comes after x if x's microbatch does not come after y's, and they are not alike."""
    place = problem.place_of
    if x.phase == y.phase:
        if x.phase == "W":
            return False
        return (place[x.stage] < place[y.stage]) == (x.phase == "F")
    if x.phase == "F":
        return True
    return x.phase == "B" and y.phase == "W" and place[x.stage] >= place[y.stage]


def may_coincide(problem: Problem, x: Name, y: Name) -> bool:
    """Whether two phases of a device can run as one, where memory admits it.

    Of one stage and phase only neighbours in microbatch order can: those between would have to run
    at the same time.
    """
    if x[:2] == y[:2]:
        return abs(x.microbatch - y.microbatch) == 1
    if precedes(problem, x, y) or precedes(problem, y, x):
        return False
    return _least_held(problem, x, y) <= _room(problem, x.stage)


def _room(problem: Problem, stage: int) -> float:
    room = problem.devices[problem.stages[stage].device].room
    return float("inf") if room is None else room


def _least_held(problem: Problem, x: Name, y: Name) -> int:
    """Least memory that the device holds while both run: what both say of how far others are."""
    total = 0
    for stage in problem.stages_on[problem.stages[x.stage].device]:
        data = problem.stages[stage]
        started = 0
        ended = freed = problem.microbatches[stage]
        for z in (x, y):
            if problem.route_of[z.stage] != problem.route_of[stage]:
                continue
            later = problem.place_of[stage] > problem.place_of[z.stage]
            if z.phase != "F" or not later:
                started = max(started, z.microbatch + 1)
            if z.phase == "F" or (z.phase == "B" and not later):
                ended = min(ended, z.microbatch)
            if z.phase == "F" or z.stage == stage or (z.phase == "B" and not later):
                freed = min(freed, z.microbatch)
        ended = min(ended, started)
        total += data.held_after_F * (started - ended)
        if not data.may_fuse:  # else their backwards may have been fused, and all is free
            kept = min(data.held_after_F, data.held_after_B)
            total += kept * max(0, ended - freed)
    return total
