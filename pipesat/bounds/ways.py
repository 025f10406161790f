"""Least times of a microbatch's way along its route, to a stage and home from it."""

from __future__ import annotations

from pipesat.core.problem import Problem
from pipesat.core.rules import link_delay


def time_until_forward(problem: Problem, stage: int) -> int:
    """Earliest start of a stage's first F: the way from the route's first stage."""
    time, here = 0, stage
    while (before := problem.previous[here]) is not None:
        time += problem.stages[before].F + link_delay(problem, before, "F")
        here = before
    return time


def time_from_backward(problem: Problem, stage: int, until: int | None) -> int:
    """Least time from the start of a stage's backward to the end of all work of ``until``.

    ``until`` is an earlier stage of the route (or the same); ``None`` stands for the first.
    """
    time, here = 0, stage
    while here != until and (before := problem.previous[here]) is not None:
        time += problem.stages[here].shortest_backward + link_delay(problem, before, "B")
        here = before
    return time + problem.stages[here].least_backward_work
