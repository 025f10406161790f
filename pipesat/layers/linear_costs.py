"""Costs of stages as sums over their layers, in the form that every programme here takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Final, TypeAlias, TypeVar

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.errors import require
from pipesat.layers.layer import Layer, Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.problem.split import LARGEST_COST

KeyT = TypeVar("KeyT")

Weights: TypeAlias = Mapping[str, int]
"""How often each of F, B, W, BW counts."""
TRAINING_STEP: Final[Weights] = {"F": 1, "BW": 1}
"""A forward and a whole backward: what a classic schedule runs per microbatch."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Cost of layers a to b - 1 as stage s: ``ends[s, b] - begins[s, a]``; (S, L + 1) each.

    No row ever falls, so a stage costs more the earlier it begins and the later it ends.
    """

    ends: Ints
    begins: Ints

    def cost(self, a: Ints, b: Ints, stage: int) -> Ints:
        """Cost of one stage, as :func:`~pipesat.problem.split.best_split` takes it."""
        return self.ends[stage][b] - self.begins[stage][a]

    def of(self, cuts: Sequence[int]) -> Ints:
        """Cost of every stage between cuts."""
        stages, places = np.arange(len(self.ends)), np.asarray(cuts)
        return self.ends[stages, places[1:]] - self.begins[stages, places[:-1]]


LineMaker: TypeAlias = Callable[[Layers, Pipeline, Sequence[bool]], Lines]
"""(layers, pipeline, which stages recompute) -> costs."""


def loads(weights: Weights | Sequence[Weights] = TRAINING_STEP) -> LineMaker:
    """Lines of a weighted sum of times, the same on all stages or one mapping per stage.

    ``loads([{"F": 1, "BW": 1}, {"F": 2, "BW": 2}])`` takes the second stage for twice as long.
    """

    def make(layers: Layers, pipeline: Pipeline, recompute: Sequence[bool]) -> Lines:
        of = [weights] * pipeline.stages if isinstance(weights, Mapping) else weights
        own = zip(of, recompute, pipeline.speeds, strict=True)
        keys = [(tuple(one.items()), again, speed) for one, again, speed in own]
        return _lines(
            keys,
            lambda key: (
                sum(factor * x.amount(kind, recompute=key[1]) for kind, factor in key[0])
                for x in at_speed(layers, pipeline, key[2]).layers
            ),
        )

    return make


def makespan_lines(layers: Layers, pipeline: Pipeline, recompute: Sequence[bool]) -> Lines:
    """Lines whose sum on any device is at most the makespan of any schedule.

    On a device, m microbatches take at least ``m (F + least backward)`` of its layers, and nothing
    begins before one microbatch has passed the layers before its first stage, and their links.
    """
    load = load_lines(layers, pipeline, recompute).ends
    hop = min((pipeline.delay(layer.output) for layer in layers.layers[:-1]), default=0)
    before = summed(_less(x, "F") for x in at_speed(layers, pipeline).layers)
    stages = np.arange(pipeline.stages)[:, None]
    first = np.isin(stages, [own[0] for own in pipeline.stages_on])
    return Lines(load + first * stages * hop, load - first * before)


def load_lines(layers: Layers, pipeline: Pipeline, recompute: Sequence[bool]) -> Lines:
    """Lines whose sum on a device is its least load: what no span is below."""

    def each(key: tuple[bool, Fraction]) -> Iterator[int]:
        again, speed = key
        for x in at_speed(layers, pipeline, speed).layers:
            backward = least_backward(layers, x, pipeline, recompute=again)
            yield pipeline.microbatches * (x.amount("F", recompute=again) + backward)

    return _lines([*zip(recompute, pipeline.speeds, strict=True)], each)


def at_speed(layers: Layers, pipeline: Pipeline, speed: Fraction | None = None) -> Layers:
    """Return layers at a speed, else at the fastest; with shares of pairs they stay below."""
    wanted = pipeline.fastest if speed is None else speed
    return layers.at(wanted, down=pipeline.overlap is not None)


def memory_lines(
    layers: Layers, pipeline: Pipeline, recompute: Sequence[bool], in_flight: Sequence[int]
) -> Lines:
    """Lines of memory: ``in_flight[s] * held_after_F + static``.

    Shared weights count once where both layers surely are on one device, else with every layer.
    """
    static = list(layers.static)
    for tie in layers.ties:
        ends = {tie.one, tie.other} == {0, len(layers) - 1} and pipeline.placement == "vee"
        if not tie.copies or ends or pipeline.devices == 1:
            static[tie.other] -= tie.memory
    return _lines(
        [*zip(in_flight, recompute, strict=True)],
        lambda key: (
            key[0] * x.amount("held_after_F", recompute=key[1]) + taken
            for x, taken in zip(layers.layers, static, strict=True)
        ),
    )


def _lines(keys: Sequence[KeyT], values: Callable[[KeyT], Iterable[int]]) -> Lines:
    """Lines of stages whose layers cost what their key says."""
    made = {key: summed(values(key)) for key in set(keys)}
    sums = np.stack([made[key] for key in keys])
    return Lines(sums, sums)


def slacks(layers: Layers, pipeline: Pipeline) -> tuple[int, ...]:
    """Memory of every device that layers may take; a huge number if it is unlimited.

    At least the smallest output passes each end of a stage.
    """
    passed = pipeline.buffers * min((one.output for one in layers.layers[:-1]), default=0)
    last = pipeline.stages - 1
    ends = (sum((s > 0) + (s < last) for s in own) for own in pipeline.stages_on)
    return tuple(
        LARGEST_COST if capacity is None else capacity - layers.reserve - ceil(passed * count)
        for capacity, count in zip(pipeline.capacities, ends, strict=True)
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


def summed(values: Iterable[int]) -> Ints:
    """Return 0, v0, v0 + v1, ..."""
    listed = list(values)
    require(
        sum(listed) < LARGEST_COST,
        "the layers' sum is too large to add up exactly: choose a coarser unit",
    )
    return np.concatenate([[0], np.cumsum(np.array(listed, dtype=np.int64))]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class SplitProblem:
    """Lines of load and memory, slack per device; which stages recompute."""

    layers: Layers
    pipeline: Pipeline
    load: Lines
    memory: Lines
    slack: tuple[int, ...]
    in_flight: tuple[int, ...]
    recompute: tuple[bool, ...]

    @cached_property
    def on(self) -> Ints:
        """Which stages are on which device: 0 or 1, (p, S)."""
        homes = np.array(self.pipeline.homes)
        return (homes == np.arange(self.pipeline.devices)[:, None]).astype(np.int64)

    def on_devices(self, lines: Lines, cuts: Sequence[int]) -> Ints:
        """Cost of every device: the sum over its stages."""
        return self.on @ lines.of(cuts)

    def value(self, cuts: Sequence[int]) -> int:
        """Largest load of a device; where memory lacks, LARGEST_COST and what it lacks."""
        lacking = int((self.on_devices(self.memory, cuts) - self.slack).max())
        if lacking > 0:
            return LARGEST_COST + lacking
        return int(self.on_devices(self.load, cuts).max())

    def lower_bound(self) -> int:
        """What no split is below: the mean over devices, and the largest layer alone."""
        least = np.diff(self.load.ends, axis=1).min(axis=0)
        return max(-(-int(least.sum()) // self.pipeline.devices), int(least.max()))


def split_problem_of(
    layers: Layers,
    pipeline: Pipeline,
    lines: LineMaker,
    recompute: Sequence[bool],
    in_flight: Sequence[int] | None,
) -> SplitProblem:
    """Put a problem together; ``in_flight`` is one microbatch on every stage if not given."""
    flying = (1,) * pipeline.stages if in_flight is None else tuple(in_flight)
    return SplitProblem(
        layers,
        pipeline,
        lines(layers, pipeline, recompute),
        memory_lines(layers, pipeline, recompute, flying),
        slacks(layers, pipeline),
        flying,
        tuple(recompute),
    )
