"""A grid of slots in which every op's place follows from when its microbatch enters.

A microbatch that enters at slot e runs stage s of a route of S stages at slot e + s, and its
backward at slot e + 2S - 1 - s: it never stops, unless told to wait on its way. Two microbatches
may not want one device for two forwards, or two backwards, in the same slot, nor more memory than
there is; a forward and a backward that meet in a slot are a pair. With entries as dense as that
allows, it is DualPipe's and DualPipeV's steady state, and interleaved 1F1B's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.kernels.arrays import BW, B, Coded
from pipesat.kernels.slots import Shapes, placed, replayed, shapes_of
from pipesat.problem.problem import Problem
from pipesat.schedule.arrays_of import arrays_of, order_of
from pipesat.schedule.schedule import Order


class GridRun(NamedTuple):
    """What a grid runs as: the makespan, and codes as :func:`pipesat.kernels.slots.replayed`'s."""

    value: int
    first: Ints
    second: Ints
    items: Ints


class SlotGrid:
    """The grid of a problem; memory counts by slot, of each microbatch what its class holds."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.arrays = problem, arrays_of(problem)
        self.first_cell = self.arrays.first_cell.tolist()
        splits = [data.may_split for data in problem.stages]
        self._backward = np.where(splits, B, BW)
        self._fused = np.array([data.may_fuse for data in problem.stages], np.int64)
        self.all_together = np.zeros((len(self.arrays.stage_of), 2), np.int64)

    @cached_property
    def entering(self) -> Ints:
        """Route and number of all microbatches as they enter, routes in proportion."""
        places = [
            ((number + 0.5) / route.microbatches, index, number)
            for index, route in enumerate(self.problem.routes)
            for number in range(route.microbatches)
        ]
        return np.array([place[1:] for place in sorted(places)], np.int64)

    @cached_property
    def no_stops(self) -> Ints:
        """Slots that a microbatch waits before each of its ops, by route: none."""
        longest = max(len(route.stages) for route in self.problem.routes)
        return np.zeros((len(self.problem.routes), 2 * longest), np.int64)

    def shapes(self, stops: Ints | None = None) -> Shapes:
        """What microbatches want that stop so on their way."""
        return shapes_of(self.arrays, self._backward, self.no_stops if stops is None else stops)

    def placed(
        self, shapes: Shapes, gaps: Sequence[int], entering: Ints | None = None
    ) -> tuple[Ints, Ints]:
        """Return the grid and the earliest slots in which microbatches may enter.

        Each a gap or more after its route's last; ``entering`` is the order in which they do, by
        default :attr:`entering`. Each has to fit alone.
        """
        entering = self.entering if entering is None else entering
        return placed(self.arrays.slack, shapes, entering, np.array(gaps, np.int64))

    def run(self, grid: Ints, wait: float, alone: Ints | None = None) -> GridRun:
        """Run what is in a grid, as :func:`pipesat.kernels.slots.replayed`."""
        alone = self.all_together if alone is None else alone
        return GridRun(
            *replayed(self.arrays, self._backward, self._fused, grid, alone, float(wait))
        )

    def order_of(self, run: GridRun) -> Order:
        """What ran, device by device."""
        ran = run.first >= 0
        begin = np.concatenate(([0], np.cumsum(run.items)))
        return order_of(self.problem, self.arrays, Coded(run.first[ran], run.second[ran], begin))
