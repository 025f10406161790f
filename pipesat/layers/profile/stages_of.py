"""A problem from a profile: layers cut into stages, stages placed on devices, memory added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from pipesat.core.errors import require, said_of
from pipesat.core.settings import OneRoutePlacement
from pipesat.layers.profile.cut import StageCosts, Statistic, costs_of_stage, layers_of_stages
from pipesat.layers.profile.modes import (
    USUAL,
    ModeName,
    Units,
    bandwidth_of,
    modes_between,
    modes_of,
)
from pipesat.layers.profile.profile_file import LinksModel, Profile, delay_of
from pipesat.layers.profile.static import StaticMemory, Training, static_memory
from pipesat.problem.building import Backward
from pipesat.problem.costs import one_each
from pipesat.problem.geometry import CHUNKS, Geometry
from pipesat.problem.problem import Device, Link, Problem, Route, Stage, links_between
from pipesat.problem.problem_checks import valid

SPLIT_LIMIT: Final = 1.5
"""Above this ratio of B + W to BW a split backward is not offered."""
_LITTLE_EARLIER: Final = 0.95

MemoryPerDevice: TypeAlias = int | Sequence[int | None] | None
BackwardChoice: TypeAlias = Literal["auto", "split", "fused", "either"]


@dataclass(frozen=True)
class Derived:
    """The problem, and what it was made of.

    ``fused[s]`` says why stage s's backward is fused; empty if it may be split. ``measured_links``:
    delays are measured ones.
    """

    problem: Problem
    stages: tuple[StageCosts, ...]
    static: tuple[StaticMemory, ...]
    fused: tuple[str, ...]
    remarks: tuple[str, ...]
    measured_links: bool


def problem_of_profile(
    profile: Profile,
    *,
    devices: int,
    microbatches: int,
    placement: OneRoutePlacement = "chain",
    chunks: int = CHUNKS,
    split: str = "even",
    memory: MemoryPerDevice = None,
    training: Training | None = None,
    links: LinksModel | None = None,
    comm: float = 0.0,
    backward: BackwardChoice = "auto",
    split_limit: float = SPLIT_LIMIT,
    statistic: Statistic = "median",
    name: str = "",
    modes: tuple[ModeName, ...] | None = None,
    copy_bandwidth: int | None = None,
    copy_channels: int = 2,
) -> Derived:
    """Turn a profile into a problem.

    Parameters
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
        Memory modes of the stages; ``None``: those of :data:`USUAL` that the profile has. What
        W holds in those that recompute before it is static memory. Bytes per second between a
        device and its host, ``None``: as measured. 1 channel for both directions, or one each.
    """
    require(
        not modes or profile.options.modes,
        "the profile has no memory modes: measure it with modes",
        where="modes",
    )
    run = training or Training()
    geometry = Geometry(placement, devices, chunks)
    parts = layers_of_stages(profile, geometry.parts, split)
    stages = tuple(costs_of_stage(profile, part, statistic) for part in parts)
    because: dict[BackwardChoice, Callable[[StageCosts], str]] = {
        "auto": lambda stage: fused_because(stage, split_limit),
        "fused": lambda _: "as asked for",
    }
    fused = tuple(map(because.get(backward, lambda stage: stage.no_split), stages))
    static = [
        static_memory(
            profile,
            [stages[number] for number in own],
            run,
            microbatches,
            [not fused[number] for number in own],
        )
        for own in geometry.stages_on
    ]
    # inputs that are held like activations, in every mode; W then needs output gradients, too
    kept = not run.keeps_buffers
    inputs = [stage.input_bytes if kept and stage.layers.start else 0 for stage in stages]
    gradients = [*(kept * stage.output_bytes for stage in stages[:-1]), 0]
    held = (stage.held_after_F + own for stage, own in zip(stages, inputs, strict=True))
    units = Units.of((stage.F for stage in stages), held)
    bandwidth, wanted = bandwidth_of(profile, copy_bandwidth), USUAL if modes is None else modes
    between = []
    for stage, own, gradient, home in zip(stages, inputs, gradients, geometry.homes, strict=True):
        between.append(modes_between(stage, own, gradient, wanted, units))
        most = max([static[home].transient, *(within for _, within in between[-1])])
        static[home] = replace(static[home], transient=most)
    found = [
        (
            *modes_of(stage, own, static[home].transient, bandwidth, wanted, units),
            *(mode for mode, _ in more),
        )
        for stage, own, home, more in zip(stages, inputs, geometry.homes, between, strict=True)
    ]
    left = [
        0 if why else stage.held_after_B + own + gradient
        for stage, why, own, gradient in zip(stages, fused, inputs, gradients, strict=True)
    ]
    whole: Backward = "split" if backward == "split" else "either"
    copies = any(mode.offload for own in found for mode in own)
    capacities = one_each(memory, devices, "memory")

    def link(src: int, _: int) -> Link:
        size = stages[src].output_bytes
        delay = units.time(comm if links is None else delay_of(links, size))
        return Link(delay, delay)

    problem = Problem(
        devices=tuple(
            Device(
                memory=None if capacity is None else capacity // units.bytes,
                static=units.amount(taken.total),
                copy_channels=copy_channels if copies else 2,
            )
            for capacity, taken in zip(capacities, static, strict=True)
        ),
        stages=tuple(
            Stage(
                geometry.homes[number],
                F=units.time(stage.F),
                B=units.time(stage.B),
                W=units.time(stage.W),
                BW=units.time(stage.BW),
                held_after_F=units.amount(stage.held_after_F + inputs[number]),
                held_after_B=units.amount(left[number]),
                backward="fused" if fused[number] else whole,
                modes=found[number],
            )
            for number, stage in enumerate(stages)
        ),
        routes=(Route((*geometry.routes[0],), microbatches),),
        links=links_between(geometry.homes, geometry.routes, link),
        name=name or profile.name,
        time_unit=units.time_unit,
        memory_unit=units.memory_unit,
    )
    remarks = [*_remarks(profile, stages, geometry.homes)]
    if profile.options.modes and modes != ():
        remarks += _lacking_modes(found, offload="offload" in wanted and not bandwidth)
    with said_of("problem of the profile"):
        problem = valid(problem)
    return Derived(problem, stages, tuple(static), fused, tuple(remarks), links is not None)


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


def _lacking_modes(modes: Sequence[Sequence[object]], *, offload: bool) -> Iterator[str]:
    """What a profile with modes did not lead to."""
    if offload:
        yield (
            "no offload mode: a bandwidth between device and host was neither measured (a CPU has "
            "none) nor given (copy bandwidth)"
        )
    without = [str(number) for number, entries in enumerate(modes) if not entries]
    if without and len(without) < len(modes):
        yield (
            f"no memory modes of stages {', '.join(without)}: nothing in them is trained, or their "
            "backward cannot be split"
        )


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
