"""What a search is over: layers, shapes and which stages may recompute; and its candidates.

:class:`Space` is the one place that says what a search may choose. ``never``: layers have no
variant at all, so nothing can recompute, whatever a proposal says. ``where-needed``: a partition
decides, by :func:`where_needed`. ``choose``: any stage that has a layer with a variant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.choose.bounds import stage_cost
from pipesat.choose.cut_terms import variants
from pipesat.core.claims import Bound
from pipesat.core.problem import Problem
from pipesat.core.result import Baseline, Improvement
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.settings import RecomputeChoice, Runtime
from pipesat.core.split import FORBIDDEN, StageCost
from pipesat.layers.devices import Recompute
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline, in_flight_1f1b
from pipesat.layers.rules import neighbours
from pipesat.layers.stages import problem_of_split, static_of_devices

Flags: TypeAlias = tuple[bool, ...]
"""Which stages recompute, one per stage; empty: none."""


@dataclass(frozen=True, eq=False)
class Space:
    """Layers to cut, the choice of recomputation, shapes to cut them for, and the objective.

    Attributes
    ----------
    layers
        With the variants that the choice admits: under ``never``, none. Costs, bounds and problems
        are made of these, so they cannot know more than the choice does.
    """

    layers: Layers
    choice: RecomputeChoice = "never"
    shapes: tuple[Pipeline, ...] = ()
    objective: Objective = "makespan"
    _costs: dict[int, StageCost] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        layers: Layers,
        choice: RecomputeChoice = "never",
        shapes: Sequence[Pipeline] = (),
        objective: Objective = "makespan",
    ) -> Space:
        """Return the space; layers lose the variants that the choice does not admit."""
        admitted = variants(layers)[0] if choice == "never" else layers
        return cls(admitted, choice, tuple(shapes), objective)

    @property
    def free(self) -> bool:
        """Whether a partition leaves more than one choice of flags."""
        return self.choice == "choose" and self.layers.recomputable

    def settled(self, shape: Pipeline, partition: Sequence[range], wanted: Flags = ()) -> Flags:
        """Return the flags that a partition gets if ``wanted`` are proposed.

        Stages without a variant are never said to recompute, so that equal problems have equal
        flags.
        """
        if not self.layers.recomputable:
            return ()
        if self.choice == "where-needed":
            flags = where_needed(self.layers, shape, partition)
        else:
            wanted = wanted or (False,) * len(partition)
            pairs = zip(wanted, partition, strict=True)
            flags = tuple(flag and has_variant(self.layers, part) for flag, part in pairs)
        return flags if any(flags) else ()

    def first(self, shape: Pipeline, partition: Sequence[range]) -> Iterator[Flags]:
        """Flags to try on a partition that comes without any."""
        needed: Flags = ()
        if self.layers.recomputable:
            needed = where_needed(self.layers, shape, partition)
        yield needed
        if self.free and any(needed):
            yield ()

    def around(self, candidate: Candidate) -> Iterator[tuple[tuple[range, ...], Flags]]:
        """Yield its neighbours: one layer moved, or one stage's recomputation toggled.

        The latter only where it may be chosen. All searches move by these.
        """
        partition, now = candidate.partition, candidate.flags
        if all(partition):
            for moved in neighbours(self.layers, partition, candidate.shape):
                yield moved, candidate.recompute
        for stage, part in enumerate(partition):
            if self.free and has_variant(self.layers, part):
                yield partition, (*now[:stage], not now[stage], *now[stage + 1 :])

    @property
    def of_splits(self) -> tuple[Recompute, ...]:
        """How programmes that choose a partition and flags together may set the flags."""
        if not self.layers.recomputable:
            return ("never",)
        return ("where_needed", "never", "always") if self.free else ("where_needed",)

    def made(
        self,
        shape: Pipeline,
        partition: tuple[range, ...],
        wanted: Flags = (),
        name: str = "",
        number: int = -1,
    ) -> Candidate:
        """Return a candidate; without the number of a shape, one that only stands for comparison.

        What recomputes is what the choice allows.

        Raises
        ------
        BadInput
            If it breaks a flag or a tie.
        """
        flags = self.settled(shape, partition, wanted)
        problem = problem_of_split(self.layers, partition, shape, recompute=flags)
        return Candidate(shape, partition, flags, problem, self.objective, number, name)

    def own_bound(self, number: int, partition: Sequence[range]) -> int:
        """What the closed forms of single stages say of a partition, whoever recomputes."""
        if number not in self._costs:
            self._costs[number] = stage_cost(self.layers, self.shapes[number], self.objective)
        ends = (np.array([[[part.start]], [[part.stop]]]) for part in partition)
        values = [int(self._costs[number](a, b, s)[0, 0]) for s, (a, b) in enumerate(ends)]
        return max((value for value in values if value < FORBIDDEN), default=0)


def has_variant(layers: Layers, part: range) -> bool:
    """Whether a stage of these layers differs when it recomputes."""
    return any(layers.layers[k].recomputed is not None for k in part)


def usual_in_flight(shape: Pipeline) -> tuple[int, ...]:
    """Microbatches per stage that a schedule without idle time holds: 1F1B's; ZB-V's in a V."""
    if shape.placement == "vee":
        return (min(shape.devices, shape.microbatches),) * shape.stages
    return in_flight_1f1b(shape)


def where_needed(layers: Layers, shape: Pipeline, partition: Sequence[range]) -> Flags:
    """Which stages have to recompute for the usual number of microbatches in flight to fit.

    On a device with several stages, those that save most memory come first.
    """
    flags = [False] * shape.stages
    static = static_of_devices(layers, partition, shape)
    plain, again = (
        [
            flying * sum(layers.layers[k].amount("held_after_F", recompute=flag) for k in part)
            for part, flying in zip(partition, usual_in_flight(shape), strict=True)
        ]
        for flag in (False, True)
    )
    for device, stages in enumerate(shape.stages_on):
        capacity, held = shape.capacities[device], static[device] + sum(plain[s] for s in stages)
        for saved, stage in sorted(((plain[s] - again[s], s) for s in stages), reverse=True):
            if capacity is None or saved <= 0 or held <= capacity:
                break
            flags[stage] = True
            held -= saved
    return tuple(flags)


Key: TypeAlias = tuple[int, tuple[int, ...], Flags]
"""Shape, cuts, which stages recompute: what a candidate is remembered by."""

_MOST_KEPT: Final = 5


@dataclass(eq=False)
class Candidate:
    """A partition, its problem, its best schedules and its bound.

    Attributes
    ----------
    shape_number
        Of its shape in the search; -1: it stands for comparison.
    proposed_by
        Who came up with it, for tables.
    runtime
        Whose restrictions the problem obeys, ``None``: any order.
    first
        How many transformer layers of every stage recompute, besides whole stages; ``None``: none.
    offload
        Whether its stages may copy activations to the host.
    schedules
        Checked ones, the best first, of different sources.
    effort
        How much was looked for: 0 nothing, 1 a few greedy orders, 2 all of them, 3 the solver.
    history
        Improvements that its solves reported.
    baseline
        The best hand-written schedule of it that fits.
    """

    shape: Pipeline
    partition: tuple[range, ...]
    recompute: Flags
    problem: Problem
    objective: Objective = "makespan"
    shape_number: int = -1
    proposed_by: str = ""
    runtime: Runtime | None = None
    first: int | None = None
    offload: bool = False
    schedules: list[Schedule] = field(default_factory=list)
    effort: int = 0
    expanded: bool = False
    history: tuple[Improvement, ...] = ()
    baseline: Baseline | None = None

    @cached_property
    def bound(self) -> Bound:
        """What no schedule of this partition is below."""
        return closed_form_bound(self.problem, self.objective)

    @property
    def stages(self) -> tuple[object, ...]:
        """What its stages are, whatever a runtime restricts."""
        return self.partition, self.shape.homes, self.recompute, self.first, self.offload

    @property
    def key(self) -> Key:
        """What it is remembered by."""
        return key_of(self.shape_number, self.partition, self.recompute)

    @property
    def flags(self) -> Flags:
        """Which stages recompute, one value per stage."""
        return self.recompute or (False,) * len(self.partition)

    @property
    def value(self) -> int | None:
        """Value of its best schedule."""
        return self.schedules[0].value(self.objective) if self.schedules else None

    @property
    def proven(self) -> bool:
        """Whether no schedule of this partition is better than its best."""
        return self.value == self.bound.value

    def keep(self, schedule: Schedule) -> None:
        """Keep a checked schedule, of every source the best."""
        ranked = sorted([*self.schedules, schedule], key=lambda s: s.value(self.objective))
        best: dict[str, Schedule] = {}
        for one in ranked:
            best.setdefault(one.source, one)
        self.schedules = [*best.values()][:_MOST_KEPT]

    def prove(self, bound: Bound) -> None:
        """Keep a bound if it is better."""
        if bound.value > self.bound.value:
            self.bound = bound


def key_of(shape_number: int, partition: tuple[range, ...], recompute: Flags) -> Key:
    """What a partition is remembered by, with the flags that its recomputation settled on."""
    return shape_number, tuple(part.stop for part in partition), recompute
