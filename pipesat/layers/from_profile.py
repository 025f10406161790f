"""Layers from a measured profile: one layer each, its weights as the memory that training takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipesat.core.grouping import firsts
from pipesat.layers.layer import Layer, Layers, Role
from pipesat.layers.layers_file import parse_layers
from pipesat.layers.profile.cut import StageCosts, Statistic, costs_of_stage
from pipesat.layers.profile.modes import Units
from pipesat.layers.profile.profile_file import Profile, read_profile
from pipesat.layers.profile.stages_of import SPLIT_LIMIT, fused_because
from pipesat.layers.profile.static import Training, static_memory
from pipesat.problem.costs import Costs
from pipesat.problem.ops import KINDS
from pipesat.problem.stage import COSTS


def layers_of_profile(
    profile: Profile,
    training: Training | None = None,
    *,
    statistic: Statistic = "median",
) -> Layers:
    """Turn a profile's layers into layers.

    ``weights`` is the memory of weights, gradients, optimizer and buffers. ``reserve`` is the
    training's and the largest transient of any op of any layer: every device keeps that much. A
    layer is ``fused`` where :func:`pipesat.layers.profile.stages_of.fused_because` has a reason.
    Shared parameters may have a copy on each device. Receive buffers are in nothing here: they
    depend on where stages begin (``problem from-profile`` counts them).
    """
    run = training or Training()
    parts = [
        costs_of_stage(profile, range(k, k + 1), statistic) for k in range(len(profile.layers))
    ]
    units = Units.of((part.F for part in parts), (part.held_after_F for part in parts))
    tied = firsts(
        (other, (min(shared.layers), shared.parameter))
        for shared in profile.tied
        for other in sorted(shared.layers)[1:]
    )

    def weights(part: StageCosts) -> int:
        taken = static_memory(profile, [part], replace(run, receive="torch"), 0, [False])
        whole = taken.weights + taken.gradients + taken.optimizer + taken.buffers
        return units.amount(whole)

    def layer(number: int, part: StageCosts, label: str) -> Layer:
        first, shared = tied.get(number, (None, None))
        shares = None if shared is None else replace(part, parameters=(shared,), buffers=0)
        return Layer(
            name=label,
            costs=_costs(part, units),
            weights=weights(part),
            output=part.output_bytes,
            role=_role(number, profile, part),
            fused=bool(fused_because(part, SPLIT_LIMIT)),
            tied_to="" if first is None else labels[first],
            tie="same_device" if first is None else "copies",
            tied_weights=0 if shares is None else min(weights(shares), weights(part)),
        )

    labels = _different([layer.name for layer in profile.layers])
    transient = max(getattr(part.transient, kind) for part in parts for kind in KINDS)
    return Layers(
        tuple(layer(k, part, labels[k]) for k, part in enumerate(parts)),
        name=profile.name,
        time_unit=units.time_unit,
        memory_unit=units.memory_unit,
        size_unit="B",
        reserve=units.amount(transient + run.reserve),
        batch=next(iter(profile.microbatch.input.shape), 1),
    )


def layers_of_document(document: Any, path: Path) -> Layers:
    """Return the layers of a file that has been read: of a profile, those that were measured."""
    kind = document.get("format") if isinstance(document, dict) else None
    if isinstance(kind, str) and kind.startswith("pipesat.profile/"):
        return layers_of_profile(read_profile(path))
    return parse_layers(document, str(path))


def _costs(part: StageCosts, units: Units) -> Costs:
    of = {"time": units.time, "held": units.amount}
    return Costs(**{key: of[factor](getattr(part, key)) for key, factor in COSTS.items()})


def _role(number: int, profile: Profile, part: StageCosts) -> Role:
    """The ends that are no block: an embedding is fed with integers, a head is of its own kind."""
    kinds = [layer.kind for layer in profile.layers]
    if kinds.count(kinds[number]) > 1 or len(kinds) < 3:
        return "block"
    if number == 0 and part.no_split:
        return "embedding"
    return "head" if number == len(kinds) - 1 else "block"


def _different(names: Iterable[str]) -> list[str]:
    """The same names, a number added where one stands twice."""
    found: list[str] = []
    for name in names:
        again, text = 1, name or "layer"
        while text in found:
            again += 1
            text = f"{name or 'layer'} {again}"
        found.append(text)
    return found
