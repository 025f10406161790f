"""Problem documents from costs: the same layers in the usual placements.

Stages are numbered along their route. With p devices, stage s lies

- ``one_stage_per_device``: on device s;
- ``looped(v)``: v stages per device, on device s mod p (interleaved);
- ``vee``: two per device, on device s, and from s = p on back on device 2p - 1 - s;
- ``bidirectional``: two replicas of p stages each; stages 0 to p - 1 on devices 0 to p - 1, stages
  p to 2p - 1 on devices p - 1 to 0, each replica a route with half of the microbatches.

Costs are given per stage, or per layer; more layers than stages are cut into contiguous stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from pipesat.core.errors import BadInput
from pipesat.core.problem import Backward
from pipesat.files.problem_file import FORMAT
from pipesat.placement.partition import balanced, even

Document: TypeAlias = dict[str, Any]
Split: TypeAlias = Literal["even", "balanced"]


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

    ``memory`` is a device's capacity (``None``: unlimited), ``static`` the part that is always
    taken, ``comm`` the delay of every link, ``overlap`` the factor of an overlapped pair's time.
    """

    devices: int
    microbatches: int
    comm: int = 0
    memory: int | Sequence[int | None] | None = None
    static: int | Sequence[int] = 0
    backward: Backward = "either"
    overlap: tuple[int, int] | None = None
    name: str = ""
    time_unit: str = ""
    memory_unit: str = ""


def one_stage_per_device(
    costs: Sequence[Costs], setting: Setting, split: Split = "even"
) -> Document:
    """One stage per device, in order.

    Raises
    ------
    BadInput
        If there are fewer layers than stages, or a list has not one value per device.
    """
    return looped(costs, setting, 1, split)


def looped(
    costs: Sequence[Costs], setting: Setting, chunks: int, split: Split = "even"
) -> Document:
    """``chunks`` stages per device, stage s on device s mod p.

    Raises
    ------
    BadInput
        As :func:`one_stage_per_device`, and if ``chunks`` is less than 1.
    """
    if chunks < 1:
        raise BadInput("expected at least 1", where="chunks", value=chunks)
    homes = [*range(_devices(setting))] * chunks
    return _document(cut(costs, len(homes), split), homes, setting)


def vee(costs: Sequence[Costs], setting: Setting, split: Split = "even") -> Document:
    """Two stages per device, through the devices and back.

    Raises
    ------
    BadInput
        As :func:`one_stage_per_device`.
    """
    there = [*range(_devices(setting))]
    homes = [*there, *reversed(there)]
    return _document(cut(costs, len(homes), split), homes, setting)


def bidirectional(costs: Sequence[Costs], setting: Setting, split: Split = "even") -> Document:
    """Two replicas of the stages, passed in opposite directions by half of the microbatches each.

    Every device holds two stages' weights: ``static`` has to say so.

    Raises
    ------
    BadInput
        As :func:`one_stage_per_device`, and if there is only one microbatch.
    """
    p, m = _devices(setting), setting.microbatches
    if m < 2:
        raise BadInput("expected at least 2, one per direction", where="microbatches", value=m)
    stages = cut(costs, p, split)
    homes = [*range(p), *reversed(range(p))]
    document = _document([*stages, *stages], homes, setting)
    del document["microbatches"]
    document["routes"] = [
        {"stages": [*range(p)], "microbatches": m - m // 2},
        {"stages": [*range(p, 2 * p)], "microbatches": m // 2},
    ]
    return document


PLACEMENTS: Final[dict[str, Callable[[Sequence[Costs], Setting, int, Split], Document]]] = {
    "chain": lambda costs, setting, _, split: one_stage_per_device(costs, setting, split),
    "loop": looped,
    "vee": lambda costs, setting, _, split: vee(costs, setting, split),
    "bidirectional": lambda costs, setting, _, split: bidirectional(costs, setting, split),
}
"""By the names that users type; called with costs, setting, chunks (for ``loop``) and split."""


def stage_count(placement: str, devices: int, chunks: int) -> int:
    """How many different stages a placement cuts the layers into."""
    return devices * {"loop": chunks, "vee": 2}.get(placement, 1)


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
    p, m = _devices(setting), setting.microbatches
    stages = cut(costs, p, split)
    return max(min(p - d, m) * stage.held_after_F for d, stage in enumerate(stages))


def _joined(layers: Sequence[Costs]) -> Costs:
    times = {kind: sum(getattr(x, kind) for x in layers) for kind in ("F", "B", "W")}
    bw = None
    if any(layer.BW is not None for layer in layers):
        bw = sum(layer.whole - layer.F for layer in layers)
    return Costs(
        **times,
        BW=bw,
        held_after_F=sum(layer.held_after_F for layer in layers),
        held_after_B=sum(layer.held_after_B for layer in layers),
    )


def _devices(setting: Setting) -> int:
    if setting.devices < 1:
        raise BadInput("expected at least 1", where="devices", value=setting.devices)
    return setting.devices


def _document(stages: Sequence[Costs], homes: Sequence[int], setting: Setting) -> Document:
    """Return a document with these stages on these devices, one route through all of them."""
    document: Document = {"format": FORMAT}
    for key in ("name", "time_unit", "memory_unit"):
        if text := getattr(setting, key):
            document[key] = text
    document["microbatches"] = setting.microbatches
    memory = per_device(setting.memory, setting.devices, "memory")
    static = per_device(setting.static, setting.devices, "static")
    document["devices"] = [
        ({} if capacity is None else {"memory": capacity}) | ({"static": taken} if taken else {})
        for capacity, taken in zip(memory, static, strict=True)
    ]
    document["stages"] = [
        _stage(costs, home, setting.backward) for costs, home in zip(stages, homes, strict=True)
    ]
    document["comm"] = {"default": setting.comm}
    if setting.overlap is not None:
        document["overlap"] = {"FB": list(setting.overlap)}
    return document


def _stage(costs: Costs, home: int, backward: Backward) -> Document:
    stage: Document = {"device": home, "F": costs.F, "B": costs.B, "W": costs.W}
    if costs.BW is not None:
        stage["BW"] = costs.BW
    if costs.held_after_F or costs.held_after_B:
        stage |= {"held_after_F": costs.held_after_F, "held_after_B": costs.held_after_B}
    return stage if backward == "either" else stage | {"backward": backward}


def per_device(
    value: int | Sequence[int] | Sequence[int | None] | None, devices: int, where: str
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
