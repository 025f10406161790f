"""Durations and delays as the model sees them: divided by their greatest common factor."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipesat.ops import Kind
from pipesat.problem import Problem
from pipesat.rules import duration, link_delay
from pipesat.schedule import Objective

KINDS: tuple[Kind, ...] = ("F", "B", "W", "BW")


@dataclass(frozen=True)
class Times:
    """All times of a problem in multiples of ``unit`` time units; exact, nothing is rounded."""

    unit: int
    duration: dict[Kind, tuple[int, ...]]
    forward_delay: tuple[int, ...]
    backward_delay: tuple[int, ...]


def model_times(problem: Problem, objective: Objective = "makespan") -> Times:
    """Divide every duration and delay by what they all have in common.

    For the makespan alone: the least span may be no multiple of it (docs/model.md).
    """
    stages = range(len(problem.stages))
    durations = {k: [duration(problem.stages[s], k) for s in stages] for k in KINDS}
    forward = [link_delay(problem, s, "F") for s in stages]
    backward = [link_delay(problem, s, "B") for s in stages]
    every = [*forward, *backward, *(t for times in durations.values() for t in times)]
    unit = math.gcd(*every) or 1 if objective == "makespan" else 1
    return Times(
        unit,
        {kind: tuple(t // unit for t in times) for kind, times in durations.items()},
        tuple(t // unit for t in forward),
        tuple(t // unit for t in backward),
    )
