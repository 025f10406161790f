"""A problem from layers and a partition: costs added up, links and static memory from the layers.

Every stage's amounts are the sums over its layers; a stage without layers costs nothing and passes
on what it gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any, Final

from pipesat.core.amounts import bytes_of
from pipesat.core.errors import said_of
from pipesat.core.settings import ModeChoice
from pipesat.core.torch_releases import Release
from pipesat.layers.layer import Layers
from pipesat.layers.megatron import refusal
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import check_partition
from pipesat.problem.building import Backward
from pipesat.problem.problem import (
    Device,
    Link,
    Mode,
    Overlap,
    Problem,
    Route,
    Stage,
    links_between,
)
from pipesat.problem.problem_checks import valid
from pipesat.problem.stage import COSTS


def problem_of_split(
    layers: Layers,
    partition: Sequence[range],
    pipeline: Pipeline,
    *,
    recompute: Sequence[bool] = (),
) -> Problem:
    """Return the problem of a partition.

    Parameters
    ----------
    recompute
        Which stages compute their activations again; empty: none.
    """
    with said_of("problem of layers"):
        return valid(_problem(layers, partition, pipeline, recompute))


RECOMPUTE: Final = "recompute"
"""Name of the memory mode in which a stage recomputes."""


def problem_with_recompute(
    layers: Layers, partition: Sequence[range], pipeline: Pipeline
) -> Problem:
    """Return the problem of a partition with recomputing as a memory mode, one for each stage.

    Every stage that has a layer with a variant has the mode :data:`RECOMPUTE`, and all microbatches
    of a stage run alike.
    """
    plain, stages = _problem(layers, partition, pipeline), list[Stage]()
    own = zip(partition, plain.stages, pipeline.speeds, strict=True)
    for part, stage, speed in own:
        modes: tuple[Mode, ...] = ()
        if layers.may_recompute(part):
            amounts, backward = _costs(layers, part, pipeline, speed, again=True)
            modes = (Mode(RECOMPUTE, tuple(amounts.items()), backward),)
        stages.append(replace(stage, modes=modes))
    choice: ModeChoice = "stage" if any(stage.modes for stage in stages) else "microbatch"
    with said_of("problem of layers"):
        return valid(replace(plain, stages=tuple(stages), mode_choice=choice))


def _problem(
    layers: Layers, partition: Sequence[range], pipeline: Pipeline, recompute: Sequence[bool] = ()
) -> Problem:
    """The problem, whose name says so if its costs are an estimate."""
    check_partition(layers, partition, pipeline.homes)
    static = static_of_devices(layers, partition, pipeline)
    devices = zip(pipeline.capacities, static, strict=True)
    stages = list[Stage]()
    again = tuple(recompute) or (False,) * len(partition)
    parts = zip(pipeline.homes, partition, pipeline.speeds, again, strict=True)
    for home, part, speed, flag in parts:
        amounts, backward = _costs(layers, part, pipeline, speed, again=flag)
        stages.append(Stage(home, **amounts, backward=backward))

    def link(src: int, _: int) -> Link:
        end = partition[src].stop
        delay = pipeline.delay(layers.layers[end - 1].output if end else 0)
        return Link(delay, delay)

    return Problem(
        devices=tuple(Device(memory=memory, static=taken) for memory, taken in devices),
        stages=tuple(stages),
        routes=(Route((*range(len(stages)),), pipeline.microbatches),),
        links=links_between(pipeline.homes, pipeline.geometry.routes, link),
        overlap=None if pipeline.overlap is None else Overlap(pipeline.overlap),
        name=f"{layers.name} (estimated costs)".strip() if layers.estimate else layers.name,
        time_unit=layers.time_unit,
        memory_unit=layers.memory_unit,
        estimate=layers.estimate,
    )


def with_buffers(pipeline: Pipeline, layers: Layers, release: Release | None) -> Pipeline:
    """Return a pipeline with what a release of torch keeps for sends and receives of a whole run.

    Two of every microbatch at each end of a stage: what is received and what is sent. Layers that
    do not state bytes leave it out.
    """
    size, unit = bytes_of(layers.size_unit), bytes_of(layers.memory_unit)
    if release is None or not release.keeps_buffers or size is None or unit is None:
        return pipeline
    return replace(pipeline, buffers=Fraction(2 * pipeline.microbatches * size, unit))


def static_of_devices(
    layers: Layers, partition: Sequence[range], pipeline: Pipeline
) -> tuple[int, ...]:
    """Static memory of every device: its layers' weights, shared ones once, reserve, buffers."""
    device_of = _device_of(partition, pipeline)
    static = [layers.reserve] * pipeline.devices
    for layer, home in device_of.items():
        static[home] += layers.static[layer]
    for tie in layers.ties:
        if device_of[tie.one] == device_of[tie.other]:
            static[device_of[tie.one]] -= tie.memory
    for home, part in zip(pipeline.homes, partition, strict=True):
        ends = (end for end in (part.start, part.stop) if 0 < end < len(layers.layers))
        passed = sum(layers.layers[end - 1].output for end in ends)
        static[home] += ceil(pipeline.buffers * passed)
    return tuple(static)


def untold(layers: Layers, partition: Sequence[range], pipeline: Pipeline) -> tuple[str, ...]:
    """What the numbers do not say: copies of shared weights, and where Megatron-LM refuses."""
    device_of = _device_of(partition, pipeline)
    copies = tuple(
        f"{layers.label(tie.one)} and {layers.label(tie.other)} share weights and lie on devices "
        f"{device_of[tie.one]} and {device_of[tie.other]}: each has a copy, counted in its static "
        "memory. The time to sum their gradients is in no schedule"
        for tie in layers.ties
        if device_of[tie.one] != device_of[tie.other]
    )
    if pipeline.placement == "vee":
        return copies
    chunks = pipeline.stages // pipeline.devices
    refused = refusal(pipeline.devices, chunks, pipeline.microbatches)
    return copies if refused is None else (*copies, f"this layout: {refused}")


def _device_of(partition: Sequence[range], pipeline: Pipeline) -> dict[int, int]:
    return {
        layer: home for part, home in zip(partition, pipeline.homes, strict=True) for layer in part
    }


def _costs(
    layers: Layers, part: range, pipeline: Pipeline, speed: Fraction, *, again: bool
) -> tuple[dict[str, Any], Backward]:
    """Sums of a stage's layers at its device's speed, as they recompute or not, its backward."""
    layers = layers.at(speed)
    fused = any(layers.layers[k].fused for k in part) or (again and pipeline.recompute_whole)
    amounts: dict[str, Any] = {
        kind: layers.sums[kind, again][part.stop] - layers.sums[kind, again][part.start]
        for kind in COSTS
    }
    return amounts, "fused" if fused else pipeline.backward
