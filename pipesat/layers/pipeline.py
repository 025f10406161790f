"""What layers are cut for: a placement on devices, their memory, their links."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Final, TypeAlias

from pipesat.core.errors import require, require_applicable
from pipesat.core.settings import OneRoutePlacement
from pipesat.problem.building import Backward
from pipesat.problem.costs import one_each
from pipesat.problem.geometry import CHUNKS, Geometry

Delay: TypeAlias = Callable[[int], int]
"""Size units of a transfer -> time units."""


def link_delay(latency: int, bandwidth: int | Fraction | None = None) -> Delay:
    """Delay of ``latency + ceil(size / bandwidth)``; bandwidth in size units per time unit."""
    return lambda size: latency + (0 if bandwidth is None else ceil(Fraction(size) / bandwidth))


_FREE: Final = link_delay(0)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Devices and how S stages lie on p of them (which: :mod:`pipesat.problem.geometry`).

    Attributes
    ----------
    placement, chunks
        ``chain`` (S = p), ``loop`` (S = p ``chunks``) or ``vee`` (S = 2 p).
    memory
        Capacity, one for all devices or one each; ``None``: unlimited.
    delay
        Delay of a link by the size of what it transfers.
    recompute_whole
        Stages that recompute run their backward whole: as runtimes that recompute in each half of a
        split one.
    buffers
        Memory units that every size unit at an end of a stage takes all the time.
    overlap
        What a pair of F and BW takes of their sum, (num, den); ``None``: nothing pairs.
    speed
        Of every device: each layer's times become ``ceil(time / speed)`` there. Empty: all 1.
    """

    devices: int
    microbatches: int
    placement: OneRoutePlacement = "chain"
    chunks: int = CHUNKS
    memory: int | Sequence[int | None] | None = None
    delay: Delay = _FREE
    backward: Backward = "either"
    recompute_whole: bool = False
    buffers: Fraction = Fraction(0)
    overlap: tuple[int, int] | None = None
    speed: tuple[Fraction, ...] = ()

    @cached_property
    def speeds(self) -> tuple[Fraction, ...]:
        """Speed of every stage's device."""
        return tuple(self.speed[home] if self.speed else Fraction(1) for home in self.homes)

    @property
    def fastest(self) -> Fraction:
        """The largest speed: whatever holds of all layers at it holds of all partitions."""
        return max(self.speed, default=Fraction(1))

    @property
    def together(self) -> Fraction:
        """The sum of all speeds."""
        return sum(self.speed, Fraction(0)) or Fraction(self.devices)

    @cached_property
    def geometry(self) -> Geometry:
        """Which stage lies on which device."""
        return Geometry(self.placement, self.devices, self.chunks)

    @cached_property
    def stages(self) -> int:
        """Number of stages."""
        return self.geometry.parts

    @cached_property
    def homes(self) -> tuple[int, ...]:
        """Device of every stage."""
        return self.geometry.homes

    @cached_property
    def stages_on(self) -> tuple[tuple[int, ...], ...]:
        """Stages of every device."""
        return self.geometry.stages_on

    @cached_property
    def capacities(self) -> tuple[int | None, ...]:
        """Capacity of every device.

        Raises
        ------
        BadInput
            If ``memory`` has not one value per device.
        """
        return tuple(one_each(self.memory, self.devices, "memory"))


def speed_of(given: object, devices: int) -> tuple[Fraction, ...]:
    """Read the speed of every device, one for all or one each; empty if all are 1.

    Raises
    ------
    BadInput
        If one is not above 0, or has more than six decimals.
    """
    values = [] if given is None else one_each(given, devices, "speed")
    for value in values:
        require(
            re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", str(value)) and Fraction(str(value)),
            "expected a number above 0 with at most six decimals, as 1 or 0.75",
            where="speed",
            value=value,
        )
    speeds = tuple(Fraction(str(value)) for value in values)
    return () if {*speeds} == {Fraction(1)} else speeds


def in_flight_1f1b(pipeline: Pipeline) -> tuple[int, ...]:
    """Microbatches per stage between F and the end of the backward when a device holds most.

    Chain: ``min(m, p - s)`` (Narayanan et al., SC 2021, section 2.2). Loop: of the ``2 (p - 1 - d)
    + (v - 1) p + 1`` chunks that interleaved 1F1B runs ahead on device d, in groups of p
    microbatches (section 2.2.2), those of each stage.

    Raises
    ------
    NotApplicable
        In a V, which 1F1B does not run on.
    """
    p, m = pipeline.devices, pipeline.microbatches
    require_applicable(pipeline.placement != "vee", "1F1B does not run in a V")
    v = pipeline.stages // p
    if v == 1:
        return tuple(min(m, p - s) for s in range(p))
    ahead = [[0] * v for _ in range(p)]
    for device, held in enumerate(ahead):
        left = 2 * (p - 1 - device) + (v - 1) * p + 1
        for begin in range(0, m, p):
            group = min(p, m - begin)
            for chunk in range(v):
                taken = min(group, left)
                held[chunk] += taken
                left -= taken
    return tuple(ahead[s % p][s // p] for s in range(p * v))
