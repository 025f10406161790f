"""Why layers cannot be cut so, or why no split fits into memory: in words."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pipesat.core.errors import BadInput
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import check_counts, cut_masks, same_stage
from pipesat.layers.split_problem import SplitProblem


def check_cuttable(layers: Layers, pipeline: Pipeline) -> None:
    """Pass unless counts, flags or ties surely leave no way to cut the layers.

    Raises
    ------
    BadInput
        With the numbers, or the tied layers.
    """
    stages = pipeline.stages
    check_counts(layers, stages)
    if stages == 1 or stages != pipeline.devices:
        return
    places = same_stage(layers, cut_masks(layers, stages))[1:stages, 1:-1].any(axis=0).sum()
    if places < stages - 1:
        pairs = [
            f"{layers.label(tie.one)} and {layers.label(tie.other)}"
            for tie in layers.ties
            if not tie.copies
        ]
        raise BadInput(
            f"{stages} stages on {stages} devices need {stages - 1} cuts. {', '.join(pairs)} share "
            f"weights, so every layer between lies on the same device. That leaves {places} places."
            ' Take a V, which has the first and the last stage on one device, or "tie": "copies"',
            where="stages",
        )


def why_no_split_fits(problem: SplitProblem, lacking: int | None = None) -> str:
    """Say why no split fits into memory; empty if simple arithmetic cannot.

    ``lacking`` is what the best split lacks on a device, where that is known.
    """
    layers, pipeline = problem.layers, problem.pipeline
    unit = f" {layers.memory_unit}" if layers.memory_unit else ""
    for begin, end in _together(layers):
        needs = [line.at_end[end] - line.at_begin[begin] for line in problem.memory]
        over = [
            int(need) - problem.room[home] for need, home in zip(needs, pipeline.homes, strict=True)
        ]
        if min(over) > 0:
            stage = int(np.argmin(over))
            home, flying = pipeline.homes[stage], problem.in_flight[stage]
            name = layers.label(begin)
            if end - begin > 1:
                name += f" to {layers.label(end - 1)}, which stay together,"
            fit = "fits" if end - begin == 1 else "fit"
            microbatches = "1 microbatch" if flying == 1 else f"{flying} microbatches"
            return (
                f"{name} {fit} on no device: on stage {stage}, where least "
                f"is missing, it needs {needs[stage]}{unit} with {microbatches} in flight; "
                f"device {home} has room for {max(problem.room[home], 0)}{unit}: give devices more "
                "memory, or make microbatches smaller"
            )
    least = np.min([np.diff(line.at_end) for line in problem.memory], axis=0)
    whole, room = int(least.sum()), sum(max(0, room) for room in problem.room)
    if whole > room:
        return (
            f"all layers need at least {whole}{unit} together, all devices have room for "
            f"{room}{unit}"
        )
    if lacking is None:
        return ""
    return (
        f"no split of {len(layers)} layers into {pipeline.stages} stages fits: even the best lacks "
        f"{lacking}{unit} on a device"
    )


def _together(layers: Layers) -> Iterator[tuple[int, int]]:
    """Layers (begin, end) that no cut can part."""
    begins = [k for k, cut in enumerate(layers.may_cut) if cut]
    yield from pairwise(begins)
