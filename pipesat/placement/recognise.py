"""The placements that published schedules are made for: recognise one, or say why it is not one.

A *rank* is a position along the pipeline (the device of the route's d-th stage is rank d), so
devices may be numbered in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem


@dataclass(frozen=True)
class Ranks:
    """Stages by rank: ``stages[d]`` are rank d's, in chunk order; ``device[d]`` is its device.

    On two routes, chunk 0 is route 0's stage and chunk 1 route 1's.
    """

    device: tuple[int, ...]
    stages: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.device)

    @property
    def chunks(self) -> int:
        """Stages per rank."""
        return len(self.stages[0])


def chain_of(problem: Problem) -> Ranks:
    """One stage per device on a single route.

    Raises
    ------
    NotApplicable
        If there are several routes, or a device holds several stages or none.
    """
    _single_route(problem)
    if not problem.one_stage_per_device:
        raise NotApplicable("needs exactly one stage per device")
    return _ranks(problem, [problem.routes[0].stages])


def loop_of(problem: Problem) -> Ranks:
    """Some v >= 1 stages per device on a single route; stage c p + d is chunk c of rank d.

    Raises
    ------
    NotApplicable
        If there are several routes, or stages do not go round the devices in turns.
    """
    _single_route(problem)
    laps = _laps(problem)
    home = [problem.stages[s].device for s in laps[0]]
    if any([problem.stages[s].device for s in lap] != home for lap in laps):
        raise NotApplicable("needs stages that go round the devices in turns (interleaved)")
    return _ranks(problem, laps)


def vee_of(problem: Problem) -> Ranks:
    """Two stages per device on a single route: stage d and stage 2 p - 1 - d on rank d.

    Raises
    ------
    NotApplicable
        If there are several routes, or stages do not go through the devices and back.
    """
    _single_route(problem)
    laps = _laps(problem)
    home = [problem.stages[s].device for s in laps[0]]
    if len(laps) != 2 or [problem.stages[s].device for s in reversed(laps[1])] != home:
        raise NotApplicable("needs two stages per device in a V")
    return _ranks(problem, [laps[0], tuple(reversed(laps[1]))])


def two_routes_of(problem: Problem) -> Ranks:
    """Two routes through all devices, one stage each, in opposite directions.

    Raises
    ------
    NotApplicable
        If it is not so.
    """
    if len(problem.routes) != 2:
        raise NotApplicable("needs two routes in opposite directions")
    down, up = (route.stages for route in problem.routes)
    home = [problem.stages[s].device for s in down]
    back = [problem.stages[s].device for s in reversed(up)]
    if sorted(home) != list(range(len(problem.devices))) or home != back:
        raise NotApplicable("needs two routes that pass every device once, in opposite directions")
    return _ranks(problem, [down, tuple(reversed(up))])


def _single_route(problem: Problem) -> None:
    if len(problem.routes) > 1:
        raise NotApplicable("needs a single route")


def _laps(problem: Problem) -> list[tuple[int, ...]]:
    """The route in pieces of p stages, the first of which passes every device."""
    p, stages = len(problem.devices), problem.routes[0].stages
    first = sorted(problem.stages[s].device for s in stages[:p])
    if len(stages) % p or first != list(range(p)):
        raise NotApplicable("needs the same number of stages on every device")
    return [stages[i : i + p] for i in range(0, len(stages), p)]


def _ranks(problem: Problem, laps: list[tuple[int, ...]]) -> Ranks:
    device = tuple(problem.stages[s].device for s in laps[0])
    return Ranks(device, tuple(zip(*laps, strict=True)))
