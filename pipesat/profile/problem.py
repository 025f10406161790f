"""A problem from a profile: layers cut into stages, stages placed on devices, memory added up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pipesat.core.errors import BadInput
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
    Bandwidth,
    ModeName,
    Units,
    bandwidth_of,
    mode_entries,
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
    """Turn a profile into a problem document, which is valid if its values are in range.

    Raises
    ------
    BadInput
        If there are more stages than layers, or the profile has no modes that are asked for.
    """
    if options.modes and not profile.options.modes:
        raise BadInput("the profile has no memory modes: measure it with modes", where="modes")
    geometry = Geometry(options.placement, options.devices, options.chunks)
    parts = layers_of_stages(profile, geometry.parts, options.split)
    stages = tuple(costs_of_stage(profile, part, options.statistic) for part in parts)
    fused = tuple(_fused(stage, options) for stage in stages)
    static = tuple(
        static_memory(
            profile,
            [stages[number] for number in own],
            options.training,
            options.microbatches,
            [not fused[number] for number in own],
        )
        for own in geometry.stages_on
    )
    held = (stage.held_after_F + _input_held(stage, options) for stage in stages)
    units = Units.of((stage.F for stage in stages), held)
    bandwidth = bandwidth_of(profile, options.copy_bandwidth)
    entries = [
        _entry(
            stage, why, static[home].transient, bandwidth, options, units, last=stage is stages[-1]
        )
        for stage, why, home in zip(stages, fused, geometry.homes, strict=True)
    ]
    modes = [entry.get("modes", []) for entry in entries]
    copies = any("offload" in mode for own in modes for mode in own)
    capacities = one_each(options.memory, options.devices, "memory")
    document = problem_document(
        geometry,
        options.microbatches,
        devices=[
            stated(
                memory=None if capacity is None else capacity // units.bytes,
                static=units.amount(taken.total),
                copy_channels=options.copy_channels if copies else None,
            )
            for capacity, taken in zip(capacities, static, strict=True)
        ],
        stages=entries,
        comm=comm_entry(
            [
                units.time(
                    options.comm
                    if options.links is None
                    else delay_of(options.links, stage.output_bytes)
                )
                for stage in stages[:-1]
            ]
        ),
        name=options.name or profile.name,
        time_unit=units.time_unit,
        memory_unit=units.memory_unit,
    )
    remarks = [*_remarks(profile, stages, geometry.homes)]
    if profile.options.modes and options.modes != ():
        remarks += _lacking_modes(modes, offload="offload" in _wanted(options) and not bandwidth)
    return Derived(document, stages, static, fused, tuple(remarks), options.links is not None)


def _entry(
    stage: StageCosts,
    fused: str,
    transient: int,
    bandwidth: Bandwidth | None,
    options: ProblemOptions,
    units: Units,
    *,
    last: bool,
) -> Document:
    """The stage's entry in the document; ``transient`` is its device's."""
    own = _input_held(stage, options)
    # with buffers that are not kept, W needs the gradient of the output, too
    gradient = 0 if last or options.training.receive == "torch" else stage.output_bytes
    held = {
        "held_after_F": stage.held_after_F + own,
        "held_after_B": 0 if fused else stage.held_after_B + own + gradient,
    }
    kept = "split" if options.backward == "split" else "either"
    modes = mode_entries(stage, own, transient, bandwidth, _wanted(options), units)
    return (
        {kind: units.time(getattr(stage, kind)) for kind in ("F", "B", "W", "BW")}
        | {key: units.amount(size) for key, size in held.items()}
        | backward_entry("fused" if fused else kept)
        | stated(modes=modes or None)
    )


def _input_held(stage: StageCosts, options: ProblemOptions) -> int:
    """Bytes of the stage's input where it is held like activations; it stays in every mode."""
    return 0 if options.training.receive == "torch" or not stage.layers.start else stage.input_bytes


def _wanted(options: ProblemOptions) -> tuple[ModeName, ...]:
    return MODES if options.modes is None else options.modes


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


def _lacking_modes(modes: Sequence[Sequence[object]], *, offload: bool) -> Iterator[str]:
    """What a profile with modes did not lead to."""
    if offload:
        yield (
            "no offload mode: a bandwidth between device and host was neither measured (a CPU has "
            "none) nor given (copy bandwidth)"
        )
    without = [str(number) for number, entries in enumerate(modes) if not entries]
    if without and len(without) < len(modes):
        yield f"no memory modes of stages {', '.join(without)}: nothing in them is trained"


def _remarks(profile: Profile, stages: Sequence[StageCosts], homes: Sequence[int]) -> Iterator[str]:
    summed = sum(not stage.measured for stage in stages)
    if summed:
        yield (
            f"{summed} of {len(stages)} stages are sums of their layers; profile with "
            f"--stages {len(stages)} to measure them as a whole"
        )
    where = {
        layer: home for stage, home in zip(stages, homes, strict=True) for layer in stage.layers
    }
    for tied in profile.tied:
        devices = sorted({where[layer] for layer in tied.layers})
        if len(devices) > 1:
            yield (
                f"{tied.name} is shared by layers on devices {', '.join(map(str, devices))}: each "
                "has its own copy, counted in its static memory, and your training loop has to sum "
                "their gradients after a step; the time of that is in no schedule"
            )
