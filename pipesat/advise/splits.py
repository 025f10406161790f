"""Shapes to try, a runtime's rules about them, and the splits that frameworks make of layers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate
from operator import add

import numpy as np

from pipesat.core.errors import BadInput, NotApplicable, require, said_of
from pipesat.core.settings import OneRoutePlacement
from pipesat.core.strict_json import MOST_STAGES
from pipesat.layers.devices import check_cuttable, smallest_largest
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import check_partition, cut_masks, cuts_of, same_stage
from pipesat.problem.building import Backward
from pipesat.problem.geometry import CHUNKS, PlacementChoice
from pipesat.problem.partition import even, partition_of
from pipesat.problem.split import best_split, squares
from pipesat.runtimes import RUNTIMES


def shapes_to_try(
    layers: Layers,
    some: Pipeline,
    placement: PlacementChoice = "chain",
    chunks: Sequence[int] = (),
) -> tuple[list[Pipeline], dict[str, str]]:
    """Return a pipeline in a placement, or in all three, and why others are left out.

    ``chunks`` are stages per device of a loop, as many shapes as values; 2 unless given.
    """
    require(
        not chunks or placement in ("loop", "any"),
        "only a loop has a choice: placement loop or any",
        where="chunks",
        value=[*chunks],
    )
    names: tuple[OneRoutePlacement, ...] = (
        ("chain", "vee", "loop") if placement == "any" else (placement,)
    )
    found: list[Pipeline] = []
    left_out: dict[str, str] = {}
    loops = [replace(some, placement="loop", chunks=v) for v in dict.fromkeys(chunks or (CHUNKS,))]
    for name in names:
        for shape in loops if name == "loop" else [replace(some, placement=name)]:
            try:
                require(
                    shape.stages <= MOST_STAGES,
                    f"expected at most {MOST_STAGES}",
                    where="stages",
                    value=shape.stages,
                )
                check_cuttable(layers, shape)
            except BadInput as error:
                if placement != "any":
                    raise
                left_out[shape.geometry.label] = str(error)
                continue
            if not (placement == "any" and shape.devices == 1 and name == "vee"):
                found.append(shape)  # on one device, a loop of two is the same as a V
    require(found, "; ".join(f"{name}: {why}" for name, why in left_out.items()))
    return found, left_out


def for_runtime(
    layers: Layers, shapes: Iterable[Pipeline], runtime: str
) -> tuple[Layers, list[Pipeline]]:
    """Return layers and shapes whose schedules a runtime runs as they are.

    In torch the first stage's backward is whole: it does nothing in its input-gradient op and
    everything in the other. So is that of stages that recompute: split, both halves would. A
    runtime that runs orders of its own runs all backwards whole.
    """
    record = RUNTIMES[runtime]
    if not record.runs_pair("F", "BW"):
        shapes = [replace(shape, overlap=None) for shape in shapes]
    if not record.any_order:
        return layers, [replace(shape, backward="fused") for shape in shapes]
    first, *rest = layers.layers
    first = replace(first, fused=first.fused or record.first_whole)
    pipelines = [replace(shape, recompute_whole=True) for shape in shapes]
    return replace(layers, layers=(first, *rest)), pipelines


def in_each_way(layers: Layers, shapes: Sequence[Pipeline], runtime: str) -> list[Pipeline]:
    """Return shapes for a runtime, twice if it splits all backwards but the first stage's or none.

    Once, if one of both ways is impossible or never better.

    Raises
    ------
    NotApplicable
        If it runs more than both ways have: whole backwards in pairs beside split ones.
    """
    if not RUNTIMES[runtime].all_or_none:
        return [*shapes]
    ways: tuple[Backward, ...] = ("split", "fused")
    if any(layer.fused for layer in layers.layers[1:]):
        ways = ("fused",)
    elif shapes[0].overlap is not None:
        raise NotApplicable(
            f"{RUNTIMES[runtime].title} splits all backwards or none, but for whole ones in pairs: "
            "plan without `overlap`, or with layers that are all fused"
        )
    elif all(
        cost("BW") >= cost("B") + cost("W") and cost("held_after_B") <= cost("held_after_F")
        for layer in layers.layers
        for cost in (layer.amount, partial(layer.amount, recompute=True))
    ):
        ways = ("split",)
    return [replace(shape, backward=way) for shape in shapes for way in ways]


def shipped_by(runtime: str | None, some: Pipeline) -> list[Pipeline]:
    """Return the loop in which a runtime has interleaved 1F1B, if it has that.

    ``some`` is a pipeline of the same devices, microbatches and rules.
    """
    if runtime is None or "interleaved-1f1b" not in RUNTIMES[runtime].built_in:
        return []
    return [replace(some, placement="loop", chunks=CHUNKS)]


@lru_cache(maxsize=256)
def balanced_partition(layers: Layers, shape: Pipeline) -> tuple[range, ...]:
    """The split whose largest device has least of F and BW to do, of those the most even one.

    Most even: the least sum of squares of stages' loads. So one long layer leaves no others long,
    which would take memory and gain nothing. Memory does not count. In a chain this is exact.
    Elsewhere the split that was found for devices stays, unless one of its stages is longer by more
    than a layer than in the best of three: itself, the even split, and the one whose stages alone
    have the least sum of squares.
    """
    least = smallest_largest(layers, replace(shape, memory=None))
    if shape.speed:  # devices are not alike: the least largest is the most even
        return least.partition
    each = [*map(add, layers.amounts("F"), layers.amounts("BW"))]
    ends = np.array([*accumulate(each, initial=0)])
    uneven = squares(ends, least.value)

    def judged(partition: tuple[range, ...]) -> tuple[int, int]:
        cuts = np.array(cuts_of(partition))
        devices = np.bincount(shape.homes, np.diff(ends[cuts]))
        return int(devices.max()), int(uneven(cuts[:-1], cuts[1:], 0).sum())

    found = [least.partition]
    with contextlib.suppress(BadInput):
        found.append(even_partition(layers, shape))
    masks = same_stage(layers, cut_masks(layers, shape.stages))
    split = best_split(uneven, len(layers), shape.stages, combine="sum", masks=masks)
    with contextlib.suppress(BadInput):
        if split is not None:
            check_partition(layers, split.partition, shape.homes)
            found.append(split.partition)
    better, several = min(found, key=judged), shape.stages != shape.devices
    own, other = (max(ends[p.stop] - ends[p.start] for p in cut) for cut in (found[0], better))
    return found[0] if several and own <= other + max(each) else better


def _by_speed(begins: Sequence[int], shape: Pipeline) -> list[int]:
    """Where stages begin that have blocks as their devices are fast, at least one each."""
    total, done, cuts = sum(shape.speeds), Fraction(0), list[int]()
    for number, speed in enumerate(shape.speeds[:-1], 1):
        done += speed
        least = cuts[-1] + 1 if cuts else 1
        most = len(begins) - (shape.stages - number)
        cuts.append(min(max(round(len(begins) * done / total), least), most))
    return [begins[cut] for cut in cuts]


def even_partition(layers: Layers, shape: Pipeline) -> tuple[range, ...]:
    """Equally many free blocks per stage, earlier stages get what remains.

    Blocks that must stay together count as one, and those that must be on the first or the last
    stage are there besides. So is what stands before the first free block (an embedding), and what
    follows the last one (MTP layers, a head). With fewer free blocks than stages, all layers count.
    """
    stages, count = shape.stages, len(layers)
    require(count >= stages, f"{stages} stages, but only {count} layers", where="stages")
    free = range(layers.first_stage_until, layers.last_stage_from)
    together = [*accumulate((k if may else 0 for k, may in enumerate(layers.may_cut)), max)]
    blocks = (together[k] for k in free if layers.layers[k].role == "block")
    begins = [*dict.fromkeys(blocks)]
    if len(begins) < stages:
        begins = [*dict.fromkeys(together[:count])]
    cuts = [begins[part.start] for part in even(len(begins), stages)[1:]]
    if shape.speed:
        cuts = _by_speed(begins, shape)
    partition = partition_of([0, *cuts, count])
    with said_of("even split"):
        check_partition(layers, partition, shape.homes)
    return partition
