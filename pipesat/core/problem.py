"""A problem: devices, stages, routes and delays. Pure data, immutable, already validated.

Problems come from :func:`pipesat.files.problem_file.parse_problem`, which checks every value; the
document they came from is kept, because its digest ties schedules to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pipesat.core.building import Backward, Building
from pipesat.core.ops import OpKind


@dataclass(frozen=True, slots=True)
class Device:
    """One pipeline rank.

    ``memory`` is its capacity in memory units (``None``: unlimited), ``static`` the part of it that
    is taken all the time.
    """

    name: str = ""
    memory: int | None = None
    static: int = 0

    @property
    def room(self) -> int | None:
        """Memory left for activations: ``memory - static``; ``None`` if unlimited."""
        return None if self.memory is None else self.memory - self.static


@dataclass(frozen=True, slots=True)
class Stage:
    """A contiguous slice of the model: times in time units, held amounts in memory units.

    ``BW`` is B + W unless given.
    """

    device: int
    F: int
    B: int
    W: int
    BW: int = None  # type: ignore[assignment]  # until it is summed below
    held_after_F: int = 0
    held_after_B: int = 0
    backward: Backward = "either"

    def __post_init__(self) -> None:
        if self.BW is None:
            object.__setattr__(self, "BW", self.B + self.W)

    @property
    def may_split(self) -> bool:
        """Whether B and W may run apart."""
        return self.backward != "fused"

    @property
    def may_fuse(self) -> bool:
        """Whether the classic full backward BW may run."""
        return self.backward != "split"

    @property
    def fusing_may_pay(self) -> bool:
        """Whether BW can ever be the better choice.

        Where ``BW >= B + W`` and ``held_after_B <= held_after_F``, a split backward dominates: B
        and W in a row take no longer and hold no more.
        """
        return self.may_fuse and (
            not self.may_split or self.BW < self.B + self.W or self.held_after_B > self.held_after_F
        )

    @property
    def shortest_backward(self) -> int:
        """Least time from the start of the backward to the input gradient."""
        return self._least(self.B, self.BW)

    @property
    def least_backward_work(self) -> int:
        """Least compute time that the whole backward of a microbatch takes."""
        return self._least(self.B + self.W, self.BW)

    def _least(self, split: int, fused: int) -> int:
        if not self.may_fuse:
            return split
        return min(split, fused) if self.may_split else fused


@dataclass(frozen=True, slots=True)
class Route:
    """The chain of stages that ``microbatches`` microbatches travel."""

    stages: tuple[int, ...]
    microbatches: int


@dataclass(frozen=True, slots=True)
class Link:
    """Delays between two consecutive stages, forward (F) and backward (B), in time units."""

    F: int
    B: int


@dataclass(frozen=True, slots=True)
class Overlap:
    """Which two ops of a device may run as one, and how long they take then.

    ``times`` has the listed pairs: two (stage, kind), in the order in which files write them, and
    the time of the two together, whatever they take alone. ``factor`` is ``(num, den)``: any F and
    BW of a device that are not listed may pair, in max(F, BW, ceil((F + BW) num / den)). ``None``:
    what is not listed may not pair. :func:`pipesat.core.rules.pair_time` answers for two ops.
    """

    factor: tuple[int, int] | None
    times: Mapping[tuple[OpKind, OpKind], int] = field(default_factory=dict)

    def listed(self, a: OpKind, b: OpKind) -> int | None:
        """Time of a listed pair, its members in any order; ``None`` if it is not listed."""
        time = self.times.get((a, b))
        return self.times.get((b, a)) if time is None else time


@dataclass(frozen=True, repr=False)
class Problem(Building):
    """A pipeline to schedule. ``Problem.chain``, ``loop``, ``vee`` and ``two_routes`` make one.

    ``links[(s, t)]`` has the delays between consecutive stages ``s`` and ``t`` of a route that lie
    on different devices; stages on one device hand over without delay. ``overlap`` says which ops
    may run as pairs; ``None``: none may.
    """

    name: str
    time_unit: str
    memory_unit: str
    devices: tuple[Device, ...]
    stages: tuple[Stage, ...]
    routes: tuple[Route, ...]
    links: Mapping[tuple[int, int], Link]
    overlap: Overlap | None
    document: Mapping[str, Any] = field(repr=False, compare=False)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        counts = " + ".join(str(route.microbatches) for route in self.routes)
        counted = (f"{len(self.devices)} devices", f"{len(self.stages)} stages")
        return f"<Problem{name}: {', '.join((*counted, f'{counts} microbatches'))}>"

    @cached_property
    def sha256(self) -> str:
        """Digest of the canonical form: sorted keys, no spaces, UTF-8, defaults not filled in."""
        text = json.dumps(self.document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def route_of(self) -> tuple[int, ...]:
        """Route of each stage."""
        owner = dict.fromkeys(range(len(self.stages)), 0)
        for number, route in enumerate(self.routes):
            owner.update(dict.fromkeys(route.stages, number))
        return tuple(owner[stage] for stage in range(len(self.stages)))

    @cached_property
    def microbatches(self) -> tuple[int, ...]:
        """Number of microbatches that pass each stage."""
        return tuple(self.routes[route].microbatches for route in self.route_of)

    @cached_property
    def previous(self) -> tuple[int | None, ...]:
        """Stage before each stage on its route; ``None`` for the first."""
        before = {b: a for r in self.routes for a, b in zip(r.stages, r.stages[1:], strict=False)}
        return tuple(before.get(stage) for stage in range(len(self.stages)))

    @cached_property
    def next(self) -> tuple[int | None, ...]:
        """Stage after each stage on its route; ``None`` for the last."""
        after = {a: b for r in self.routes for a, b in zip(r.stages, r.stages[1:], strict=False)}
        return tuple(after.get(stage) for stage in range(len(self.stages)))

    @cached_property
    def place_of(self) -> tuple[int, ...]:
        """Place of each stage on its route, counted from 0."""
        places = {stage: at for route in self.routes for at, stage in enumerate(route.stages)}
        return tuple(places.get(stage, 0) for stage in range(len(self.stages)))

    @cached_property
    def stages_on(self) -> tuple[tuple[int, ...], ...]:
        """Stages of each device, in route order (routes one after the other)."""
        homes: list[list[int]] = [[] for _ in self.devices]
        for route in self.routes:
            for stage in route.stages:
                homes[self.stages[stage].device].append(stage)
        return tuple(map(tuple, homes))

    @cached_property
    def answers(self) -> dict[tuple[int, str], Any]:
        """What :mod:`pipesat.core.rules` has worked out of this problem so far."""
        return {}

    @cached_property
    def chunks_on(self) -> tuple[Mapping[int, tuple[int, ...]], ...]:
        """Stages of each device by route, in route order."""
        return tuple(
            {
                route: tuple(s for s in stages if self.route_of[s] == route)
                for route in dict.fromkeys(self.route_of[s] for s in stages)
            }
            for stages in self.stages_on
        )

    @cached_property
    def op_count(self) -> int:
        """Largest number of ops that a schedule can have: F, B and W of every microbatch."""
        return sum(
            m * (3 if s.may_split else 2)
            for s, m in zip(self.stages, self.microbatches, strict=True)
        )

    @cached_property
    def one_stage_per_device(self) -> bool:
        """Whether every device holds exactly one stage of one route: a plain chain."""
        return len(self.routes) == 1 and all(len(stages) == 1 for stages in self.stages_on)

    def device_name(self, device: int) -> str:
        """Name of a device for messages: its own, or ``device 3``."""
        return self.devices[device].name or f"device {device}"
