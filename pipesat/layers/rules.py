"""Where stages may begin and end: flags, ties and the number of layers; broken rules explained."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING

from pipesat.core.errors import BadInput, require
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.problem.partition import partition_of
from pipesat.problem.problem_checks import require_amount
from pipesat.problem.stage import COSTS

if TYPE_CHECKING:
    from pipesat.problem.split import Mask


def require_amounts(layers: Layers) -> None:
    """Pass if layers that were made, not read, have amounts of the range that a file has."""
    require_amount("reserve", layers.reserve)
    for number, layer in enumerate(layers.layers):
        here = f"layers[{number}]"
        require_amount(f"{here}.weights", layer.weights)
        require_amount(f"{here}.output", layer.output)
        for where, costs in ((here, layer.costs), (f"{here}.recompute", layer.recomputed)):
            for key in COSTS:
                if value := getattr(costs, key, None):
                    require_amount(f"{where}.{key}", value)


def check_partition(layers: Layers, partition: Sequence[range], homes: Sequence[int]) -> None:
    """Pass if the stages hold every layer once, in order, and keep flags and ties.

    Parameters
    ----------
    partition
        Layers of every stage; a stage may be empty, as in hand-written layouts.
    homes
        Device of every stage.
    """
    require(
        len(partition) == len(homes),
        f"{len(partition)} stages, expected {len(homes)}",
        where="stages",
    )
    require(
        [layer for part in partition for layer in part] == [*range(len(layers))],
        f"expected layers 0 to {len(layers) - 1} in order, each on one stage",
        where="stages",
        value=[*partition],
    )
    stage_of = [stage for stage, part in enumerate(partition) for _ in part]
    last = len(partition) - 1
    for number, (layer, stage) in enumerate(zip(layers.layers, stage_of, strict=True)):
        if layer.first or layer.last or layer.with_next:
            after = number + layer.with_next
            for broken, text in (
                (layer.first and stage, f"on the first stage, it is on stage {stage}"),
                (
                    layer.last and stage != last,
                    f"on the last stage ({last}), it is on stage {stage}",
                ),
                (
                    stage != stage_of[after],
                    f"with {layers.label(after)}, they are on stages {stage}, {stage_of[after]}",
                ),
            ):
                if broken:
                    raise BadInput(f"{layers.label(number)} must be {text}")
    for tie in layers.ties:
        one, other = homes[stage_of[tie.one]], homes[stage_of[tie.other]]
        if one != other and not tie.copies:
            raise BadInput(
                f"{layers.label(tie.one)} and {layers.label(tie.other)} share weights, but lie on "
                f"devices {one} and {other}. Put them on one device: a V has the first and the "
                'last stage together. Or say "tie": "copies" if each may have a copy whose '
                "gradients your training loop sums"
            )


def check_counts(layers: Layers, stages: int) -> None:
    """Pass if there are layers, and places to cut between them, for so many stages."""
    require(
        len(layers) >= stages,
        f"{stages} stages, but only {len(layers)} layers: expected at most one stage "
        "per layer, on fewer devices or with fewer chunks",
        where="stages",
    )
    first, last = max(layers.first_stage_until, 1), min(layers.last_stage_from, len(layers) - 1)
    places = [k for k in range(first, last + 1) if layers.may_cut[k]]
    require(
        len(places) >= stages - 1,
        f"{stages} stages need {stages - 1} cuts, but first, last and with_next leave "
        f"{len(places)} places for them",
        where="stages",
    )


def cut_masks(layers: Layers, stages: int) -> Mask:
    """Where cut c (the begin of stage c, the end of stage c - 1) may lie: bool (S + 1, L + 1).

    It knows flags, not ties: :func:`tie_masks`.
    """
    count = len(layers)
    import numpy as np  # slow to import, and help needs none of it

    masks = np.tile(np.array(layers.may_cut), (stages + 1, 1))
    masks[0] = np.arange(count + 1) == 0
    masks[stages] = np.arange(count + 1) == count
    if stages > 1:
        masks[1, : layers.first_stage_until] = False
        masks[stages - 1, layers.last_stage_from + 1 :] = False
    return masks


def same_stage(layers: Layers, masks: Mask) -> Mask:
    """Masks for one stage per device: tied layers on one device are on one stage."""
    masks = masks.copy()
    for low, high in layers.bound:
        masks[:, low + 1 : high + 1] = False
    return masks


def cuts_of(partition: Sequence[range]) -> tuple[int, ...]:
    """Begin of every stage, and the end of the last."""
    return (0, *(part.stop for part in partition))


def neighbours(
    layers: Layers, partition: Sequence[range], pipeline: Pipeline, *, far: bool = False
) -> Iterator[tuple[range, ...]]:
    """Partitions with one layer moved across one boundary: at most 2 (S - 1), all rules kept.

    Or, ``far``, across one boundary or each of several in a row: at most S (S - 1). Layers that
    must stay together move together. Memory is not looked at.
    """
    cuts = cuts_of(partition)
    runs = combinations(range(1, len(cuts)), 2) if far else pairwise(range(1, len(cuts)))
    for (begin, end), step in product(runs, (-1, 1)):
        places = [place + step for place in cuts[begin:end]]
        for number in range(len(places)):
            while 0 < places[number] < len(layers) and not layers.may_cut[places[number]]:
                places[number] += step
        moved = (*cuts[:begin], *places, *cuts[end:])
        if all(a < b for a, b in pairwise(moved)):
            with contextlib.suppress(BadInput):
                found = partition_of(moved)
                check_partition(layers, found, pipeline.homes)
                yield found
