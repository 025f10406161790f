"""Memory times time: how long a device's room must be there for all that is held in it."""

from __future__ import annotations

from pipesat.bounds.feasibility import certain_holdings
from pipesat.core.problem import Problem
from pipesat.core.rules import round_trip


def area_over_room(problem: Problem, device: int) -> int:
    """Sum over microbatches of memory times least residence, over the room there is."""
    room = problem.devices[device].room
    if not room:
        return 0
    held = certain_holdings(problem)
    total = 0
    for s in problem.stages_on[device]:
        stage = problem.stages[s]
        a, w = held[s].activation, stage.held_after_B
        stay = stage.F + round_trip(problem, s)
        ways = []
        if stage.may_split:
            ways.append(a * stay + max(a, w) * stage.B + w * stage.W)
        if stage.may_fuse:
            ways.append(a * (stay + stage.BW))
        total += problem.microbatches[s] * min(ways)
    return -(-total // room)
