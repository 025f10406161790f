"""What the devices of a problem must do, for :mod:`pipesat.bounds.device_terms`; ways of routes.

Where microbatches differ, each class is a problem by itself, with the least of each amount over its
memory modes. The load, and whatever memory admits, is summed over the microbatches as they are. The
microbatch that comes first on a device, or last, may be of any class that the order admits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations_with_replacement
from operator import add

from pipesat.bounds.device_terms import Crossing, DeviceTerms, Work
from pipesat.bounds.feasibility import certain_activations
from pipesat.core.grouping import grouped
from pipesat.problem.plain_problems import least_problem, of_each_class
from pipesat.problem.problem import Problem, once
from pipesat.problem.rules import link_delay, round_trip


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


@once
def line_of(problem: Problem, route: int) -> Line:
    """Return the line of a route's stages, worked out once for a problem."""
    stages = problem.routes[route].stages
    forward = [problem.stages[s].F for s in stages]
    backward = [problem.stages[s].shortest_backward for s in stages]
    there = [link_delay(problem, s, "F") for s in stages]
    back = [link_delay(problem, s, "B") for s in stages]
    return Line(stages, forward, backward, _sums(forward, there), _sums(backward, back))


def _sums(times: Sequence[int], delays: Sequence[int]) -> list[int]:
    return list(accumulate(map(add, times, delays), initial=0))


def places_of(problem: Problem, stages: Sequence[int], entry: int = 0) -> dict[int, list[int]]:
    """Return the places of each device's stages on a route, from ``entry`` on."""
    places = range(entry, len(stages))
    return grouped((problem.stages[stages[place]].device, place) for place in places)


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


def classes_of(problem: Problem) -> tuple[Problem, list[Problem]]:
    """Return the problem without what makes no difference, and one of each class."""
    if problem.alike:
        problem = least_problem(problem)
    return problem, of_each_class(problem)


def groups_on(problem: Problem, device: int) -> list[tuple[int, int, int]]:
    """(stage, class, how many microbatches) of a device."""
    found = []
    for stage in problem.stages_on[device]:
        found += [(stage, *one) for one in problem.route(stage).counts.items()]
    return found


def terms_of(problem: Problem, alone: Sequence[Problem], device: int) -> DeviceTerms:
    """Return what a device of a problem must do; ``alone`` has the problem of each class."""
    groups = groups_on(problem, device)
    work = [work_of(alone[of_class], stage, number) for stage, of_class, number in groups]
    ways = []
    for route, chunks in problem.chunks_on[device].items():
        classes = problem.routes[route].classes or (0,)
        ends = [{classes[at]} if problem.order == "given" else {*classes} for at in (0, -1)]
        for of_class in sorted(set(classes)):
            one = alone[of_class]
            own = [
                n for n, (stage, of, _) in enumerate(groups) if of == of_class and stage in chunks
            ]
            held = sum(work[n].held for n in own if _is_held(one, chunks[-1], groups[n][0]))
            first, last = (of_class in admitted for admitted in ends)
            way = way_of(one, one, chunks)
            ways.append(way._replace(own=own, held=held, first=first, last=last))
    return DeviceTerms(
        work,
        ways,
        problem.devices[device].slack,
        None if problem.overlap is None else problem.overlap.factor,
        problem.order != "free" and problem.one_stage_per_device,
    )


def work_of(problem: Problem, stage: int, number: int) -> Work:
    """Return what so many microbatches are on one stage; all are equal in the problem."""
    s, held = problem.stages[stage], certain_activations(problem)[stage]
    amounts = (s.F, s.B, s.W, s.BW, held, s.held_after_B, s.may_split, s.may_fuse)
    return Work(*amounts, round_trip(problem, stage), number)


def area_over_slack(problem: Problem, device: int) -> int:
    """Return memory times time of all that a device holds, over its slack; all are equal."""
    work = [work_of(problem, s, problem.microbatches[s]) for s in problem.stages_on[device]]
    return int(DeviceTerms(work, (), problem.devices[device].slack).area)


def way_of(first: Problem, last: Problem, chunks: Sequence[int]) -> Crossing:
    """Return how a microbatch passes a device's stages of a route.

    Until its first backward in the times of one problem, from its last F on in those of another.
    """
    low, top = chunks[0], chunks[-1]
    begin, backward = time_until_forward(first, low), last.stages[low].shortest_backward
    turn = time_until_forward(first, top) - begin + first.stages[top].F + round_trip(first, top)
    home = time_from_backward(last, low, None) - backward
    return Crossing(
        begin,
        turn,
        round_trip(last, top),
        time_from_backward(last, top, low),
        time_from_backward(last, top, None),
        0 if last.previous[low] is None else home,
    )


def _is_held(problem: Problem, top: int, stage: int) -> bool:
    """Whether a microbatch surely holds a stage of a device around the end of its F on the last.

    While that F runs, it does. If it takes no time, the backwards must take some.
    """
    data = problem.stages[stage]
    way = round_trip(problem, top) + time_from_backward(problem, top, stage)
    until_freed = way - data.least_backward_work + data.shortest_backward
    return problem.stages[top].F > 0 or until_freed > 0
