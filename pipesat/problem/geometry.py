"""Placements by name: which device holds which stage, and which placement a problem has.

Stages are numbered along their route. With p devices, stage s lies

- ``chain``: on device s, one per device;
- ``loop``: on device s mod p, so many per device as it has chunks (interleaved);
- ``vee``: on device s, and from s = p on back on device 2p - 1 - s, two per device;
- ``bidirectional``: as in a V, but stages 0 to p - 1 and p to 2p - 1 are two replicas on routes of
  their own, which pass the devices in opposite directions.

A *rank* is a position along the pipeline (the device of the route's d-th stage is rank d), so
devices may be numbered in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, get_args

from pipesat.core.errors import NotApplicable, require, require_applicable
from pipesat.core.grouping import in_rows
from pipesat.core.settings import OneRoutePlacement, Placement
from pipesat.problem.problem import Problem

PlacementChoice: TypeAlias = Literal[OneRoutePlacement, "any"]
PLACEMENTS: Final[tuple[Placement, ...]] = get_args(Placement)
ONE_ROUTE: Final[tuple[OneRoutePlacement, ...]] = get_args(OneRoutePlacement)
CHUNKS: Final = 2
"""Stages per device of a loop, unless given; the other placements have no choice."""


_NEEDS: Final[dict[Placement, str]] = {
    "chain": "needs exactly one stage per device",
    "loop": "needs stages that go round the devices in turns (interleaved)",
    "vee": "needs two stages per device in a V",
    "bidirectional": "needs two routes that pass every device once, in opposite directions",
}


@dataclass(frozen=True)
class Geometry:
    """A placement on so many devices; ``chunks`` is for a loop."""

    name: Placement
    devices: int
    chunks: int = CHUNKS

    @property
    def label(self) -> str:
        """Name with the chunks of a loop: ``loop of 2``."""
        return f"loop of {self.chunks}" if self.name == "loop" else self.name

    @cached_property
    def homes(self) -> tuple[int, ...]:
        """Device of every stage."""
        there = range(self.devices)
        if self.name in ("vee", "bidirectional"):
            return (*there, *reversed(there))
        laps = self.chunks if self.name == "loop" else 1
        return (*there,) * laps

    @cached_property
    def stages_on(self) -> tuple[tuple[int, ...], ...]:
        """Stages of every device, in order."""
        return in_rows(self.devices, zip(self.homes, range(len(self.homes)), strict=True))

    @property
    def parts(self) -> int:
        """How many different stages layers are cut into: replicas are the same ones."""
        laps = {"loop": self.chunks, "vee": 2}.get(self.name, 1)
        return self.devices * laps

    @property
    def routes(self) -> tuple[range, ...]:
        """Stages of every route."""
        first = range(self.parts)
        if self.name == "bidirectional":
            return first, range(self.parts, 2 * self.parts)
        return (first,)


def chunks_of(placement: Placement, chunks: int | None) -> int:
    """Return the stages per device of a loop; ``None``: 2."""
    require(
        chunks is None or placement == "loop",
        "only a loop has a choice: `placement` loop",
        where="chunks",
        value=chunks,
    )
    return chunks or CHUNKS


def shared(microbatches: Any, routes: int) -> list[Any]:
    """Return each route's microbatches: of a number equally many, the first routes' more.

    One route takes a list of classes as it is; several take a list of one each, a number or a list.
    """
    if routes == 1:
        return [microbatches]
    if not isinstance(microbatches, list):
        require(
            microbatches >= routes,
            f"expected at least {routes}, one per direction",
            where="microbatches",
            value=microbatches,
        )
        return [(microbatches + routes - 1 - route) // routes for route in range(routes)]
    require(
        len(microbatches) == routes and all(not isinstance(own, Mapping) for own in microbatches),
        f"expected a number, or {routes}: one per direction, each a number or a list",
        where="microbatches",
        value=microbatches,
    )
    return microbatches


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


def ranks_of(problem: Problem, name: Placement) -> Ranks:
    """Return the stages of a problem in a placement, by rank; in a loop, v >= 1 per device.

    Raises
    ------
    NotApplicable
        If they do not lie in it, with what it needs.
    """
    p, homes = len(problem.devices), _homes(problem)
    if name == "bidirectional":
        require_applicable(len(problem.routes) == 2, "needs a bidirectional placement")
    elif len(problem.routes) > 1:
        raise NotApplicable("needs a single route")
    elif name != "chain" and (len(homes) % p or sorted(homes[:p]) != list(range(p))):
        raise NotApplicable("needs the same number of stages on every device")
    ranks = _ranks(problem, name)
    if ranks is None:
        raise NotApplicable(_NEEDS[name])
    return ranks


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


def label_of(problem: Problem) -> str | None:
    """Return how a placement is called, ``loop of 2``; ``None`` if it has no name."""
    p = len(problem.devices)
    for name in PLACEMENTS:
        with suppress(NotApplicable):
            return Geometry(name, p, ranks_of(problem, name).chunks).label
    return None


def _homes(problem: Problem) -> list[int]:
    """Device of every stage, route after route."""
    return [problem.stages[s].device for route in problem.routes for s in route.stages]


def _ranks(problem: Problem, name: Placement) -> Ranks | None:
    """Ranks of a placement, if the first p stages pass every device and all others lie by it."""
    p, homes = len(problem.devices), _homes(problem)
    geometry = Geometry(name, p, len(homes) // p)
    if any(route.graph is not None for route in problem.routes):
        return None
    lengths = [len(route.stages) for route in problem.routes]
    device = tuple(homes[:p])
    if lengths != [*map(len, geometry.routes)] or sorted(device) != list(range(p)):
        return None
    if [device[rank] for rank in geometry.homes] != homes:
        return None
    stages = [s for route in problem.routes for s in route.stages]
    return Ranks(device, tuple(tuple(stages[s] for s in own) for own in geometry.stages_on))
