"""Least times of a microbatch's way along its route, to a stage and home from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations_with_replacement
from operator import add

from pipesat.core.problem import Problem
from pipesat.core.rules import link_delay


@dataclass(frozen=True)
class Line:
    """A route's stages by place, with the times of their ops alone.

    ``out[x]``: from the start of the first F to that at x; behind the last, to its end.
    ``home[x]``: from the end of the backward at x to that of the first. The shortest way that a
    backward may run.
    """

    stages: Sequence[int]
    forward: Sequence[int]
    backward: Sequence[int]
    out: Sequence[int]
    home: Sequence[int]


def line_of(problem: Problem, route: int) -> Line:
    """Return the line of a route's stages, worked out once for a problem."""
    known: Line | None = problem.answers.get(("line", route))
    if known is None:
        known = problem.answers["line", route] = _line_of(problem, problem.routes[route].stages)
    return known


def _line_of(problem: Problem, stages: Sequence[int]) -> Line:
    forward = [problem.stages[s].F for s in stages]
    backward = [problem.stages[s].shortest_backward for s in stages]
    there = [link_delay(problem, s, "F") for s in stages]
    back = [link_delay(problem, s, "B") for s in stages]
    return Line(stages, forward, backward, _sums(forward, there), _sums(backward, back))


def _sums(times: Sequence[int], delays: Sequence[int]) -> list[int]:
    return list(accumulate(map(add, times, delays), initial=0))


def places_of(problem: Problem, stages: Sequence[int], entry: int = 0) -> dict[int, list[int]]:
    """Return the places of each device's stages on a route, from ``entry`` on."""
    devices: dict[int, list[int]] = {}
    for place in range(entry, len(stages)):
        devices.setdefault(problem.stages[stages[place]].device, []).append(place)
    return devices


def passages(
    problem: Problem, stages: Sequence[int], entry: int = 0
) -> Iterator[tuple[int, list[int]]]:
    """Yield devices with some places of their stages, one after the other, from ``entry`` on."""
    for device, places in places_of(problem, stages, entry).items():
        for low, top in combinations_with_replacement(range(len(places)), 2):
            yield device, places[low : top + 1]


def time_until_forward(problem: Problem, stage: int) -> int:
    """Earliest start of a stage's first F: the way from the route's first stage."""
    return line_of(problem, problem.route_of[stage]).out[problem.place_of[stage]]


def time_from_backward(problem: Problem, stage: int, until: int | None) -> int:
    """Least time from the start of a stage's backward to the end of all work of ``until``.

    ``until`` is an earlier stage of the route (or the same); ``None`` stands for the first.
    """
    line, place = line_of(problem, problem.route_of[stage]), problem.place_of[stage]
    end = 0 if until is None else problem.place_of[until]
    way = line.backward[place] + line.home[place] - line.backward[end] - line.home[end]
    return way + problem.stages[line.stages[end]].least_backward_work
