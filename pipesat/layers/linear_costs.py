"""Costs of stages as sums over their layers, in the form that every programme here takes.

A :class:`LinearCost` says what layers a to b - 1 cost on one stage: ``at_end[b] - at_begin[a]``.
Both arrays never fall, so a stage costs more the earlier it begins and the later it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.layers.layer import Layer, Layers
from pipesat.layers.pipeline import Pipeline, one_in_flight
from pipesat.layers.split import LARGEST_COST, StageCost

Weights: TypeAlias = Mapping[str, int]
"""How often each of F, B, W, BW counts."""
TRAINING_STEP: Final[Weights] = {"F": 1, "BW": 1}
"""A forward and a whole backward: what a classic schedule runs per microbatch."""


@dataclass(frozen=True, eq=False)
class LinearCost:
    """Cost of a stage that holds layers a to b - 1: ``at_end[b] - at_begin[a]``; (L + 1,) each."""

    at_end: Ints
    at_begin: Ints


LineMaker: TypeAlias = Callable[[Layers, Pipeline, Sequence[bool]], tuple[LinearCost, ...]]
"""(layers, pipeline, which stages recompute) -> one line per stage."""


def loads(weights: Weights | Sequence[Weights] = TRAINING_STEP) -> LineMaker:
    """Lines of a weighted sum of times, the same on all stages or one mapping per stage.

    ``loads([{"F": 1, "BW": 1}, {"F": 2, "BW": 2}])`` takes the second stage for twice as long.
    """

    def make(
        layers: Layers, pipeline: Pipeline, recompute: Sequence[bool]
    ) -> tuple[LinearCost, ...]:
        stages = pipeline.stages
        of = [weights] * stages if isinstance(weights, Mapping) else weights
        if len(of) != stages:
            raise BadInput(f"{len(of)} entries, expected {stages}, one per stage", where="weights")
        keys = [(tuple(one.items()), again) for one, again in zip(of, recompute, strict=True)]
        made = {
            (factors, again): _line(
                sum(factor * x.amount(kind, recompute=again) for kind, factor in factors)
                for x in layers.layers
            )
            for factors, again in set(keys)
        }
        return tuple(made[key] for key in keys)

    return make


def makespan_lines(
    layers: Layers, pipeline: Pipeline, recompute: Sequence[bool]
) -> tuple[LinearCost, ...]:
    """Lines whose sum on any device is at most the makespan of any schedule.

    On a device, m microbatches take at least ``m (F + least backward)`` of its layers, and nothing
    begins before one microbatch has passed the layers before its first stage, and their links.

    Raises
    ------
    NotApplicable
        With overlapped pairs, which may hide a part of the load.
    """
    _require_no_pairs(pipeline)
    hop = _least_delay(layers, pipeline)
    first = {stages[0] for stages in pipeline.stages_on}
    before = summed(_less(x, "F") for x in layers.layers)
    m = pipeline.microbatches
    loads_of = {
        again: summed(
            m
            * (
                x.amount("F", recompute=again)
                + least_backward(layers, x, pipeline, recompute=again)
            )
            for x in layers.layers
        )
        for again in set(recompute)
    }
    return tuple(
        LinearCost(load + stage * hop, load - before) if stage in first else LinearCost(load, load)
        for stage, load in enumerate(loads_of[again] for again in recompute)
    )


def cost_of(lines: Sequence[LinearCost]) -> StageCost:
    """Lines as what :func:`~pipesat.layers.split.best_split` takes."""
    return lambda a, b, stage: lines[stage].at_end[b] - lines[stage].at_begin[a]


def memory_lines(
    layers: Layers, pipeline: Pipeline, recompute: Sequence[bool], in_flight: Sequence[int]
) -> tuple[LinearCost, ...]:
    """Lines of memory: ``in_flight[s] * held_after_F + static``.

    Shared weights count once where both layers surely are on one device, else with every layer.
    """
    if len(in_flight) != pipeline.stages:
        raise BadInput(
            f"{len(in_flight)} values, expected {pipeline.stages}, one per stage", where="in_flight"
        )
    static = list(layers.static)
    for tie in layers.ties:
        ends = {tie.one, tie.other} == {0, len(layers) - 1} and pipeline.placement == "vee"
        if not tie.copies or ends or pipeline.devices == 1:
            static[tie.other] -= tie.memory
    keys = [*zip(in_flight, recompute, strict=True)]
    made = {
        (count, again): _line(
            count * x.amount("held_after_F", recompute=again) + taken
            for x, taken in zip(layers.layers, static, strict=True)
        )
        for count, again in set(keys)
    }
    return tuple(made[key] for key in keys)


def rooms(layers: Layers, pipeline: Pipeline) -> tuple[int, ...]:
    """Memory of every device that layers may take; a huge number if it is unlimited."""
    return tuple(
        LARGEST_COST if capacity is None else capacity - layers.reserve
        for capacity in pipeline.capacities
    )


def least_backward(
    layers: Layers, layer: Layer, pipeline: Pipeline, *, recompute: bool = False
) -> int:
    """Least time of a layer's whole backward, whatever the rest of its stage does."""
    B, W, BW = (layer.amount(kind, recompute=recompute) for kind in ("B", "W", "BW"))
    return _least_allowed(layers, layer, pipeline, split=B + W, whole=BW)


