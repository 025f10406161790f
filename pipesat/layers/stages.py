"""A problem from layers and a partition: costs added up, links and static memory from the layers.

Every stage's amounts are the sums over its layers; a stage without layers costs nothing and passes
on what it gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from pipesat.core.errors import BadInput
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
    name: str | None = None,
) -> Problem:
    """Return the problem of a partition.

    Parameters
    ----------
    recompute
        Which stages compute their activations again; empty: none.
    name
        The problem's name; the layers' own unless given.

    Raises
    ------
    BadInput
        If the partition loses or doubles layers, or breaks a flag or a tie; if a stage's amount is
        beyond what a problem can hold.
    """
    document = problem_document(layers, partition, pipeline, recompute=recompute, name=name)
    return parse_problem(document, "problem of layers")


RECOMPUTE: Final = "recompute"
"""Name of the memory mode in which a stage recomputes."""


def problem_with_recompute(
    layers: Layers, partition: Sequence[range], pipeline: Pipeline
) -> Problem:
    """Return the problem of a partition with recomputing as a memory mode, one for each stage.

    Every stage that has a layer with a variant has the mode :data:`RECOMPUTE`, and all microbatches
    of a stage run alike.

    Raises
    ------
    BadInput
        As :func:`problem_of_split`.
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
    name: str | None = None,
) -> dict[str, Any]:
    """Return the problem's document; see :func:`problem_of_split`."""
    check_partition(layers, partition, pipeline.homes)
    again = tuple(recompute) or (False,) * len(partition)
    if len(again) != len(partition):
        raise BadInput(
            f"{len(again)} values, expected {len(partition)}, one per stage", where="recompute"
        )
    static = static_of_devices(layers, partition, pipeline)
    estimate = {"estimate": layers.estimate} if layers.estimate else {}
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
        name=_name(layers, name),
        time_unit=layers.time_unit,
        memory_unit=layers.memory_unit,
        overlap=None if pipeline.overlap is None else {"FB": [*pipeline.overlap]},
    )


def _name(layers: Layers, name: str | None) -> str:
    """The problem's name, which says so if its costs are an estimate."""
    given = layers.name if name is None else name
    return f"{given} (estimated costs)".strip() if layers.estimate else given


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


def remarks(layers: Layers, partition: Sequence[range], pipeline: Pipeline) -> tuple[str, ...]:
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
    delays = []
    for before, _ in pairwise(partition):
        size = layers.layers[before.stop - 1].output if before.stop else 0
        delays.append(pipeline.delay(size))
    return documents.comm_entry(delays)
