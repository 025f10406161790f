"""A problem from layers and a partition: costs added up, links and static memory from the layers.

Every stage's amounts are the sums over its layers; a stage without layers costs nothing and passes
on what it gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pipesat.core.problem import Problem
from pipesat.core.stage import COSTS
from pipesat.files.problem_file import parse_problem
from pipesat.layers.layer import Layers
from pipesat.layers.megatron import refusal
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import check_partition
from pipesat.placement import documents


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
    document = problem_document(layers, partition, pipeline, recompute=recompute)
    return parse_problem(document, "problem of layers")


RECOMPUTE: Final = "recompute"
"""Name of the memory mode in which a stage recomputes."""


def problem_with_recompute(
    layers: Layers, partition: Sequence[range], pipeline: Pipeline
) -> Problem:
    """Return the problem of a partition with recomputing as a memory mode, one for each stage.

    Every stage that has a layer with a variant has the mode :data:`RECOMPUTE`, and all microbatches
    of a stage run alike.
    """
    document = problem_document(layers, partition, pipeline)
    for part, stage in zip(partition, document["stages"], strict=True):
        if any(layers.layers[k].recomputed is not None for k in part):
            again = _stage_entry(layers, part, pipeline, again=True)
            stage["modes"] = [{"name": RECOMPUTE, "backward": "either"} | again]
            document["mode_choice"] = "stage"
    return parse_problem(document, "problem of layers")


def problem_document(
    layers: Layers,
    partition: Sequence[range],
    pipeline: Pipeline,
    *,
    recompute: Sequence[bool] = (),
) -> dict[str, Any]:
    """Return the problem's document, whose name says so if its costs are an estimate."""
    check_partition(layers, partition, pipeline.homes)
    again = tuple(recompute) or (False,) * len(partition)
    static = static_of_devices(layers, partition, pipeline)
    estimate, name = {}, layers.name
    if layers.estimate:
        estimate = {"estimate": layers.estimate}
        name = f"{name} (estimated costs)".strip()
    return estimate | documents.problem_document(
        pipeline.geometry,
        pipeline.microbatches,
        devices=[
            documents.stated(memory=memory, static=taken)
            for memory, taken in zip(pipeline.capacities, static, strict=True)
        ],
        stages=[
            _stage_entry(layers, part, pipeline, again=flag)
            for part, flag in zip(partition, again, strict=True)
        ],
        comm=_comm(layers, partition, pipeline),
        overlap=None if pipeline.overlap is None else {"FB": [*pipeline.overlap]},
        name=name,
        time_unit=layers.time_unit,
        memory_unit=layers.memory_unit,
    )


def static_of_devices(
    layers: Layers, partition: Sequence[range], pipeline: Pipeline
) -> tuple[int, ...]:
    """Static memory of every device: its layers' weights, shared ones once, and the reserve."""
    device_of = _device_of(partition, pipeline)
    static = [layers.reserve] * pipeline.devices
    for layer, home in device_of.items():
        static[home] += layers.static[layer]
    for tie in layers.ties:
        if device_of[tie.one] == device_of[tie.other]:
            static[device_of[tie.one]] -= tie.memory
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


def _stage_entry(layers: Layers, part: range, pipeline: Pipeline, *, again: bool) -> dict[str, Any]:
    """Sums of a stage's layers, as they recompute or not, and its backward."""
    fused = any(layers.layers[k].fused for k in part) or (again and pipeline.recompute_whole)
    amounts = {
        kind: sum(layers.layers[k].amount(kind, recompute=again) for k in part) for kind in COSTS
    }
    return amounts | documents.backward_entry("fused" if fused else pipeline.backward)


def _comm(layers: Layers, partition: Sequence[range], pipeline: Pipeline) -> dict[str, Any]:
    """Delay of every hop: of the output of the last layer before it."""
    sizes = (layers.layers[part.stop - 1].output if part.stop else 0 for part in partition[:-1])
    return documents.comm_entry([*map(pipeline.delay, sizes)])
