"""A problem from a profile: layers cut into stages, stages placed on devices, memory added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pipesat.core.building import Backward
from pipesat.placement.documents import (
    Document,
    backward_entry,
    comm_entry,
    one_each,
    problem_document,
    stated,
)
from pipesat.placement.geometry import CHUNKS, Geometry, OneRoutePlacement
from pipesat.profile.cut import StageCosts, Statistic, costs_of_stage, layers_of_stages
from pipesat.profile.file import LinksModel, Profile, delay_of
from pipesat.profile.modes import (
    MODES,
    ModeName,
    Units,
    bandwidth_of,
    mode_entries,
    require_measured,
)
from pipesat.profile.static import StaticMemory, Training, static_memory

SPLIT_LIMIT: Final = 1.5
"""Above this ratio of B + W to BW a split backward is not offered."""
_LITTLE_EARLIER: Final = 0.95

MemoryPerDevice: TypeAlias = int | Sequence[int | None] | None
BackwardChoice: TypeAlias = Literal["auto", "split", "fused", "either"]


@dataclass(frozen=True, kw_only=True)
class ProblemOptions:
    """Which problem to make of a profile.

    Attributes
    ----------
    placement, chunks
        ``chain``, ``loop`` (``chunks`` stages per device) or ``vee``.
    memory
        Bytes per device, one number for all or one each; ``None``: unlimited.
    links
        Measured delays; else ``comm`` microseconds on every link.
    backward
        ``auto``: fused where splitting does not pay (see :func:`fused_because`), else either.
    modes, copy_bandwidth, copy_channels
        Memory modes of the stages; ``None``: those that the profile has. Bytes per second between a
        device and its host, ``None``: as measured. 1 channel for both directions, or one each.
    """

    devices: int
    microbatches: int
    placement: OneRoutePlacement = "chain"
    chunks: int = CHUNKS
    split: str = "even"
    memory: MemoryPerDevice = None
    training: Training = field(default_factory=Training)
    links: LinksModel | None = None
    comm: float = 0.0
    backward: BackwardChoice = "auto"
    split_limit: float = SPLIT_LIMIT
    statistic: Statistic = "median"
    name: str = ""
    modes: tuple[ModeName, ...] | None = None
    copy_bandwidth: int | None = None
    copy_channels: int = 2


@dataclass(frozen=True)
class Derived:
    """The document, and what it was made of.

    ``fused[s]`` says why stage s's backward is fused; empty if it may be split. ``measured_links``:
    delays are measured ones.
    """

    document: dict[str, Any]
    stages: tuple[StageCosts, ...]
    static: tuple[StaticMemory, ...]
    fused: tuple[str, ...]
    remarks: tuple[str, ...]
    measured_links: bool


def problem_of_profile(profile: Profile, options: ProblemOptions) -> Derived:
    """Turn a profile into a problem document, which is valid if its values are in range."""
    require_measured(profile, options.modes)
    geometry = Geometry(options.placement, options.devices, options.chunks)
    parts = layers_of_stages(profile, geometry.parts, options.split)
    stages = tuple(costs_of_stage(profile, part, options.statistic) for part in parts)
    fused = tuple(_fused(stage, options) for stage in stages)
    static = tuple(_static(profile, options, stages, fused, own) for own in geometry.stages_on)
    held = [
        _held(stage, options, fused=bool(fused[number]), last=number == len(stages) - 1)
        for number, stage in enumerate(stages)
    ]
    units = Units.of((stage.F for stage in stages), (after_F for after_F, _ in held))
    transients = [static[home].transient for home in geometry.homes]
    modes = _modes(profile, options, stages, held, transients, units)
    delays = [units.time(_delay(options, stage.output_bytes)) for stage in stages[:-1]]
    document = problem_document(
        geometry,
        options.microbatches,
        devices=_devices(options, static, units, copies=_offloads(modes)),
        stages=_stages(options, stages, held, fused, modes, units),
        comm=comm_entry(delays),
        name=options.name or profile.name,
        time_unit=units.time_unit,
        memory_unit=units.memory_unit,
    )
    remarks = (*_remarks(profile, stages, geometry.homes), *_said_of_modes(profile, options, modes))
    return Derived(document, stages, static, fused, remarks, options.links is not None)


def _modes(
    profile: Profile,
    options: ProblemOptions,
    stages: Sequence[StageCosts],
    held: Sequence[tuple[int, int]],
    transients: Sequence[int],
    units: Units,
) -> list[list[dict[str, Any]]]:
    """Entries of ``modes`` of every stage."""
    wanted = MODES if options.modes is None else options.modes
    bandwidth = bandwidth_of(profile, options.copy_bandwidth)
    return [
        mode_entries(stage, after_F, _beside(stage, options), transient, bandwidth, wanted, units)
        for stage, (after_F, _), transient in zip(stages, held, transients, strict=True)
    ]


def _offloads(modes: Sequence[Sequence[Mapping[str, Any]]]) -> bool:
    return any("offload" in entry for entries in modes for entry in entries)


def _devices(
    options: ProblemOptions, static: Sequence[StaticMemory], units: Units, *, copies: bool
) -> list[Document]:
    capacities = one_each(options.memory, options.devices, "memory")
    return [
        stated(
            memory=None if capacity is None else capacity // units.bytes,
            static=units.amount(taken.total),
            copy_channels=options.copy_channels if copies else None,
        )
        for capacity, taken in zip(capacities, static, strict=True)
    ]


def _stages(
    options: ProblemOptions,
    stages: Sequence[StageCosts],
    held: Sequence[tuple[int, int]],
    fused: Sequence[str],
    modes: Sequence[Sequence[object]],
    units: Units,
) -> list[Document]:
    return [
        {kind: units.time(getattr(stage, kind)) for kind in ("F", "B", "W", "BW")}
        | {"held_after_F": units.amount(after_F), "held_after_B": units.amount(after_B)}
        | backward_entry(_backward(reason, options))
        | ({"modes": entries} if entries else {})
        for stage, (after_F, after_B), reason, entries in zip(
            stages, held, fused, modes, strict=True
        )
    ]


def fused_because(stage: StageCosts, limit: float = SPLIT_LIMIT) -> str:
    """Say why splitting a stage's backward does not pay; empty if it may.

    It does not where torch cannot do it, where B + W is more than ``limit`` times BW, and where B
    takes (to 5 %) as long as BW: then nothing that waits for the input gradient gets it earlier.
    """
    if stage.no_split:
        return stage.no_split
    apart = stage.B + stage.W
    if apart > limit * stage.BW:
        ratio = f"{apart / stage.BW:.2f}" if stage.BW else "any number of"
        return f"B + W takes {ratio} times as long as BW, more than {limit:g}"
    if stage.BW and stage.B >= _LITTLE_EARLIER * stage.BW:
        return f"B takes {stage.B / stage.BW:.2f} of BW: the input gradient comes no earlier"
    return ""


def _fused(stage: StageCosts, options: ProblemOptions) -> str:
    if options.backward == "fused":
        return "as asked for"
    if options.backward == "auto":
        return fused_because(stage, options.split_limit)
    return stage.no_split


def _static(
    profile: Profile,
    options: ProblemOptions,
    stages: Sequence[StageCosts],
    fused: Sequence[str],
    mine: Sequence[int],
) -> StaticMemory:
    return static_memory(
        profile,
        [stages[number] for number in mine],
        options.training,
        options.microbatches,
        [not fused[number] for number in mine],
    )


def _held(
    stage: StageCosts, options: ProblemOptions, *, fused: bool, last: bool
) -> tuple[int, int]:
    """Bytes held after F and after B; with buffers that are not kept, the input is among them."""
    if options.training.receive == "torch":
        return stage.held_after_F, 0 if fused else stage.held_after_B
    own = _beside(stage, options)
    gradient = 0 if last else stage.output_bytes  # of the output: W needs it too
    return stage.held_after_F + own, 0 if fused else stage.held_after_B + own + gradient


def _beside(stage: StageCosts, options: ProblemOptions) -> int:
    """Bytes of the stage's input where it is held like activations; it stays in every mode."""
    return 0 if options.training.receive == "torch" or not stage.layers.start else stage.input_bytes


