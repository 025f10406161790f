"""Placements and numbers of stages that a plan may choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipesat.core.building import Backward
from pipesat.core.errors import BadInput
from pipesat.files.strict_json import MOST_STAGES
from pipesat.layers.devices import check_cuttable
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Delay, Pipeline, no_delay
from pipesat.placement.geometry import CHUNKS, OneRoutePlacement, PlacementChoice


@dataclass(frozen=True)
class Shapes:
    """What can be tried, and why the rest cannot."""

    pipelines: tuple[Pipeline, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def shape_name(pipeline: Pipeline) -> str:
    """``chain``, ``vee`` or ``loop of 3``."""
    if pipeline.placement != "loop":
        return pipeline.placement
    return f"loop of {pipeline.chunks}"


def shapes_to_try(
    layers: Layers,
    *,
    devices: int,
    microbatches: int,
    placement: PlacementChoice = "chain",
    chunks: Sequence[int] = (),
    memory: int | Sequence[int | None] | None = None,
    delay: Delay = no_delay,
    backward: Backward = "either",
) -> Shapes:
    """Return the pipelines of a placement, or of all three.

    Parameters
    ----------
    chunks
        Stages per device of a loop, as many shapes as values; 2 unless given.

    Raises
    ------
    BadInput
        If a number is wrong, chunks are given without a loop, or the layers can be cut for none of
        the shapes.
    """
    if chunks and placement not in ("loop", "any"):
        raise BadInput(
            "only a loop has a choice: placement loop or any", where="chunks", value=[*chunks]
        )
    names: tuple[OneRoutePlacement, ...] = (
        ("chain", "vee", "loop") if placement == "any" else (placement,)
    )
    found: list[Pipeline] = []
    left_out: list[tuple[str, str]] = []
    for name in names:
        for count in dict.fromkeys(chunks or (CHUNKS,)) if name == "loop" else (CHUNKS,):
            shape = Pipeline(
                devices=devices,
                microbatches=microbatches,
                placement=name,
                chunks=count,
                memory=memory,
                delay=delay,
                backward=backward,
            )
            _ = shape.capacities  # refuses a list of another length
            try:
                if shape.stages > MOST_STAGES:
                    expected = f"expected at most {MOST_STAGES}"
                    raise BadInput(expected, where="stages", value=shape.stages)
                check_cuttable(layers, shape)
            except BadInput as error:
                if len(names) == 1:
                    raise
                left_out.append((shape_name(shape), str(error)))
                continue
            if devices == 1 and name == "vee" and len(names) > 1:  # a loop of two is the same
                continue
            found.append(shape)
    if not found:
        raise BadInput("; ".join(f"{name}: {why}" for name, why in left_out))
    return Shapes(tuple(found), tuple(left_out))
