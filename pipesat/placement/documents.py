"""Problem documents: the one place that puts them together, and those of costs in a placement.

Costs are given per stage, or per layer; more layers than stages are cut into contiguous stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from pipesat.core.building import Backward
from pipesat.core.errors import BadInput
from pipesat.core.ops import Kind
from pipesat.core.problem import Problem
from pipesat.core.stage import COSTS
from pipesat.files.strict_json import FORMAT
from pipesat.placement.geometry import CHUNKS, Geometry, Placement
from pipesat.placement.partition import balanced, even

TimeOrFactor: TypeAlias = int | tuple[int, int]


def pair_entries(
    homes: Sequence[int], times: Mapping[tuple[Kind, Kind], TimeOrFactor]
) -> Iterator[dict[str, Any]]:
    """Yield an entry for every two stages of one device, a stage with itself included.

    ``homes`` has the device of every stage, ``times`` the time of two kinds together, or a factor.
    """
    for (kind, other_kind), said in times.items():
        time = {"time": said} if isinstance(said, int) else {"factor": [*said]}
        for stage, other in product(range(len(homes)), repeat=2):
            if homes[stage] == homes[other] and (kind != other_kind or stage <= other):
                yield {"ops": [f"{stage}{kind}", f"{other}{other_kind}"]} | time


Document: TypeAlias = dict[str, Any]
Split: TypeAlias = Literal["even", "balanced"]
CapacityChoice: TypeAlias = int | Sequence[int | None] | Fraction | None
"""One capacity for all devices, one each, a share of 1F1B's peak on top of static; or unlimited."""
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


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a problem has besides its stages; one value of memory or static stands for every device.

    ``memory`` is a device's capacity (``None``: unlimited; a fraction: that share of 1F1B's peak on
    top of ``static``), ``static`` the part that is always taken, ``comm`` the delay of every link,
    ``overlap`` the factor of an overlapped pair's time, ``pair_times`` the times, or factors, of
    pairs by their kinds, of any two stages of a device.
    """

    devices: int
    microbatches: int
    comm: int = 0
    memory: CapacityChoice = None
    static: int | Sequence[int] = 0
    backward: Backward = "either"
    overlap: tuple[int, int] | None = None
    pair_times: Mapping[tuple[Kind, Kind], TimeOrFactor] = field(default_factory=dict)
    name: str = ""
    time_unit: str = ""
    memory_unit: str = ""


def placed(
    costs: Sequence[Costs],
    setting: Setting,
    placement: Placement = "chain",
    chunks: int = CHUNKS,
    split: Split = "even",
) -> Document:
    """Layers or stages in a placement; ``chunks`` is for a loop.

    In a bidirectional one every device holds two stages' weights: ``static`` has to say so.

    Raises
    ------
    BadInput
        If there are fewer layers than stages, a list has not one value per device, a number is
        less than 1, or two routes have only one microbatch.
    """
    for where, value in (("devices", setting.devices), ("chunks", chunks)):
        if value < 1:
            raise BadInput("expected at least 1", where=where, value=value)
    geometry, m = Geometry(placement, setting.devices, chunks), setting.microbatches
    if len(geometry.routes) > m:
        raise BadInput("expected at least 2, one per direction", where="microbatches", value=m)
    stages = [_stage(stage, setting.backward) for stage in cut(costs, geometry.parts, split)]
    static = per_device(setting.static, setting.devices, "static")
    memory = setting.memory
    if isinstance(memory, Fraction):
        peak = round(memory * peak_of_1f1b(costs, setting, split))
        memory = [(taken or 0) + peak for taken in static]
    capacities = per_device(memory, setting.devices, "memory")
    return problem_document(
        geometry,
        m,
        devices=[device_entry(m, s or None) for m, s in zip(capacities, static, strict=True)],
        stages=stages * len(geometry.routes),
        comm={"default": setting.comm},
        texts={key: getattr(setting, key) for key in TEXTS},
        overlap=setting.overlap,
        pair_times=setting.pair_times,
    )


def problem_document(
    geometry: Geometry,
    microbatches: int,
    *,
    devices: Sequence[Document],
    stages: Sequence[Document],
    comm: Document,
    texts: Mapping[str, str],
    overlap: tuple[int, int] | None = None,
    pair_times: Mapping[tuple[Kind, Kind], TimeOrFactor] = MappingProxyType({}),
    ranks: Sequence[int] = (),
) -> Document:
    """Return a problem's document: the one place where it is put together.

    Parameters
    ----------
    microbatches
        Of all routes together.
    stages
        Their entries without ``device``: the geometry says which.
    texts
        Values of :data:`TEXTS`; empty ones are left out.
    ranks
        Device of every rank; as they are numbered unless given.
    """
    document: Document = {"format": FORMAT}
    document |= {key: texts[key] for key in TEXTS if texts.get(key)}
    if len(geometry.routes) == 1:
        document["microbatches"] = microbatches
    document["devices"] = [*devices]
    document["stages"] = [
        {"device": ranks[home] if ranks else home} | stage
        for home, stage in zip(geometry.homes, stages, strict=True)
    ]
    document["comm"] = comm
    if overlap is not None or pair_times:
        homes = [stage["device"] for stage in document["stages"]]
        document["overlap"] = {} if overlap is None else {"FB": [*overlap]}
        if pair_times:
            document["overlap"]["pairs"] = [*pair_entries(homes, pair_times)]
    if len(geometry.routes) > 1:
        shares = geometry.microbatches(microbatches)
        document["routes"] = [
            {"stages": [*stages], "microbatches": share}
            for stages, share in zip(geometry.routes, shares, strict=True)
        ]
    return document


def device_entry(memory: int | None, static: int | None) -> Document:
    """Return an entry of ``devices``; what is ``None`` is left out."""
    given = {"memory": memory, "static": static}
    return {key: value for key, value in given.items() if value is not None}


def backward_entry(backward: Backward) -> Document:
    """Return what a stage's entry says of its backward, if it has no choice."""
    return {} if backward == "either" else {"backward": backward}


