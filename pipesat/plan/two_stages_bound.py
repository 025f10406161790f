"""What no schedule is below where a device holds two stages: a V, or a loop of two.

For a value T, a programme over devices asks whether any partition, recomputing as it may, leaves
every device time and memory enough. The largest T that is proven impossible bounds all. The rows
are the forms of docs/proofs/bounds.md for a device with a low and a top stage: load, the way home,
area, head, tail. Other stages count with the cheaper of every amount.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.schedule import Objective
from pipesat.layers.layer import Layers
from pipesat.layers.linear_costs import least_backward, summed
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.split import LARGEST_COST
from pipesat.plan.cut_terms import Amounts, CutTerms, Part, variants

_MOST_LAYERS: Final = {"vee": 100, "loop": 48}
_STEPS: Final = 128  # from the bound that is known to half as much again
_HALF: Final = 2
_TWO: Final = 2


def applies(layers: Layers, shape: Pipeline) -> bool:
    """Whether this bound is for such a shape, and memory is limited."""
    return (
        shape.stages == _TWO * shape.devices
        and shape.overlap is None
        and len(layers) <= _MOST_LAYERS.get(shape.placement, 0)
        and None not in shape.capacities
    )


def two_stages_bound(layers: Layers, shape: Pipeline, objective: Objective, known: int) -> int:
    """Return a bound of all partitions of a V or a loop of two, at least the one that is known."""
    programme = _Programme(layers, shape, objective)
    if not programme.is_exact:
        return known
    step = max(1, known // (_HALF * _STEPS))
    if programme.possible(known):
        return known
    low, high = 0, _STEPS  # in steps above the known bound: impossible, not shown to be
    while high - low > 1:
        middle = (low + high) // 2
        if programme.possible(known + middle * step):
            high = middle
        else:
            low = middle
    return known + low * step + 1


class _Cut(NamedTuple):
    """Where the low and the top stage of a device begin and end, over many ways to cut."""

    a: Ints
    b: Ints
    c: Ints
    e: Ints


@dataclass(frozen=True)
class _Programme:
    layers: Layers
    shape: Pipeline
    objective: Objective

    @cached_property
    def cuts(self) -> CutTerms:
        """What devices must do."""
        return CutTerms(self.layers, self.shape)

    @cached_property
    def ways(self) -> list[Amounts]:
        """Amounts of stages, in each way to recompute."""
        return [Amounts(own, self.shape) for own in variants(self.layers)]

    @property
    def is_exact(self) -> bool:
        """Whether sums stay within 64 bits."""
        largest = max(int(self.cuts.static[-1]), *(way.largest for way in self.ways))
        return 8 * self.shape.microbatches * largest < LARGEST_COST

    @cached_property
    def load(self) -> Ints:
        """Least work of the first k layers, of all microbatches."""
        cheap = self.cuts.layers
        backward = summed([least_backward(cheap, x, self.shape) for x in cheap.layers])
        load: Ints = self.shape.microbatches * (self.cuts.forward + backward)
        return load

    def possible(self, value: int) -> bool:
        """Whether a partition leaves every device enough time and memory for such a value."""
        count, p, load = len(self.layers), self.shape.devices, self.load
        ends = np.searchsorted(load, load + value, side="right") - 1
        sizes = np.arange(1, int((ends - np.arange(count + 1)).max()) + 1)
        vee = self.shape.placement == "vee"
        # a state: where the second round begins in a loop, the low front, the top one
        turns = np.array([count]) if vee else np.arange(p, count - p + 1)
        states = np.stack([turns, np.zeros_like(turns), turns])
        for device in range(p):
            turn, a, front = (row[:, None, None] for row in states)
            b = a + sizes[:, None]
            other = front - sizes if vee else front + sizes
            keep = (b <= other) if vee else (b <= turn) & (other <= count)
            b, other = np.minimum(b, count), np.clip(other, 0, count)
            taken = load[b] - load[a] + np.abs(load[other] - load[front])
            left = load[other] - load[b] if vee else load[turn] - load[b] + load[-1] - load[other]
            keep = keep & (taken <= value) & (left <= (p - 1 - device) * value)
            turn, a, front, b, other = (
                part[keep] for part in np.broadcast_arrays(turn, a, front, b, other)
            )
            cut = _Cut(a, b, other, front) if vee else _Cut(a, b, front, other)
            fits = self._fits(value, device, cut)
            states = np.unique(np.stack([turn[fits], b[fits], other[fits]]), axis=1)
            if not states.size:
                return False
        return True  # what is left of the load after the last device is nothing

    def _fits(self, value: int, device: int, cut: _Cut) -> Ints:
        """Whether a device has time and memory enough, in any way to recompute."""
        found = np.zeros(len(cut.a), dtype=bool)
        low_stage, top_stage = self.shape.stages_on[device]
        for low, top in product(self.ways, repeat=2):
            open_ = ~found
            a, b, c, e = (line[open_] for line in cut)
            parts = [Part(low, low_stage, a, b), Part(top, top_stage, c, e)]
            bound, fits = self.cuts.bound(parts, absolute=self.objective == "makespan")
            found[open_] = fits & (bound <= value)
        return found
