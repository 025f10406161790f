"""Cutting a model's layers into stages: contiguous slices, evenly. By cost: ``split.py``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pipesat.core.errors import require


def even(layers: int, stages: int) -> tuple[range, ...]:
    """Cut evenly; the first ``layers % stages`` stages have one layer more."""
    check_counts(layers, stages)
    size, more = divmod(layers, stages)
    return partition_of([stage * size + min(stage, more) for stage in range(stages + 1)])


def partition_of(cuts: Sequence[int]) -> tuple[range, ...]:
    """Stages between cuts."""
    return tuple(range(begin, end) for begin, end in pairwise(cuts))


def check_counts(layers: int, stages: int) -> None:
    """Pass if there is a layer for every stage, and a stage."""
    for name, value in (("layers", layers), ("stages", stages)):
        require(
            isinstance(value, int) and not isinstance(value, bool) and value >= 1,
            "expected a whole number of at least 1",
            where=name,
            value=value,
        )
    require(
        layers >= stages, f"expected at most {layers}, one per layer", where="stages", value=stages
    )