def comm_entry(delays: Sequence[int]) -> Document:
    """Return ``comm`` of one route's hops: a default where all are equal, else an edge each."""
    if len(set(delays)) <= 1:
        return {"default": delays[0] if delays else 0}
    edges = [{"src": s, "dst": s + 1, "F": delay, "B": delay} for s, delay in enumerate(delays)]
    return {"default": max(delays), "edges": edges}


def cut(costs: Sequence[Costs], stages: int, split: Split = "even") -> list[Costs]:
    """Join layers to contiguous stages: equally many each, or so that the longest is shortest.

    Raises
    ------
    BadInput
        If there are fewer layers than stages.
    """
    if split == "even":
        parts = even(len(costs), stages)
    else:
        parts = balanced([layer.whole for layer in costs], stages)
    return [_joined([costs[layer] for layer in part]) for part in parts]


def peak_of_1f1b(costs: Sequence[Costs], setting: Setting, split: Split = "even") -> int:
    """Most activation memory that 1F1B holds on a device, the layers cut into one stage per device.

    It is ``max over d of min(p - d, m) * held_after_F``, as 1F1B has that many microbatches in
    flight on device d (Narayanan et al., SC 2021, section 2.2).

    Raises
    ------
    BadInput
        If there are fewer layers than devices.
    """
    stages = cut(costs, setting.devices, split)
    return _in_flight([stage.held_after_F for stage in stages], setting.microbatches)


def _in_flight(held: Sequence[int], microbatches: int) -> int:
    return max(min(len(held) - d, microbatches) * amount for d, amount in enumerate(held))


def activations_of_1f1b(problem: Problem) -> int:
    """Return :func:`peak_of_1f1b` of a problem's layers: its first route's stages.

    Other routes count as replicas of it, with their microbatches.

    Raises
    ------
    BadInput
        If there are fewer stages than devices, or microbatches differ: what 1F1B holds depends on
        which of them it holds at once.
    """
    if problem.has_lists:
        raise BadInput(
            "a share of 1F1B's peak needs microbatches that are alike: give a capacity",
            where="memory",
        )
    held = [problem.stages[stage].held_after_F for stage in problem.routes[0].stages]
    parts = even(len(held), len(problem.devices))
    microbatches = sum(route.microbatches for route in problem.routes)
    return _in_flight([sum(held[part.start : part.stop]) for part in parts], microbatches)


def capacities_of(problem: Problem, memory: CapacityChoice) -> list[int | None]:
    """Return capacities, one per device; a share of 1F1B's peak comes on top of static memory.

    Raises
    ------
    BadInput
        As :func:`activations_of_1f1b` and :func:`per_device`.
    """
    if isinstance(memory, Fraction):
        peak = round(memory * activations_of_1f1b(problem))
        return [device.static + peak for device in problem.devices]
    return per_device(memory, len(problem.devices), "memory")


def _joined(layers: Sequence[Costs]) -> Costs:
    sums = {key: sum(getattr(layer, key) for layer in layers) for key in COSTS if key != "BW"}
    if any(layer.BW is not None for layer in layers):
        sums["BW"] = sum(layer.whole - layer.F for layer in layers)
    return Costs(**sums)


def _stage(costs: Costs, backward: Backward) -> Document:
    stage = {key: getattr(costs, key) for key in COSTS}
    if costs.BW is None:
        del stage["BW"]
    if not (costs.held_after_F or costs.held_after_B):
        del stage["held_after_F"], stage["held_after_B"]
    return stage | backward_entry(backward)


def per_device(
    value: int | Sequence[int | None] | None, devices: int, where: str
) -> list[int | None]:
    """Return one value per device.

    Raises
    ------
    BadInput
        If a list has another length.
    """
    if value is None or isinstance(value, int):
        return [value] * devices
    if len(value) != devices:
        raise BadInput(
            f"{len(value)} values, expected {devices}, one per device, or one for all", where=where
        )
    return list(value)
