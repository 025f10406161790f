"""Problem documents: the one place that puts them together, and what stands in them.

Costs are given per stage, or per layer; more layers than stages are cut into contiguous stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

from pipesat.core.building import Split
from pipesat.core.errors import BadInput
from pipesat.core.problem import FORMAT, Problem
from pipesat.core.stage import COSTS
from pipesat.placement.geometry import Geometry, shared
from pipesat.placement.partition import even

Document: TypeAlias = dict[str, Any]
TEXTS: Final = ("name", "time_unit", "memory_unit")


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


def problem_document(
    geometry: Geometry,
    microbatches: Any,
    *,
    devices: Sequence[Document],
    stages: Sequence[Document],
    comm: Document,
    **more: Any,
) -> Document:
    """Return a problem's document.

    Parameters
    ----------
    microbatches
        Of all routes together, or lists: see :func:`pipesat.placement.geometry.shared`.
    stages
        Their entries without ``device``: the geometry says which.
    more
        Further keys; ``None`` and empty texts are left out.
    """
    said = {key: value for key, value in more.items() if value not in (None, "")}
    document: Document = {"format": FORMAT}
    document |= {key: said.pop(key) for key in TEXTS if key in said}
    own = shared(microbatches, len(geometry.routes))
    if len(own) == 1:
        document["microbatches"] = own[0]
    document["devices"] = [*devices]
    document["stages"] = [
        {"device": home} | stage for home, stage in zip(geometry.homes, stages, strict=True)
    ]
    document |= {"comm": comm} | said
    if len(own) > 1:
        document["routes"] = [
            {"stages": [*route], "microbatches": share}
            for route, share in zip(geometry.routes, own, strict=True)
        ]
    return document


def stated(**keys: Any) -> Document:
    """Return an entry of a document without what is ``None``."""
    return {key: value for key, value in keys.items() if value is not None}


def backward_entry(backward: str) -> Document:
    """Return what a stage's entry says of its backward, if it has no choice."""
    return stated(backward=None if backward == "either" else backward)


def comm_entry(delays: Sequence[int]) -> Document:
    """Return ``comm`` of one route's hops: a default where all are equal, else an edge each."""
    if len(set(delays)) <= 1:
        return {"default": delays[0] if delays else 0}
    edges = [{"src": s, "dst": s + 1, "F": delay, "B": delay} for s, delay in enumerate(delays)]
    return {"default": max(delays), "edges": edges}


def one_each(value: Any, count: int, where: str, what: str = "device") -> list[Any]:
    """Return one value per device or stage, of one for all or a list."""
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise BadInput(
            f"{len(value)} values, expected {count}, one per {what}, or one for all", where=where
        )
    return list(value)


def cut(costs: Sequence[Costs], stages: int, split: Split = "even") -> list[Costs]:
    """Join layers to contiguous stages: equally many each, or so that the longest is shortest."""
    if split == "even":
        parts = even(len(costs), stages)
    else:
        from pipesat.placement.split import balanced  # with numpy, which no help needs

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
    flight on device d (Narayanan et al., SC 2021, section 2.2). The stages are those of the first
    route, joined evenly to one per device. Other routes count as replicas of it, with their
    microbatches.
    """
    if problem.has_lists:
        raise BadInput(
            "a share of 1F1B's peak needs microbatches that are alike: give a capacity",
            where="memory",
        )
    held = [problem.stages[stage].held_after_F for stage in problem.routes[0].stages]
    m, p = sum(route.microbatches for route in problem.routes), len(problem.devices)
    sums = [sum(held[part.start : part.stop]) for part in even(len(held), p)]
    return max(min(p - d, m) * amount for d, amount in enumerate(sums))


def capacities_of(problem: Problem, share: Fraction) -> list[int]:
    """Return a capacity per device: a share of 1F1B's peak on top of its static memory."""
    peak = round(share * activations_of_1f1b(problem))
    return [device.static + peak for device in problem.devices]
