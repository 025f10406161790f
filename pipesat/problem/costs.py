"""Costs of stages or layers, one value for all or one each, and shares of 1F1B's memory.

More layers than stages are cut into contiguous stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipesat.core.errors import require
from pipesat.problem.building import Split
from pipesat.problem.partition import even
from pipesat.problem.problem import Problem
from pipesat.problem.stage import COSTS


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of one layer or stage: times in time units, held amounts in memory units.

    ``BW`` is the fused backward's time, ``None`` where it is B + W.
    """

    F: int
    B: int
    W: int
    BW: int | None = None
    held_after_F: int = 0
    held_after_B: int = 0

    @property
    def whole(self) -> int:
        """Time of a forward and a whole backward: what balanced stages have equally much of."""
        return self.F + (self.B + self.W if self.BW is None else self.BW)


def one_each(value: Any, count: int, where: str, what: str = "device") -> list[Any]:
    """Return one value per device or stage, of one for all or a list."""
    if not isinstance(value, list | tuple):
        return [value] * count
    require(
        len(value) == count,
        f"{len(value)} values, expected {count}, one per {what}, or one for all",
        where=where,
    )
    return list(value)


def cut(costs: Sequence[Costs], stages: int, split: Split = "even") -> list[Costs]:
    """Join layers to contiguous stages: equally many each, or so that the longest is shortest."""
    if split == "even":
        parts = even(len(costs), stages)
    else:
        from pipesat.problem.split import balanced  # with numpy, which no help needs

        parts = balanced([layer.whole for layer in costs], stages)
    return [_joined(costs[part.start : part.stop]) for part in parts]


def _joined(layers: Sequence[Costs]) -> Costs:
    sums = {key: sum(getattr(layer, key) for layer in layers) for key in COSTS if key != "BW"}
    if any(layer.BW is not None for layer in layers):
        sums["BW"] = sum(layer.whole - layer.F for layer in layers)
    return Costs(**sums)


def activations_of_1f1b(problem: Problem) -> int:
    """Return the most activation memory that 1F1B holds on a device.

    It is ``max over d of min(p - d, m) * held_after_F``, as 1F1B has that many microbatches in
    flight on device d (Narayanan et al., SC 2021, section 2.2), and what a backward holds above
    that while it runs. The stages are those of the first route, joined evenly to one per device.
    Other routes count as replicas of it, with their microbatches.
    """
    require(
        not problem.has_lists,
        "a share of 1F1B's peak needs microbatches that are alike: give a capacity",
        where="memory",
    )
    stages = [problem.stages[stage] for stage in problem.routes[0].stages]
    m, p = sum(route.microbatches for route in problem.routes), len(problem.devices)
    held = [stage.held_after_F for stage in stages]
    more = [max(0, stage.held_in_backward - stage.held_after_F) for stage in stages]
    parts = enumerate(even(len(held), p))
    return max(min(p - d, m) * sum(held[k] for k in x) + max(more[k] for k in x) for d, x in parts)


def capacities_of(problem: Problem, share: Fraction) -> list[int]:
    """Return a capacity per device: a share of 1F1B's peak on top of its static memory."""
    peak = round(share * activations_of_1f1b(problem))
    return [device.static + peak for device in problem.devices]
