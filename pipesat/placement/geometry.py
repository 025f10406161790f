"""Placements by name: which device holds which stage. Everything else asks here.

Stages are numbered along their route. With p devices, stage s lies

- ``chain``: on device s, one per device;
- ``loop``: on device s mod p, so many per device as it has chunks (interleaved);
- ``vee``: on device s, and from s = p on back on device 2p - 1 - s, two per device;
- ``bidirectional``: as in a V, but stages 0 to p - 1 and p to 2p - 1 are two replicas on routes of
  their own, which pass the devices in opposite directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias, get_args

OneRoutePlacement: TypeAlias = Literal["chain", "loop", "vee"]
Placement: TypeAlias = Literal[OneRoutePlacement, "bidirectional"]
"""What users type."""
PlacementChoice: TypeAlias = Literal[OneRoutePlacement, "any"]
PLACEMENTS: Final[tuple[Placement, ...]] = get_args(Placement)
ONE_ROUTE: Final[tuple[OneRoutePlacement, ...]] = get_args(OneRoutePlacement)
CHUNKS: Final = 2
"""Stages per device of a loop, unless given; the other placements have no choice."""


@dataclass(frozen=True)
class Geometry:
    """A placement on so many devices; ``chunks`` is for a loop."""

    name: Placement
    devices: int
    chunks: int = CHUNKS

    @property
    def label(self) -> str:
        """Name with the chunks of a loop: ``loop v=2``."""
        return f"loop v={self.chunks}" if self.name == "loop" else self.name

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
        on: list[list[int]] = [[] for _ in range(self.devices)]
        for stage, home in enumerate(self.homes):
            on[home].append(stage)
        return tuple(map(tuple, on))

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

    def microbatches(self, together: int) -> tuple[int, ...]:
        """Microbatches of every route, of so many together: half each, the first route's more."""
        if self.name == "bidirectional":
            return together - together // 2, together // 2
        return (together,)
