"""What no schedule of any partition can beat, and the partitions that might beat a value.

Where layers leave a choice of recomputation, what is proven holds for every choice: a stage counts
with the better of its variants, all others with the smaller of every amount.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from pipesat.advise.cut_terms import (
    Amounts,
    CutTerms,
    Part,
    certain,
    cheapest,
    two_stages_bound,
    unpaired,
    variants,
)
from pipesat.core.arrays import Ints
from pipesat.core.claims import Bound
from pipesat.core.errors import NotApplicable, require
from pipesat.layers.devices import smallest_largest, why_no_split_fits
from pipesat.layers.layer import Layers
from pipesat.layers.linear_costs import (
    Lines,
    at_speed,
    load_lines,
    loads,
    makespan_lines,
    memory_lines,
    slacks,
    split_problem_of,
    summed,
)
from pipesat.layers.linear_costs import shortest_backward as shortest_of
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import cut_masks, same_stage
from pipesat.problem.partition import partition_of
from pipesat.problem.split import FORBIDDEN, LARGEST_COST, Mask, StageCost, best_split
from pipesat.schedule.schedule import Objective


def stage_bound(
    layers: Layers, pipeline: Pipeline, objective: Objective, around: Layers | None = None
) -> StageCost:
    """Cost of layers a to b - 1 as stage s of a chain: a bound on makespan or span.

    A stage that holds one microbatch more than its device has memory for is forbidden.

    Parameters
    ----------
    layers
        The stage's own; they must not leave a choice of recomputation.
    around
        All others, with or without a choice; the same ones unless given.
    """
    amounts = {
        speed: Amounts(at_speed(layers, pipeline, speed), pipeline) for speed in {*pipeline.speeds}
    }
    cuts, most = CutTerms(around or layers, pipeline), max(x.largest for x in amounts.values())
    require(
        8 * pipeline.microbatches * max(most, int(cuts.static[-1])) < LARGEST_COST,
        "the layers' sum is too large to add up exactly: choose a coarser unit",
    )

    def cost(a: Ints, b: Ints, stage: int) -> Ints:
        own = amounts[pipeline.speeds[stage]]
        part = Part(own, stage, *np.broadcast_arrays(a, b))
        bound, fits = cuts.bound([part], absolute=objective == "makespan")
        return np.where(fits, bound, FORBIDDEN)

    return cost


_STEPS_PER_LOOK: Final = 500
_MOST_CELLS: Final = 20_000_000  # of tables (stage, begin, end)


def shape_bound(layers: Layers, shape: Pipeline, objective: Objective) -> Bound:
    """Return what no schedule of any partition of a shape is below.

    In a chain the least, over partitions, of the largest :func:`stage_bound`; elsewhere the least
    largest load of a device with the way to its first stage, and each stage alone.

    Raises
    ------
    Infeasible
        If no partition fits into memory, with the reason.
    BadInput
        If counts, flags or ties leave no partition.
    """
    lines = makespan_lines if objective == "makespan" else load_lines
    layers, name = unpaired(layers, shape), shape.geometry.label
    least = certain(layers, shape)
    try:
        loaded = smallest_largest(least, shape, lines=lines)
    except NotApplicable:  # no split was found that fits, none was proven impossible
        loaded = smallest_largest(least, replace(shape, memory=None), lines=lines)
    bounds = [Bound(loaded.lower_bound, f"least largest load over all partitions ({name})")]
    found = best_split(
        stage_cost(layers, shape, objective),
        len(layers),
        shape.stages,
        masks=_masks(layers, shape),
    )
    if found is not None:
        bounds.append(Bound(found.value, f"closed forms over all partitions ({name})"))
    known = max(bound.value for bound in bounds)
    value = two_stages_bound(layers, shape, objective, known)
    bounds.append(Bound(value, f"loads and memory over all partitions ({name})"))
    return max(bounds, key=lambda bound: bound.value)


@lru_cache(maxsize=8)
def bound_of_any_layers(layers: Layers, shapes: tuple[Pipeline, ...]) -> Bound | None:
    """Return what no schedule of the shapes is below, whichever layers of a stage recompute."""
    bounds = (shape_bound(cheapest(layers), shape, "makespan") for shape in shapes)
    return min(bounds, key=lambda bound: bound.value, default=None)


def why_nothing_fits(layers: Layers, shape: Pipeline) -> str:
    """Say why no partition of a shape fits into memory; empty if arithmetic alone cannot."""
    least, flags = certain(layers, shape), [False] * shape.stages
    return why_no_split_fits(split_problem_of(least, shape, loads(), flags, None))


def stage_cost(layers: Layers, shape: Pipeline, objective: Objective) -> StageCost:
    """Cost of one stage that is at most the value of any schedule, on any placement.

    On a chain, :func:`stage_bound`; elsewhere, and where that would take long, ``head + m (F +
    shortest backward) + tail``: within the window of the first stage's device, so it bounds the
    span too. Of layers in pairs, :func:`~pipesat.advise.cut_terms.unpaired` gives what it is of.
    """
    if shape.stages == shape.devices and shape.stages * (len(layers) + 1) ** 2 <= _MOST_CELLS:
        costs = [stage_bound(own, shape, objective, layers) for own in variants(layers)]
        return lambda a, b, stage: np.minimum.reduce([cost(a, b, stage) for cost in costs])
    m, layers = shape.microbatches, cheapest(at_speed(layers, shape))
    head = summed(layer.amount("F") for layer in layers.layers)
    tail = summed(shortest_of(layers, layer, shape) for layer in layers.layers)

    def cost(a: Ints, b: Ints, _: int) -> Ints:
        return head[a] + tail[a] + m * (head[b] - head[a] + tail[b] - tail[a])

    return cost


def flags_below(
    layers: Layers, shape: Pipeline, objective: Objective, partition: Sequence[range], value: int
) -> list[list[bool]]:
    """Per stage, the choices of recomputation that its own cost leaves below a value."""
    kinds = variants(unpaired(layers, shape))
    chain = shape.stages == shape.devices
    allowed = []
    for stage, part in enumerate(partition):
        a, b = np.array([[part.start]]), np.array([[part.stop]])
        free = layers.may_recompute(part)
        flags = [False, True] if free else [False]
        if chain and free:
            costs = [stage_bound(own, shape, objective, layers) for own in kinds]
            flags = [flag for flag in flags if costs[flag](a, b, stage)[0, 0] < value]
        allowed.append(flags)
    return allowed


def partitions_below(
    layers: Layers, shape: Pipeline, objective: Objective, value: int
) -> Iterator[tuple[range, ...] | None] | None:
    """Yield every partition that closed forms per stage and per device leave below a value.

    Now and then ``None`` comes between them, so that a caller waiting for the next can look at the
    time. ``None`` instead of an iterator if they are too many to look for. Those that break a tie
    are among them.
    """
    count, stages = len(layers), shape.stages
    if stages * (count + 1) ** 2 > _MOST_CELLS:
        return None
    layers, masks = unpaired(layers, shape), _masks(layers, shape)
    cost, layers = stage_cost(layers, shape, objective), certain(layers, shape)
    a, b = np.arange(count + 1)[:, None], np.arange(count + 1)[None, :]
    fits = [
        (cost(a, b, s) < min(value, FORBIDDEN)) & (a < b) & masks[s][:, None] & masks[s + 1][None]
        for s in range(stages)
    ]
    reach = [np.arange(count + 1) == count]  # whether the rest can be cut from here on
    for table in reversed(fits):
        reach.append((table & reach[-1][None, :]).any(axis=1))
    reach.reverse()
    ends = [table & reach[s + 1][None, :] for s, table in enumerate(fits)]
    if not reach[0][0]:
        return iter(())
    lines = makespan_lines if objective == "makespan" else load_lines
    limits = [
        (lines(layers, shape, [False] * stages), [value - 1] * shape.devices),
        (memory_lines(layers, shape, [False] * stages, (1,) * stages), slacks(layers, shape)),
    ]
    walk = _walk(ends, shape, limits)
    return (None if cuts is None else partition_of(cuts) for cuts in walk)


def _walk(
    ends: Sequence[Mask],
    shape: Pipeline,
    limits: Sequence[tuple[Lines, Sequence[int]]],
) -> Iterator[tuple[int, ...] | None]:
    """Depth first, stage after stage; devices' sums are kept within their limits."""
    steps = 0
    pending: list[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]] = [
        ((0,), tuple((0,) * shape.devices for _ in limits))
    ]
    while pending:
        cuts, sums = pending.pop()
        steps += 1
        if steps % _STEPS_PER_LOOK == 0:
            yield None
        stage, begin = len(cuts) - 1, cuts[-1]
        if stage == shape.stages:
            yield cuts
            continue
        home = shape.homes[stage]
        for end in np.flatnonzero(ends[stage][begin]).tolist():
            grown = []
            for (lines, most), taken in zip(limits, sums, strict=True):
                now = taken[home] + int(lines.ends[stage, end] - lines.begins[stage, begin])
                if now > most[home]:
                    break
                grown.append((*taken[:home], now, *taken[home + 1 :]))
            else:
                pending.append(((*cuts, end), tuple(grown)))


def _masks(layers: Layers, shape: Pipeline) -> Mask:
    masks = cut_masks(layers, shape.stages)
    return same_stage(layers, masks) if shape.stages == shape.devices else masks