def shortest_backward(layers: Layers, layer: Layer, pipeline: Pipeline) -> int:
    """Least time from the start of a layer's backward to its input gradient."""
    split, whole = _less(layer, "B"), _less(layer, "BW")
    return _least_allowed(layers, layer, pipeline, split=split, whole=whole)


def _less(layer: Layer, kind: str) -> int:
    """The smaller amount of a layer's variants."""
    return min(layer.amount(kind), layer.amount(kind, recompute=True))


def _least_allowed(
    layers: Layers, layer: Layer, pipeline: Pipeline, *, split: int, whole: int
) -> int:
    """The less of both, of those that are allowed: with a fused layer a backward must be whole."""
    if layer.fused or pipeline.backward == "fused":
        return whole
    if pipeline.backward == "either" or any(x.fused for x in layers.layers):
        return min(split, whole)
    return split


def _least_delay(layers: Layers, pipeline: Pipeline) -> int:
    """Least delay of any hop between stages."""
    return min((pipeline.delay(layer.output) for layer in layers.layers[:-1]), default=0)


def _require_no_pairs(pipeline: Pipeline) -> None:
    if pipeline.overlap is not None:
        raise NotApplicable("overlapped pairs may hide a part of the load: no bound is known")


def _line(values: Iterable[int]) -> LinearCost:
    sums = summed(values)
    return LinearCost(sums, sums)


def summed(values: Iterable[int]) -> Ints:
    """Return 0, v0, v0 + v1, ...

    Raises
    ------
    BadInput
        If that is too large to be exact.
    """
    listed = list(values)
    if sum(listed) >= LARGEST_COST:
        raise BadInput("the layers' sum is too large to add up exactly: choose a coarser unit")
    return np.concatenate([[0], np.cumsum(np.array(listed, dtype=np.int64))]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class SplitProblem:
    """Lines of load and memory per stage, room per device; which stages recompute."""

    layers: Layers
    pipeline: Pipeline
    load: tuple[LinearCost, ...]
    memory: tuple[LinearCost, ...]
    room: tuple[int, ...]
    in_flight: tuple[int, ...]
    recompute: tuple[bool, ...]

    @cached_property
    def loads(self) -> tuple[Ints, Ints]:
        """Lines of load as arrays (S, L + 1): at the end, at the begin of a stage."""
        return _stacked(self.load)

    @cached_property
    def memories(self) -> tuple[Ints, Ints]:
        """Lines of memory as arrays (S, L + 1)."""
        return _stacked(self.memory)

    @cached_property
    def on(self) -> Ints:
        """Which stages are on which device: 0 or 1, (p, S)."""
        homes = np.array(self.pipeline.homes)
        on: Ints = (homes == np.arange(self.pipeline.devices)[:, None]).astype(np.int64)
        return on

    def of_stages(self, lines: tuple[Ints, Ints], cuts: Sequence[int]) -> Ints:
        """Cost of every stage, from stacked lines."""
        stages, places = np.arange(len(self.load)), np.asarray(cuts)
        costs: Ints = lines[0][stages, places[1:]] - lines[1][stages, places[:-1]]
        return costs

    def on_devices(self, lines: tuple[Ints, Ints], cuts: Sequence[int]) -> Ints:
        """Cost of every device: the sum over its stages."""
        costs: Ints = self.on @ self.of_stages(lines, cuts)
        return costs

    def value(self, cuts: Sequence[int]) -> int:
        """Largest load of a device; where memory lacks, LARGEST_COST and what it lacks."""
        lacking = int((self.on_devices(self.memories, cuts) - self.room).max())
        if lacking > 0:
            return LARGEST_COST + lacking
        return int(self.on_devices(self.loads, cuts).max())

    def lower_bound(self) -> int:
        """What no split is below: the mean over devices, and the largest layer alone."""
        least = np.diff(self.loads[0], axis=1).min(axis=0)
        return max(-(-int(least.sum()) // self.pipeline.devices), int(least.max()))


def split_problem_of(
    layers: Layers,
    pipeline: Pipeline,
    lines: LineMaker,
    recompute: Sequence[bool],
    in_flight: Sequence[int] | None,
) -> SplitProblem:
    """Put a problem together; ``in_flight`` is one microbatch on every stage if not given.

    Raises
    ------
    BadInput
        If a list has not one value per stage.
    """
    if len(recompute) != pipeline.stages:
        raise BadInput(
            f"{len(recompute)} values, expected {pipeline.stages}, one per stage", where="recompute"
        )
    flying = one_in_flight(pipeline) if in_flight is None else tuple(in_flight)
    return SplitProblem(
        layers,
        pipeline,
        lines(layers, pipeline, recompute),
        memory_lines(layers, pipeline, recompute, flying),
        rooms(layers, pipeline),
        flying,
        tuple(recompute),
    )


def _stacked(lines: Sequence[LinearCost]) -> tuple[Ints, Ints]:
    ends, begins = ([getattr(x, side) for x in lines] for side in ("at_end", "at_begin"))
    return np.stack(ends), np.stack(begins)
