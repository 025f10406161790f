"""Memory times time: how long a device's room must be there for all that is held in it."""

from __future__ import annotations

from collections.abc import Mapping

from pipesat.bounds.feasibility import certain_activations
from pipesat.core.problem import Problem
from pipesat.core.rules import round_trip


def area_over_room(problem: Problem, device: int) -> int:
    """Sum over microbatches of memory times least residence, over the room there is."""
    counts = {s: problem.microbatches[s] for s in problem.stages_on[device]}
    room = problem.devices[device].room
    return -(-least_area(problem, counts) // room) if room else 0


def least_area(problem: Problem, counts: Mapping[int, int]) -> int:
    """Memory times time that so many microbatches of some stages take at least, of equal ones."""
    held = certain_activations(problem)
    total = 0
    for s, count in counts.items():
        stage = problem.stages[s]
        a, w = held[s], stage.held_after_B
        stay = stage.F + round_trip(problem, s)
        ways = []
        if stage.may_split:
            ways.append(a * stay + max(a, w) * stage.B + w * stage.W)
        if stage.may_fuse:
            ways.append(a * (stay + stage.BW))
        total += count * min(ways)
    return total
