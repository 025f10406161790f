"""What a split is judged by: load and memory of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.errors import BadInput
from pipesat.layers.layer import Layers
from pipesat.layers.linear_costs import LinearCost, LineMaker, memory_lines, rooms
from pipesat.layers.pipeline import Pipeline, one_in_flight
from pipesat.layers.split import LARGEST_COST


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
