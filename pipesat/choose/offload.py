"""Splits whose stages may copy activations to the host instead of recomputing."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Final

from pipesat.core.problem import Mode, Offload, Problem
from pipesat.core.problem_checks import changed
from pipesat.layers.layer import Layers

OFFLOAD: Final = "offload"
WHY_NOT: Final = "no runtime copies beside its ops yet: docs/memory.md has what runs"


def with_offload(
    problem: Problem, layers: Layers, partition: Sequence[range], rate: Fraction
) -> Problem:
    """Return a split's problem whose stages may offload, at so much memory per time unit."""
    stages = list[dict[str, tuple[Mode, ...]]]()
    for part in partition:
        held = sum(layers.layers[k].amount("held_after_F") for k in part)
        stays = min(
            held, sum(layers.layers[k].amount("held_after_F", recompute=True) for k in part)
        )
        copy = ceil((held - stays) / rate)
        mode = Mode(OFFLOAD, offload=Offload(copy, copy, stays))
        stages.append({"modes": (mode,) if held > stays else ()})
    return changed(problem, stages)
