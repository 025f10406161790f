"""What one stage of a chain costs the whole schedule at least, for every way to cut it at once.

The arguments are those of :func:`pipesat.closed_form_bound` for a device with one stage, restated
on arrays: they depend on the stage's own layers, on sums over the layers before and after it, and
on how many hops there are. So the exact programme over cuts can minimise them, and its result
bounds the schedules of *all* partitions. Words (head, tail, way, stored work) as in
docs/bounds.md; where another partition could make a term smaller, the smaller one is taken.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.schedule import Objective
from pipesat.core.stage import COSTS
from pipesat.layers.layer import Layers
from pipesat.layers.linear_costs import rooms, shortest_backward
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import Mask
from pipesat.layers.split import FORBIDDEN, LARGEST_COST, StageCost
from pipesat.plan.cheapest_layers import cheapest

_ROUNDED: Final = 1 - 1e-12  # so that rounding errors cannot lift a bound
_MOST_STEPS: Final = 20_000_000  # of cells times microbatches, for one stage


def stage_bound(
    layers: Layers, pipeline: Pipeline, objective: Objective, around: Layers | None = None
) -> StageCost:
    """Cost of layers a to b - 1 as stage s of a chain: a bound on makespan or span.

    A stage that holds one microbatch more than its device has room for is forbidden.

    Parameters
    ----------
    layers
        The stage's own; they must not leave a choice of recomputation.
    around
        All others, with or without a choice; the same ones unless given.

    Raises
    ------
    NotApplicable
        Unless every device holds one stage, or with overlapped pairs.
    BadInput
        If sums would exceed 64 bits.
    """
    if pipeline.stages != pipeline.devices or pipeline.overlap is not None:
        raise NotApplicable("this bound is for one stage per device and no overlapped pairs")
    own, others = _Own(layers, pipeline), _Way(cheapest(around or layers), pipeline)
    if 8 * pipeline.microbatches * own.largest >= LARGEST_COST:
        raise BadInput("the layers' sum is too large to add up exactly: choose a coarser unit")
    room = rooms(layers, pipeline)
    absolute = objective == "makespan"

    def cost(a: Ints, b: Ints, stage: int) -> Ints:
        terms = _Terms(own.sums(a, b), others.times(a, b, stage), room[stage], pipeline)
        bound = terms.bound(absolute=absolute)
        return np.where(terms.held > terms.free, FORBIDDEN, bound)

    return cost


class _Sums(NamedTuple):
    """Amounts of stages, as arrays."""

    F: Ints
    B: Ints
    W: Ints
    BW: Ints
    held: Ints
    held_B: Ints
    static: Ints
    fused: Ints


class _Times(NamedTuple):
    """When the first forward reaches a stage, its trip to the end and back, the last way home."""

    before: Ints
    trip: Ints
    back: Ints


class _Own:
    """Sums of amounts over the first k layers, k from 0 to L."""

    def __init__(self, layers: Layers, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        static = _summed(layers.static)
        for tie in layers.ties:  # on one device it is there once
            static[max(tie.one, tie.other) + 1 :] -= tie.memory
        F, B, W, BW, held, held_B = (_summed(layers.amounts(kind)) for kind in COSTS)
        fused = _summed([layer.fused for layer in layers.layers])
        self.lines = _Sums(F, B, W, BW, held, held_B, static, fused)
        self.largest = max(int(line[-1]) for line in self.lines)

    def sums(self, a: Ints, b: Ints) -> _Sums:
        """Of layers a to b - 1."""
        return _Sums(*(line[b] - line[a] for line in self.lines))


class _Way:
    """What a microbatch passes before and after a stage."""

    def __init__(self, layers: Layers, pipeline: Pipeline) -> None:
        self.devices = pipeline.devices
        self.F = _summed(layers.amounts("F"))
        self.back = _summed([shortest_backward(layers, x, pipeline) for x in layers.layers])
        self.hop = min((pipeline.delay(layer.output) for layer in layers.layers[:-1]), default=0)

    def times(self, a: Ints, b: Ints, stage: int) -> _Times:
        """Of layers a to b - 1 as one stage."""
        before, after = stage * self.hop, (self.devices - 1 - stage) * self.hop
        trip = self.F[-1] - self.F[b] + self.back[-1] - self.back[b] + 2 * after
        return _Times(self.F[a] + before, trip, self.back[a] + before)


class _Terms:
    """The terms of docs/bounds.md for stages of one device."""

    def __init__(self, sums: _Sums, times: _Times, room: int, pipeline: Pipeline) -> None:
        self.sums, self.times, self.m = sums, times, pipeline.microbatches
        fused = sums.fused > 0
        self.split: Mask = ~fused if pipeline.backward != "fused" else np.zeros_like(fused)
        self.whole: Mask = fused if pipeline.backward == "split" else np.ones_like(fused)
        self.least = self._less(sums.B + sums.W, sums.BW)
        self.shortest = self._less(sums.B, sums.BW)
        # what takes no time at all may be over in an instant, and hold nothing
        self.held = np.where((sums.F == 0) & (self.shortest == 0), 0, sums.held)
        unlimited = room >= LARGEST_COST
        self.free = np.full_like(sums.F, LARGEST_COST) if unlimited else room - sums.static
        self.fit = np.where(
            self.held > 0, np.minimum(self.free // np.maximum(self.held, 1), self.m), self.m
        )

    def _less(self, apart: Ints, fused: Ints) -> Ints:
        """The smaller of what B, W and what BW gives, of those that are allowed."""
        return np.minimum(
            np.where(self.split, apart, FORBIDDEN), np.where(self.whole, fused, FORBIDDEN)
        )

    def bound(self, *, absolute: bool) -> Ints:
        """The largest of all arguments; ``absolute``: from the origin, else from the first op."""
        F, m, (before, trip, back) = self.sums.F, self.m, self.times
        load = m * (F + self.least)
        head = F + trip - F * self.fit  # idle before the first backward, if above 0
        tail = trip - self._stored()
        full = self.held * m > self.free  # then the last forward starts after the first backward
        home = self.shortest - self.least + back  # the rest of the last backward's way
        end = back - self._pending()
        own = [
            load,
            F + trip + self.least,
            load + head,
            load + tail,
            np.where(full, load + head + tail, 0),
            np.where(self.held > 0, self._area(), 0),
        ]
        route = [
            m * (F + self.shortest) + back,
            load + tail + home,
            np.where(full, load + head + tail + home, 0),
            load + end,
            load + head + end,
        ]
        return _largest([before * absolute + _largest(own), before + _largest(route)])

    def _pending(self) -> Ints:
        """Most weight gradients that can wait for the end of the last backward, as time."""
        held = self.sums.held_B
        count = np.where(held > 0, np.minimum(self.free // np.maximum(held, 1), self.m), self.m)
        return np.where(self.split, np.maximum(count, 0) * self.sums.W, 0)

    def _area(self) -> Ints:
        """Memory times time of all microbatches over the room there is."""
        sums = self.sums
        a, w, stay = self.held.astype(float), sums.held_B.astype(float), sums.F + self.times.trip
        apart = np.where(self.split, a * stay + np.maximum(a, w) * sums.B + w * sums.W, np.inf)
        fused = np.where(self.whole, a * (stay + sums.BW), np.inf)
        area = self.m * np.minimum(apart, fused) / np.maximum(self.free, 1)
        return np.ceil(np.minimum(area, float(LARGEST_COST)) * _ROUNDED).astype(np.int64)

    def _stored(self) -> Ints:
        """Most work of other microbatches that can be left when the last forward has ended.

        x whole backwards and y weight gradients of m - 1 microbatches, in the memory that one more
        leaves: the largest over x. Where these are too many to try, the value of the continuous
        problem at its kinks, which is no less.
        """
        m, held, held_B = self.m, self.held, self.sums.held_B
        W = np.where(self.split, self.sums.W, 0)
        most = np.minimum(self.fit - 1, m - 1)
        room, per_W = self.free - held, np.maximum(held_B, 1)
        best = np.where(held > 0, 0, (m - 1) * np.maximum(self.least, W))

        def work(x: Ints, more: int) -> Ints:
            y = np.where(held_B > 0, (room - held * x) // per_W + more, m - 1 - x)
            value = x * self.least + np.clip(y, 0, m - 1 - x) * W
            return np.where((x >= 0) & (x <= most) & (held > 0), value, 0)

        steps = int(most.max(initial=0)) + 1
        if steps * best.size <= _MOST_STEPS:
            for x in range(steps):
                best = np.maximum(best, work(np.full_like(best, x), 0))
            return best
        kink = (room - held_B * (m - 1)) // np.maximum(held - held_B, 1)
        for x in (np.zeros_like(best), most, *(np.clip(kink + k, 0, most) for k in (0, 1))):
            best = np.maximum(best, work(np.broadcast_to(x, best.shape), 1))
        return best


def _largest(values: list[Ints]) -> Ints:
    largest: Ints = np.maximum.reduce(np.broadcast_arrays(*values))
    return largest


def _summed(values: object) -> Ints:
    return np.concatenate([[0], np.cumsum(np.array(values, dtype=np.int64))]).astype(np.int64)
