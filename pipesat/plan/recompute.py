"""Which stages compute their activations again: the one place that says what a search may choose.

Three choices make three spaces. ``never``: layers have no variant at all, so nothing can recompute,
whatever a proposal says. ``where-needed``: a partition decides, by :func:`where_needed`.
``choose``: any stage that has a layer with a variant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pipesat.core.settings import RecomputeChoice
from pipesat.layers.devices import Recompute
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline, in_flight_1f1b
from pipesat.layers.stages import static_of_devices
from pipesat.plan.cheapest_layers import variants

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

    def flips(self, partition: Sequence[range], flags: Flags) -> Iterator[Flags]:
        """The same flags with one stage's toggled, where they may be chosen."""
        now = flags or (False,) * len(partition)
        for stage, part in enumerate(partition):
            if self.free and has_variant(self.layers, part):
                yield (*now[:stage], not now[stage], *now[stage + 1 :])

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
