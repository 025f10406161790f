"""Candidates: one way to cut layers, place stages and recompute, with what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.claims import Bound
from pipesat.core.grouping import firsts
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline, in_flight_1f1b
from pipesat.layers.stages import static_of_devices
from pipesat.problem.problem import Problem
from pipesat.schedule.result import Baseline, Improvement
from pipesat.schedule.schedule import Objective, Schedule

Flags: TypeAlias = tuple[bool, ...]
"""Which stages recompute, one per stage; empty: none."""
Key: TypeAlias = tuple[Pipeline, tuple[range, ...], Flags]
"""What a candidate of a search is remembered by."""
GREEDY, PUBLISHED, SOLVED, SETTLED = 1, 2, 3, 4
"""How much was looked for: a few greedy orders, all that are published, the solver's; the last
means that it was solved for the answer alone."""
_MOST_KEPT: Final = 5


@dataclass(eq=False)
class Candidate:
    """A shape, a partition and what recomputes; its problem, its best schedules and its bound.

    Attributes
    ----------
    recompute
        Which stages recompute whole; empty: none.
    first
        How many transformer layers of every stage recompute, besides whole stages; ``None``: none.
    offload
        Whether its stages may copy activations to the host.
    proposed_by
        Who came up with it, for tables.
    schedules
        Checked ones, the best first, of different sources.
    effort
        0, or the most that was looked for, from :data:`GREEDY` on.
    history
        Improvements that its solves reported.
    baseline
        The best hand-written schedule of it that fits.
    """

    shape: Pipeline
    partition: tuple[range, ...]
    recompute: Flags
    first: int | None
    offload: bool
    problem: Problem
    objective: Objective = "makespan"
    proposed_by: str = ""
    schedules: list[Schedule] = field(default_factory=list)
    effort: int = 0
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
        """What a search remembers it by."""
        return self.shape, self.partition, self.recompute

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

    @property
    def promise(self) -> tuple[int, int, tuple[int, ...]]:
        """Key to sort by: the value, or the bound before there is one."""
        value, bound = self.value, self.bound.value
        return bound if value is None else value, bound, tuple(part.stop for part in self.partition)

    def keep(self, schedule: Schedule) -> None:
        """Keep a checked schedule, of every source the best."""
        ranked = sorted([*self.schedules, schedule], key=lambda s: s.value(self.objective))
        best = firsts((one.source, one) for one in ranked)
        self.schedules = [*best.values()][:_MOST_KEPT]

    def prove(self, bound: Bound) -> None:
        """Keep a bound if it is better."""
        if bound.value > self.bound.value:
            self.bound = bound


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
