"""What a plan is asked: layers, shapes, objective and what may recompute; its candidates.

:class:`Recomputation` is the one place that says what a search may choose. ``never``: layers have
no variant at all, so nothing can recompute, whatever a proposal says. ``where-needed``: a partition
decides, by :func:`where_needed`. ``choose``: any stage that has a layer with a variant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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
from pipesat.layers.devices import Recompute
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline, in_flight_1f1b
from pipesat.layers.rules import neighbours
from pipesat.layers.split import FORBIDDEN
from pipesat.layers.stages import problem_of_split, static_of_devices

Flags: TypeAlias = tuple[bool, ...]
"""Which stages recompute, one per stage; empty: none."""


@dataclass(frozen=True)
class Recomputation:
    """What a choice of recomputation leaves of the layers, and which flags it allows.

    Attributes
    ----------
    layers
        With the variants that the choice admits: under ``never``, none. Costs, bounds and problems
        are made of these, so they cannot know more than the choice does.
    """

    layers: Layers
    choice: RecomputeChoice

    @classmethod
    def of(cls, layers: Layers, choice: RecomputeChoice) -> Recomputation:
        """Return the space of a choice."""
        return cls(variants(layers)[0] if choice == "never" else layers, choice)

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
    flying = usual_in_flight(shape)
    static = static_of_devices(layers, partition, shape)

    def held(stage: int) -> int:
        part, again = partition[stage], flags[stage]
        one = sum(layers.layers[k].amount("held_after_F", recompute=again) for k in part)
        return flying[stage] * one

    for device, stages in enumerate(shape.stages_on):
        capacity = shape.capacities[device]
        if capacity is None:
            continue
        saving = []
        for stage in stages:
            plain, flags[stage] = held(stage), True
            saving.append((plain - held(stage), stage))
            flags[stage] = False
        for saved, stage in sorted(saving, reverse=True):
            if saved <= 0 or static[device] + sum(map(held, stages)) <= capacity:
                break
            flags[stage] = True
    return tuple(flags)


Key: TypeAlias = tuple[int, tuple[int, ...], Flags]
"""Shape, cuts, which stages recompute: what a candidate is remembered by."""

_MOST_KEPT = 5


@dataclass(eq=False)
class Candidate:
    """A partition, its problem, its best schedules and its bound.

    Attributes
    ----------
    proposed_by
        Who came up with it, for tables.
    bound
        What no schedule of this partition is below.
    schedules
        Checked ones, the best first, of different sources.
    effort
        How much was looked for: 0 nothing, 1 a few greedy orders, 2 all of them, 3 the solver.
    history
        Improvements that its solves reported.
    baseline
        The best hand-written schedule of it that fits.
    runtime
        Whose restrictions the problem obeys, ``None``: any order.
    first
        How many transformer layers of every stage recompute, besides whole stages; ``None``: none.
    offload
        Whether its stages may copy activations to the host.
    """

    shape_number: int
    shape: Pipeline
    partition: tuple[range, ...]
    recompute: Flags
    problem: Problem
    proposed_by: str
    bound: Bound
    schedules: list[Schedule] = field(default_factory=list)
    effort: int = 0
    expanded: bool = False
    history: tuple[Improvement, ...] = ()
    baseline: Baseline | None = None
    runtime: Runtime | None = None
    first: int | None = None
    offload: bool = False

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

    def value(self, objective: Objective) -> int | None:
        """Value of its best schedule."""
        return self.schedules[0].value(objective) if self.schedules else None

    def proven(self, objective: Objective) -> bool:
        """Whether no schedule of this partition is better than its best."""
        return self.value(objective) == self.bound.value

    def keep(self, schedule: Schedule, objective: Objective) -> None:
        """Keep a checked schedule, of every source the best."""
        rest = [s for s in self.schedules if s.source != schedule.source]
        same = [s for s in self.schedules if s.source == schedule.source]
        best = min([*same, schedule], key=lambda s: s.value(objective))
        self.schedules = sorted([*rest, best], key=lambda s: s.value(objective))[:_MOST_KEPT]

    def prove(self, bound: Bound) -> None:
        """Keep a bound if it is better."""
        if bound.value > self.bound.value:
            self.bound = bound


def key_of(shape_number: int, partition: tuple[range, ...], recompute: Flags) -> Key:
    """What a partition is remembered by, with the flags that its recomputation settled on."""
    return shape_number, tuple(part.stop for part in partition), recompute


CostOfStage: TypeAlias = Callable[[int, int, int], int]
"""(begin, end, stage) -> what the closed forms say of that stage."""

_LARGEST_TABLE: Final = 4_000_000  # cells


@dataclass(frozen=True, eq=False)
class Question:
    """Layers to cut, shapes to cut them for, the objective and the choice of recomputation."""

    space: Recomputation
    shapes: tuple[Pipeline, ...]
    objective: Objective
    _costs: dict[int, CostOfStage] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        layers: Layers,
        shapes: Sequence[Pipeline],
        objective: Objective = "makespan",
        recompute: RecomputeChoice = "never",
    ) -> Question:
        """Return the question; layers lose the variants that the choice does not admit."""
        return cls(Recomputation.of(layers, recompute), tuple(shapes), objective)

    @property
    def layers(self) -> Layers:
        """The layers, with the variants that the choice admits."""
        return self.space.layers

    def made(
        self,
        shape: Pipeline,
        partition: tuple[range, ...],
        wanted: Flags = (),
        name: str = "",
        number: int = -1,
    ) -> Candidate:
        """Return a candidate; without the number of a shape, one that only stands for comparison.

        The only way to make one: what recomputes is what the choice allows.

        Raises
        ------
        BadInput
            If it breaks a flag or a tie.
        """
        flags = self.space.settled(shape, partition, wanted)
        problem = problem_of_split(self.layers, partition, shape, recompute=flags)
        bound = closed_form_bound(problem, self.objective)
        return Candidate(number, shape, partition, flags, problem, name, bound)

    def own_bound(self, number: int, partition: Sequence[range]) -> Bound:
        """What the closed forms of single stages say of a partition, whoever recomputes."""
        cost = self._cost_of(number)
        values = [cost(part.start, part.stop, stage) for stage, part in enumerate(partition)]
        known = (value for value in values if value < FORBIDDEN)
        return Bound(max(known, default=0), "closed form of one stage")

    def _cost_of(self, number: int) -> CostOfStage:
        """Cost of one stage in a shape, from a table of all if that is not too large."""
        if number not in self._costs:
            shape, count = self.shapes[number], len(self.layers)
            cost = stage_cost(self.layers, shape, self.objective)
            if shape.stages * (count + 1) ** 2 <= _LARGEST_TABLE:
                a, b = np.arange(count + 1)[:, None], np.arange(count + 1)[None, :]
                tables = [
                    np.broadcast_to(cost(a, b, s), (count + 1, count + 1))
                    for s in range(shape.stages)
                ]
                self._costs[number] = lambda a, b, stage: int(tables[stage][a, b])
            else:
                self._costs[number] = lambda a, b, stage: int(
                    cost(np.array([[a]]), np.array([[b]]), stage)[0, 0]
                )
        return self._costs[number]
