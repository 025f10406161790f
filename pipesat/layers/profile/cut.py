"""Cutting a profile's layers into stages, and the costs of each: measured, or summed up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from pipesat.core.errors import require
from pipesat.layers.profile.costs_file import (
    MeasuredCostsModel,
    OffloadModel,
    ParametersModel,
    Samples,
    TransientModel,
)
from pipesat.layers.profile.profile_file import Profile
from pipesat.problem.ops import KINDS
from pipesat.problem.partition import even

Statistic: TypeAlias = Literal["low", "median", "high"]


_SUMMED: Final = ("F", "B", "W", "BW", "held_after_F", "held_after_B", "buffers")


@dataclass(frozen=True)
class StageRecompute:
    """A slice that runs again in its backward: microseconds and bytes."""

    BW: float
    held_after_F: int
    peak_in_backward: int
    gradients: int | None = None


@dataclass(frozen=True)
class StageCosts:
    """Costs of a slice of layers: microseconds and bytes.

    Attributes
    ----------
    measured
        Whether the slice was measured as a whole; else times and memory are sums over its layers.
    no_split
        Why the backward cannot be split; empty if it can. Then ``B`` is 0 and ``W`` equals ``BW``,
        which is what torch does on the first stage.
    transient
        Most memory that an op takes beyond what is held during it.
    recompute, offload
        The slice in memory modes, where they were measured.
    """

    layers: range
    measured: bool
    F: float
    B: float
    W: float
    BW: float
    no_split: str
    held_after_F: int
    held_after_B: int
    transient: TransientModel
    input_bytes: int
    output_bytes: int
    parameters: tuple[ParametersModel, ...]
    buffers: int
    recompute: StageRecompute | None = None
    offload: OffloadModel | None = None


def layers_of_stages(profile: Profile, stages: int, split: str = "even") -> tuple[range, ...]:
    """Cut the layers evenly, or so that the longest stage (F + whole backward) is shortest."""
    from pipesat.problem.split import balanced  # numpy is slow to import

    count = len(profile.layers)
    require(
        stages <= count,
        f"the profile has {count} layers, expected at most as many",
        where="stages",
        value=stages,
    )
    if split == "even":
        return even(count, stages)
    costs = map(profile.costs_of, range(count))
    return balanced([round(1000 * (c.F.median + c.BW.median)) for c in costs], stages)


def costs_of_stage(profile: Profile, layers: range, statistic: Statistic = "median") -> StageCosts:
    """Return the costs of a slice: as measured, else the sums over its layers.

    ``statistic`` says which time of an op counts: the median, or the 10th or 90th percentile.
    """
    for stage in profile.stages:
        if tuple(stage.layers) == (layers.start, layers.stop):
            return _of(stage.costs, layers, statistic, measured=True)
    parts = [_of(profile.costs_of(layer), layers, statistic, measured=False) for layer in layers]
    return parts[0] if len(parts) == 1 else _summed(parts, _shared(profile, layers))


def _of(
    costs: MeasuredCostsModel, layers: range, statistic: Statistic, *, measured: bool
) -> StageCosts:
    fused = costs.B is None or costs.W is None

    def time(samples: Samples | None) -> float:
        return 0.0 if samples is None else float(getattr(samples, statistic))

    return StageCosts(
        layers=layers,
        measured=measured or len(layers) == 1,
        F=time(costs.F),
        B=0.0 if fused else time(costs.B),
        W=time(costs.BW if fused else costs.W),
        BW=time(costs.BW),
        no_split=costs.no_split or ("B and W were not measured" if fused else ""),
        held_after_F=costs.held_after_F,
        held_after_B=costs.held_after_B,
        transient=costs.transient,
        input_bytes=costs.input.bytes,
        output_bytes=costs.output.bytes,
        parameters=tuple(costs.parameters),
        buffers=costs.buffers,
        recompute=None
        if costs.recompute is None
        else StageRecompute(
            time(costs.recompute.BW),
            costs.recompute.held_after_F,
            costs.recompute.peak_in_backward,
            costs.recompute.gradients,
        ),
        offload=costs.offload,
    )


def _shared(profile: Profile, layers: range) -> str:
    """Say why layers that share a parameter are not split together unless that was measured.

    Torch 2.13 raises where a block of several layers runs twice (findings/).
    """
    for tied in profile.tied:
        here = [layer for layer in tied.layers if layer in layers]
        if len(here) > 1:
            return (
                f"layers {here[0]} and {here[1]} share {tied.name}, and torch may fail to split "
                "such a stage unless it was measured as a whole (profile --stages)"
            )
    return ""


def _summed(parts: list[StageCosts], no_split: str) -> StageCosts:
    """Add layers up; the stage's largest transient is that of one of its layers.

    A stage whose first layer needs no input gradient has nothing to split either; one that cannot
    be split for another reason cannot be in a larger stage.
    """
    sums = {name: sum(getattr(part, name) for part in parts) for name in _SUMMED}
    no_split = next((part.no_split for part in parts if part.no_split), no_split)
    if no_split:
        sums |= {"B": 0.0, "W": sums["BW"]}
    largest = {kind: max(getattr(part.transient, kind) for part in parts) for kind in KINDS}
    return replace(
        parts[0],
        measured=False,
        no_split=no_split,
        transient=TransientModel(**largest),
        output_bytes=parts[-1].output_bytes,
        parameters=tuple(parameter for part in parts for parameter in part.parameters),
        recompute=_recomputed(parts),
        offload=_offloaded(parts),
        **sums,
    )


def _recomputed(parts: list[StageCosts]) -> StageRecompute | None:
    """Together they keep what the last one does; their backward holds what all of them saved."""
    layers = [part.recompute for part in parts if part.recompute is not None]
    last = parts[-1].recompute
    if last is None or len(layers) < len(parts):
        return None
    saved = sum(part.held_after_F for part in parts)
    return StageRecompute(
        sum(layer.BW for layer in layers),
        last.held_after_F,
        saved + max(part.transient.BW for part in parts),
        sum(layer.gradients or 0 for layer in layers) or None,
    )


def _offloaded(parts: list[StageCosts]) -> OffloadModel | None:
    """Together they leave there what the last one does."""
    last = parts[-1].offload
    if last is None or any(part.offload is None for part in parts):
        return None
    saved = sum(part.held_after_F for part in parts)
    return OffloadModel(bytes=max(saved - last.held, 0), held=last.held)
