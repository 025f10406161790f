"""Memory of a device that holds one stage, for backwards that free memory: the staircase.

With the microbatch order fixed, memory before forward k depends on two counts: b backwards and j
weight gradients have ended. With a = held_after_F and w = held_after_B <= a, forward k fits iff

    a (k + 1 - b) + w (b - j) <= room.

The pairs (j, b) that fit form a staircase: for each j a least b, falling as j grows. Forward k
waits for the two ops of one chosen stair; whatever the choice, it waits for the lowest of each.

That forward k has no backward before it holds unless all its way takes no time; memory counts at
instants, and such a forward may share one with its own backward. Order literals know that case.
"""

from __future__ import annotations

from ortools.sat.python.cp_model import IntVar

from pipesat.bounds.feasibility import passes_in_an_instant
from pipesat.core.problem import Problem
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.variables import Variables, splits


def staircase_applies(problem: Problem, device: int) -> bool:
    """One stage whose way takes time, a fixed backward mode, no memory taken at the start of B.

    And microbatches that are not a list: a stair counts them.
    """
    stages = problem.stages_on[device]
    if not problem.plain or len(stages) != 1 or passes_in_an_instant(problem, stages[0]):
        return False
    stage = problem.stages[stages[0]]
    mode = splits(problem, stages[0], gains(problem))
    return mode is False or (mode is True and stage.held_after_B <= stage.held_after_F)


def stairs(a: int, w: int, room: int, forward: int) -> list[tuple[int, int]]:
    """Minimal pairs (weight gradients ended, backwards ended) before forward number ``forward``.

    Empty if no pair with at most ``forward`` backwards fits; ``[(0, 0)]`` if nothing is needed.
    """
    result: list[tuple[int, int]] = []
    for j in range(forward + 1):
        missing = a * (forward + 1) - room - w * j
        if missing <= j * (a - w):
            b = j
        elif a == w:
            continue
        else:
            b = -(-missing // (a - w))
        if b > forward:
            continue
        if not result or b < result[-1][1]:
            result.append((j, b))
        if b == j:
            break
    return result


def add_memory_by_staircase(v: Variables, device: int) -> None:
    """Make every forward wait for one stair."""
    (number,) = v.problem.stages_on[device]
    stage, room = v.problem.stages[number], v.problem.devices[device].room
    backwards, weights = v.tasks["B"][number], v.tasks["W"][number]
    a, w = stage.held_after_F, stage.held_after_B if weights else 0
    if not a or room is None:
        return
    for k, forward in enumerate(v.tasks["F"][number]):
        steps = stairs(a, w, room, k) if weights else _fused_stairs(a, room, k)
        if not steps:
            v.cp.add_bool_or([])  # no room for this forward at all
            return
        lowest_w, lowest_b = min(j for j, _ in steps), min(b for _, b in steps)
        if lowest_b:
            v.cp.add(forward.start >= backwards[lowest_b - 1].end)
        if weights and lowest_w:
            v.cp.add(forward.start >= weights[lowest_w - 1].end)
        if len(steps) == 1:
            continue
        choices: list[IntVar] = []
        for j, b in steps:
            needed = [backwards[b - 1]] if b > lowest_b else []
            if j > lowest_w:
                needed.append(weights[j - 1])
            choice = v.cp.new_bool_var("")
            for task in needed:
                v.cp.add(forward.start >= task.end).only_enforce_if(choice)
            choices.append(choice)
        v.cp.add_exactly_one(choices)


def _fused_stairs(a: int, room: int, forward: int) -> list[tuple[int, int]]:
    b = max(0, forward + 1 - room // a)
    return [(0, b)] if b <= forward else []
