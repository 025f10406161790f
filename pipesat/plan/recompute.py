"""Which stages compute their activations again: what fits, and what may be chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline, in_flight_1f1b
from pipesat.layers.stages import static_of_devices
from pipesat.plan.candidate import Flags

RecomputeChoice: TypeAlias = Literal["never", "where-needed", "choose"]


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


def first_choices(
    layers: Layers, shape: Pipeline, partition: Sequence[range], choice: RecomputeChoice
) -> Iterator[Flags]:
    """Flags to try on a partition that comes without any."""
    if choice == "never" or not layers.recomputable:
        yield ()
        return
    needed = where_needed(layers, shape, partition)
    yield needed
    if choice == "choose" and any(needed):
        yield ()


def flips(layers: Layers, partition: Sequence[range], flags: Flags) -> Iterator[Flags]:
    """The same flags with one stage's turned over."""
    now = flags or (False,) * len(partition)
    for stage, part in enumerate(partition):
        if _has_variant(layers, part):
            yield (*now[:stage], not now[stage], *now[stage + 1 :])


def _has_variant(layers: Layers, part: range) -> bool:
    return any(layers.layers[k].recomputed is not None for k in part)