def _said_of_modes(
    profile: Profile, options: ProblemOptions, modes: Sequence[Sequence[object]]
) -> list[str]:
    """What a profile with modes did not lead to."""
    if not profile.options.modes or options.modes == ():
        return []
    wanted = MODES if options.modes is None else options.modes
    said = []
    if "offload" in wanted and bandwidth_of(profile, options.copy_bandwidth) is None:
        said.append(
            "no offload mode: a bandwidth between device and host was neither measured (a CPU has "
            "none) nor given (copy bandwidth)"
        )
    without = [str(number) for number, entries in enumerate(modes) if not entries]
    if without and len(without) < len(modes):
        said.append(f"no memory modes of stages {', '.join(without)}: nothing in them is trained")
    return said


def _delay(options: ProblemOptions, size: int) -> float:
    return options.comm if options.links is None else delay_of(options.links, size)


def _backward(reason: str, options: ProblemOptions) -> Backward:
    if reason:
        return "fused"
    return "split" if options.backward == "split" else "either"


def _remarks(profile: Profile, stages: Sequence[StageCosts], homes: Sequence[int]) -> list[str]:
    remarks = []
    summed = [number for number, stage in enumerate(stages) if not stage.measured]
    if summed:
        remarks.append(
            f"{len(summed)} of {len(stages)} stages are sums of their layers; profile with "
            f"--stages {len(stages)} to measure them as a whole"
        )
    where: Mapping[int, int] = {
        layer: home for stage, home in zip(stages, homes, strict=True) for layer in stage.layers
    }
    for tied in profile.tied:
        devices = sorted({where[layer] for layer in tied.layers})
        if len(devices) > 1:
            on = ", ".join(map(str, devices))
            remarks.append(
                f"{tied.name} is shared by layers on devices {on}: each has its own copy, counted "
                "in its static memory, and your training loop has to sum their gradients after a "
                "step; the time of that is in no schedule"
            )
    return remarks
