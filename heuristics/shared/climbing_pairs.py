"""Limits in flight found by climbing: each stage its own, for list scheduling with pairs.

How many microbatches may be under way on each stage decides which ops meet as pairs, and no formula
for it suits every placement and capacity. From the limits of the best policy on, some stages'
limits change by one, or the wait for partners does; what is no worse is kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pipesat.core.problem import Problem
from pipesat.core.schedule import Order
from pipesat.heuristics.list_scheduling import Policy
from pipesat.heuristics.shared.pairing_simulation import PairingSimulation

_FEWEST_OPS = 300  # of a problem; smaller ones are searched as a whole
_MOST_OPS = 150_000  # simulated in all: a few seconds
_MOST_TRIES = 150
_CHANGES = (1, 1, 2, 3)  # stages whose limits change at a time
_WAITS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
_OTHER_WAIT = 0.2  # probability


class _Place(NamedTuple):
    """What a try was made with, and when it ended."""

    limits: list[int]
    wait: float
    end: int


def climbed(
    problem: Problem, policy: Policy, wait: float, give_up: Callable[[], bool]
) -> Iterator[Order]:
    """Yield better and better orders on a walk from a policy's; none of small problems."""
    if problem.op_count < _FEWEST_OPS:
        return
    chance = random.Random(0)  # noqa: S311 (chance, not secrecy)
    start = PairingSimulation(problem, policy, wait)
    numbers = zip(start.limit, problem.microbatches, strict=True)
    limits = [most if limit is None else min(limit, most) for limit, most in numbers]
    if start.order(give_up) is None:
        return
    here = _Place(limits, wait, max(start.busy_until))
    for _ in range(min(_MOST_TRIES, _MOST_OPS // problem.op_count)):
        limits, wait = list(here.limits), here.wait
        for _ in range(chance.choice(_CHANGES)):
            stage = chance.randrange(len(limits))
            limits[stage] = max(1, limits[stage] + chance.choice((-1, 1)))
        if chance.random() < _OTHER_WAIT:
            wait = chance.choice(_WAITS)
        simulation = PairingSimulation(problem, policy, wait)
        simulation.limit = list(limits)
        found = simulation.order(give_up)
        if found is None:
            return
        end = max(simulation.busy_until)
        if end < here.end:
            yield found
        if end <= here.end:
            here = _Place(limits, wait, end)
