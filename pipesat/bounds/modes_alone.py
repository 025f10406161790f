"""Memory modes in which one microbatch needs least: what decides whether a schedule exists.

A microbatch alone runs F on the chunks s1, s2, ... of a device and then their backwards in reverse,
each chunk resting in between: from F (or O) to the backward (or L) of s_i it holds ``rest_i``,
while its F, copies and backward run ``peak_i``. So a device needs

    max over i of (rest_1 + ... + rest_(i-1) + peak_i)

and, for a given room, the modes with the least rest whose peak fits, chosen from s1 on, leave most
to all that follow: if they do not fit, none do. Where all microbatches of a stage run in one mode,
its peak must fit for every class; modes with less rest have less for every class, because a class
scales all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import NamedTuple, TypeAlias

from pipesat.core.problem import Problem, Route, Stage

Modes: TypeAlias = dict[int, int]
"""Mode of each stage, for one microbatch."""

_MOST_COMBINATIONS = 4096


class _Way(NamedTuple):
    """A mode of a stage: what is held between F and backward, and while either runs, per class."""

    rest: tuple[int, ...]
    peak: tuple[int, ...]
    mode: int


def has_modes(problem: Problem) -> bool:
    """Whether any stage has memory modes."""
    return any(stage.modes for stage in problem.stages)


def classes_of(route: Route) -> range:
    """Numbers of the classes of a route's microbatches; one where they do not differ."""
    return range(max(1, len(route.definitions)))


def least_modes(problem: Problem, route: int) -> list[Modes]:
    """Modes of one microbatch of each class of a route with which every device needs least."""
    kinds = list(classes_of(problem.routes[route]))
    together = [kinds] if problem.mode_choice == "stage" else [[kind] for kind in kinds]
    chosen: list[Modes] = [{} for _ in kinds]
    for per_route in problem.chunks_on:
        for group in together:
            stages = per_route.get(route, ())
            ways = [_ways(problem, stage, group) for stage in stages]
            modes = _modes_within(ways, _least_room(ways)) or ()
            for kind in group:
                chosen[kind].update(zip(stages, modes, strict=True))
    return chosen


def need_of(problem: Problem, stages: Sequence[int]) -> int:
    """Least room of a device for one microbatch on its chunks of one route, whatever its class."""
    if not stages:
        return 0
    kinds = list(classes_of(problem.routes[problem.route_of[stages[0]]]))
    together = [kinds] if problem.mode_choice == "stage" else [[kind] for kind in kinds]
    return max(_least_room([_ways(problem, s, group) for s in stages]) for group in together)


def takes_time(problem: Problem, stages: Sequence[int]) -> bool:
    """Whether F and backward of these stages take time in every mode and class."""
    return all(
        amounts.F and amounts.shortest_backward
        for stage in stages
        for kind in classes_of(problem.routes[problem.route_of[stage]])
        for mode in problem.modes_of(stage)
        for amounts in [problem.resulting(stage, mode, kind)]
    )


def combinations(problem: Problem, route: int) -> Iterator[Modes]:
    """Yield modes of a route's stages, all there are or the first few thousand."""
    stages = problem.routes[route].stages
    choices = product(*(problem.modes_of(stage) for stage in stages))
    for modes in islice(choices, _MOST_COMBINATIONS):
        yield dict(zip(stages, modes, strict=True))


def all_combined(problem: Problem, route: int) -> bool:
    """Whether :func:`combinations` yields all."""
    count = 1
    for stage in problem.routes[route].stages:
        count *= len(problem.modes_of(stage))
    return count <= _MOST_COMBINATIONS


def in_modes(problem: Problem, modes: Mapping[int, int], kind: int) -> Problem:
    """Return the problem of one class's microbatches in these modes, without lists and modes.

    The stages of other routes are in the mode keep, and of their first class.
    """
    stages = []
    for number in range(len(problem.stages)):
        mine = kind if number in modes else 0
        stages.append(problem.resulting(number, modes.get(number, 0), mine))
    links = {
        hop: problem.link_of_class(hop[0], kind if hop[0] in modes else 0) or link
        for hop, link in problem.links.items()
    }
    routes = tuple(replace(r, classes=None, definitions=()) for r in problem.routes)
    return replace(problem, stages=tuple(stages), routes=routes, links=links)


def _ways(problem: Problem, stage: int, kinds: Sequence[int]) -> list[_Way]:
    """A stage's modes, those with the least rest first; no copies where nothing is gained."""
    ways = []
    for mode in problem.modes_of(stage):
        per_class = [problem.resulting(stage, mode, kind) for kind in kinds]
        rest = (s.held_after_F if s.offload is None else s.offload.held for s in per_class)
        ways.append(_Way(tuple(rest), tuple(map(_peak, per_class)), mode))
    return sorted(ways)


def _peak(stage: Stage) -> int:
    most = max(stage.held_after_F, stage.held_in_backward)
    return most if stage.may_fuse else max(most, stage.held_after_B)


def _least_room(ways: Sequence[Sequence[_Way]]) -> int:
    enough = sum(max(max(way.peak) for way in of_stage) for of_stage in ways)
    return bisect_left(range(enough), True, key=lambda room: _modes_within(ways, room) is not None)


def _modes_within(ways: Sequence[Sequence[_Way]], room: int) -> list[int] | None:
    """Per chunk the mode with the least rest that fits; ``None`` if there is none."""
    modes = []
    held: list[int] | None = None
    for of_stage in ways:
        held = held or [0] * len(of_stage[0].rest)
        for way in of_stage:
            if all(h + peak <= room for h, peak in zip(held, way.peak, strict=True)):
                modes.append(way.mode)
                held = [h + rest for h, rest in zip(held, way.rest, strict=True)]
                break
        else:
            return None
    return modes
