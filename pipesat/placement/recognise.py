"""The placements that published schedules are made for: recognise one, or say why it is not one.

A *rank* is a position along the pipeline (the device of the route's d-th stage is rank d), so
devices may be numbered in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.placement.geometry import Geometry, OneRoutePlacement, Placement


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
    return _required(problem, "chain", "needs exactly one stage per device")


def loop_of(problem: Problem) -> Ranks:
    """Some v >= 1 stages per device on a single route; stage c p + d is chunk c of rank d.

    Raises
    ------
    NotApplicable
        If there are several routes, or stages do not go round the devices in turns.
    """
    _full_laps(problem)
    return _required(
        problem, "loop", "needs stages that go round the devices in turns (interleaved)"
    )


def vee_of(problem: Problem) -> Ranks:
    """Two stages per device on a single route: stage d and stage 2 p - 1 - d on rank d.

    Raises
    ------
    NotApplicable
        If there are several routes, or stages do not go through the devices and back.
    """
    _full_laps(problem)
    return _required(problem, "vee", "needs two stages per device in a V")


def two_routes_of(problem: Problem) -> Ranks:
    """Two routes through all devices, one stage each, in opposite directions.

    Raises
    ------
    NotApplicable
        If it is not so.
    """
    if len(problem.routes) != 2:
        raise NotApplicable("needs a bidirectional placement")
    return _required(
        problem,
        "bidirectional",
        "needs two routes that pass every device once, in opposite directions",
    )


def one_route_placement_of(problem: Problem) -> OneRoutePlacement:
    """Name of the placement; on one device, a loop of two is called a V.

    Raises
    ------
    NotApplicable
        If the stages lie in none of them.
    """
    names: tuple[OneRoutePlacement, ...] = ("chain", "vee", "loop")
    for name in names:
        if _ranks(problem, name) is not None:
            return name
    raise NotApplicable(f"needs stages in a placement that has a name: {', '.join(names)}")


def _single_route(problem: Problem) -> None:
    if len(problem.routes) > 1:
        raise NotApplicable("needs a single route")


def _full_laps(problem: Problem) -> None:
    """One route in pieces of p stages, the first of which passes every device."""
    _single_route(problem)
    p, homes = len(problem.devices), _homes(problem)
    if len(homes) % p or sorted(homes[:p]) != list(range(p)):
        raise NotApplicable("needs the same number of stages on every device")


def _homes(problem: Problem) -> list[int]:
    """Device of every stage, route after route."""
    return [problem.stages[s].device for route in problem.routes for s in route.stages]


def _required(problem: Problem, name: Placement, needs: str) -> Ranks:
    ranks = _ranks(problem, name)
    if ranks is None:
        raise NotApplicable(needs)
    return ranks


def _ranks(problem: Problem, name: Placement) -> Ranks | None:
    """Ranks of a placement, if the first p stages pass every device and all others lie by it."""
    p, homes = len(problem.devices), _homes(problem)
    geometry = Geometry(name, p, len(homes) // p)
    lengths = [len(route.stages) for route in problem.routes]
    device = tuple(homes[:p])
    if lengths != [*map(len, geometry.routes)] or sorted(device) != list(range(p)):
        return None
    if [device[rank] for rank in geometry.homes] != homes:
        return None
    stages = [s for route in problem.routes for s in route.stages]
    return Ranks(device, tuple(tuple(stages[s] for s in own) for own in geometry.stages_on))
