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
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from pipesat.core.problem import Problem, Route, Stage

Modes: TypeAlias = dict[int, int]
"""Mode of each stage, for one microbatch."""


class _Way(NamedTuple):
    """A mode of a stage: what is held between F and backward, and while either runs, per class."""

    rest: tuple[int, ...]
    peak: tuple[int, ...]
    mode: int


def classes_of(route: Route) -> range:
    """Numbers of the classes of a route's microbatches; one where they do not differ."""
    return range(max(1, len(route.definitions)))


def least_modes(problem: Problem, route: int) -> list[Modes]:
    """Modes of one microbatch of each class of a route with which every device needs least."""
    chosen: list[Modes] = [{} for _ in classes_of(problem.routes[route])]
    for per_route in problem.chunks_on:
        for group in _together(problem, route):
            stages = per_route.get(route, ())
            ways = [_ways(problem, stage, group) for stage in stages]
            modes = _modes_within(ways, _least_room(ways)) or ()
            for kind in group:
                chosen[kind].update(zip(stages, modes, strict=True))
    return chosen


def modes_that_fit(problem: Problem, route: int) -> list[Modes]:
    """Modes of one microbatch of each class that fit into every device: keep wherever possible.

    Where nothing fits, those of the least need.
    """
    chosen = least_modes(problem, route)
    for device, per_route in enumerate(problem.chunks_on):
        room = problem.devices[device].room
        stages = per_route.get(route, ())
        for group in _together(problem, route):
            ways = [_ways(problem, stage, group) for stage in stages]
            if room is None:
                modes: list[int] | None = [0 for _ in stages]
            else:
                modes = _kept_where_possible(ways, room)
            for kind in group if modes is not None else ():
                chosen[kind].update(zip(stages, modes or (), strict=True))
    return chosen


def need_of(problem: Problem, stages: Sequence[int]) -> int:
    """Least room of a device for one microbatch on its chunks of one route, whatever its class."""
    if not stages:
        return 0
    return max(
        _least_room([_ways(problem, stage, group) for stage in stages])
        for group in _together(problem, problem.route_of[stages[0]])
    )


def takes_time(problem: Problem, stages: Sequence[int]) -> bool:
    """Whether F and backward of these stages take time in every mode and class."""
    return all(
        amounts.F and amounts.shortest_backward
        for stage in stages
        for kind in classes_of(problem.routes[problem.route_of[stage]])
        for mode in problem.modes_of(stage)
        for amounts in [problem.resulting(stage, mode, kind)]
    )


def _together(problem: Problem, route: int) -> list[list[int]]:
    """Classes whose microbatches share their modes."""
    kinds = list(classes_of(problem.routes[route]))
    return [kinds] if problem.mode_choice == "stage" else [[kind] for kind in kinds]


def _ways(problem: Problem, stage: int, kinds: Sequence[int]) -> list[_Way]:
    """A stage's modes, those with the least rest first."""
    ways = []
    for mode in problem.modes_of(stage):
        per_class = [problem.resulting(stage, mode, kind) for kind in kinds]
        rest = (s.held_after_F if s.offload is None else s.offload.held for s in per_class)
        ways.append(_Way(tuple(rest), tuple(map(_peak, per_class)), mode))
    return sorted(ways)


def _peak(stage: Stage) -> int:
    """Most that is held from F on; a backward that takes no time holds nothing on top."""
    most = stage.held_after_F if stage.may_fuse else max(stage.held_after_F, stage.held_after_B)
    backward = stage.BW if stage.may_fuse else stage.B
    return max(most, stage.held_in_backward) if backward else most


def _least_room(ways: Sequence[Sequence[_Way]]) -> int:
    enough = sum(max(max(way.peak) for way in of_stage) for of_stage in ways)
    return bisect_left(range(enough), True, key=lambda room: _modes_within(ways, room) is not None)


def _modes_within(
    ways: Sequence[Sequence[_Way]], room: int, held: Sequence[int] = ()
) -> list[int] | None:
    """Per chunk the mode with the least rest that fits; ``None`` if there is none.

    ``held`` is what chunks before these hold, per class.
    """
    modes = []
    for of_stage in ways:
        way = next((way for way in of_stage if _fits(way, room, held)), None)
        if way is None:
            return None
        modes.append(way.mode)
        held = _with(way, held)
    return modes


def _kept_where_possible(ways: Sequence[Sequence[_Way]], room: int) -> list[int] | None:
    """As :func:`_modes_within`, but per chunk the first mode with which all others still fit."""
    modes: list[int] = []
    held: Sequence[int] = ()
    for at, of_stage in enumerate(ways):
        for way in sorted(of_stage, key=lambda way: way.mode):
            others = ways[at + 1 :]
            if _fits(way, room, held) and _modes_within(others, room, _with(way, held)) is not None:
                break
        else:
            return None
        modes.append(way.mode)
        held = _with(way, held)
    return modes


def _fits(way: _Way, room: int, held: Sequence[int]) -> bool:
    return all(h + peak <= room for h, peak in zip_longest(held, way.peak, fillvalue=0))


def _with(way: _Way, held: Sequence[int]) -> list[int]:
    return [h + rest for h, rest in zip_longest(held, way.rest, fillvalue=0)]
