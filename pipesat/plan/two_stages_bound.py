"""What no schedule is below where a device holds two stages: a V, or a loop of two.

For a value T, a programme over devices asks whether any partition, recomputing as it may, leaves
every device time and memory enough. The largest T that is proven impossible bounds all. The rows
are the closed forms of docs/bounds.md for a device with a low and a top stage: load, the way home,
area, head, tail. Other stages count with the cheaper of every amount.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.schedule import Objective
from pipesat.layers.layer import Layers
from pipesat.layers.linear_costs import least_backward, rooms, shortest_backward
from pipesat.layers.pipeline import Pipeline
from pipesat.plan.cheapest_layers import cheapest, variants

Times: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"

_MOST_LAYERS: Final = {"vee": 100, "loop": 48}
_STEPS: Final = 128  # from the bound that is known to half as much again
_HALF: Final = 2
_SLACK: Final = 1 + 1e-9  # so that rounding errors cannot lift a bound
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


class _Stage(NamedTuple):
    """Amounts of stages in one way to recompute: tables of (begin, end)."""

    F: Times
    least: Times
    short: Times
    weight: Times
    held: Times
    after: Times

    def at(self, begin: Ints, end: Ints) -> _Stage:
        """Of layers begin to end - 1."""
        return _Stage(*(table[begin, end] for table in self))


@dataclass(frozen=True)
class _Cut:
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
    def hop(self) -> int:
        """Least delay of a link."""
        outputs = (self.shape.delay(layer.output) for layer in self.layers.layers[:-1])
        return min(outputs, default=0)

    @cached_property
    def passed(self) -> list[int]:
        """Least time that a microbatch spends on links before each stage."""
        times = [0]
        for one, other in pairwise(self.shape.homes):
            times.append(times[-1] + self.hop * (one != other))
        return times

    @cached_property
    def forward(self) -> Times:
        """Least F of the first k layers."""
        return _summed(cheapest(self.layers).amounts("F"))

    @cached_property
    def back(self) -> Times:
        """Least way of the gradient through the first k layers."""
        layers = cheapest(self.layers)
        return _summed([shortest_backward(layers, x, self.shape) for x in layers.layers])

    @cached_property
    def static(self) -> Times:
        """Least static memory of the first k layers: shared weights are there once."""
        each = [*self.layers.static]
        for tie in self.layers.ties:
            each[tie.other] -= tie.memory
        return _summed(each)

    @cached_property
    def ways(self) -> list[_Stage]:
        """Amounts of stages, in each way to recompute."""
        return [_stages(own, self.shape) for own in variants(self.layers)]

    def possible(self, value: int) -> bool:
        """Whether a partition leaves every device enough time and memory for such a value."""
        count, p, m = len(self.layers), self.shape.devices, self.shape.microbatches
        load = m * (self.forward + _summed(self._least))
        value_most = value * _SLACK
        ends = np.searchsorted(load, load + value_most, side="right") - 1
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
            keep = keep & (taken <= value_most) & (left <= (p - 1 - device) * value_most)
            turn, a, front, b, other = (
                part[keep] for part in np.broadcast_arrays(turn, a, front, b, other)
            )
            cut = _Cut(a, b, other, front) if vee else _Cut(a, b, front, other)
            fits = self._fits(value, device, cut)
            states = np.unique(np.stack([turn[fits], b[fits], other[fits]]), axis=1)
            if not states.size:
                return False
        return True  # what is left of the load after the last device is nothing

    @cached_property
    def _least(self) -> list[int]:
        layers = cheapest(self.layers)
        return [least_backward(layers, x, self.shape) for x in layers.layers]

    def _fits(self, value: int, device: int, cut: _Cut) -> Ints:
        """Whether a device has time and memory enough, in any way to recompute."""
        found = np.zeros(len(cut.a), dtype=bool)
        for low, top in product(self.ways, repeat=2):
            found |= self._fits_so(value, device, cut, low.at(cut.a, cut.b), top.at(cut.c, cut.e))
        return found

    def _fits_so(self, value: int, device: int, cut: _Cut, low: _Stage, top: _Stage) -> Ints:
        """Whether every row of the device admits the value."""
        m, (low_stage, top_stage) = self.shape.microbatches, self.shape.stages_on[device]
        static = self.static[cut.b] - self.static[cut.a] + self.static[cut.e] - self.static[cut.c]
        room = rooms(self.layers, self.shape)[device] - static
        before, links = self.passed[low_stage], self.passed[-1]
        way = self.forward[cut.a] + before
        start = way * (self.objective == "makespan")
        home = self.back[cut.a] + before
        between = self.passed[top_stage] - before
        trip_low = self._after(cut.b) + 2 * (links - before)
        trip_top = self._after(cut.e) + 2 * (links - self.passed[top_stage])
        first = low.F + self.forward[cut.c] - self.forward[cut.b] + between + top.F + trip_top
        last = trip_top + top.short + self.back[cut.c] - self.back[cut.b] + between
        load = m * (low.F + low.least + top.F + top.least)
        head = first - _most(room, [(m * x.F, x.F, x.held) for x in (low, top)])
        own = low.held + top.held
        left = _most(room - own, [_left(m - 1, x) for x in (low, top)])
        tail = last - top.least - left
        full = np.where(m * own > room, head + tail, -np.inf)
        area = m * (
            low.held * (low.F + trip_low + low.short) + top.held * (top.F + trip_top + top.short)
        )
        longest = np.maximum.reduce(
            [
                start + load + np.maximum.reduce([np.zeros_like(load), head, tail, full]),
                way + load + np.maximum(tail, full) + low.short - low.least + home,
                way + m * (low.F + low.short + top.F + top.short) + home,
            ]
        )
        in_time: Ints = longest <= value * _SLACK
        return in_time & (own <= room) & (area <= room * (value - start) * _SLACK)

    def _after(self, end: Ints) -> Times:
        """Least time of forwards and gradients through the layers from an end on."""
        both = self.forward + self.back
        left: Times = both[-1] - both[end]
        return left


def _stages(layers: Layers, shape: Pipeline) -> _Stage:
    """Return the amounts of every stage; what takes no time may hold nothing."""
    F = _between(layers.amounts("F"))
    short = _between([shortest_backward(layers, x, shape) for x in layers.layers])
    instant = F + short == 0
    W = [0] * len(layers) if shape.backward == "fused" else layers.amounts("W")
    return _Stage(
        F,
        _between([least_backward(layers, x, shape) for x in layers.layers]),
        short,
        _between(W),
        np.where(instant, 0.0, _between(layers.amounts("held_after_F"))),
        np.where(instant, 0.0, _between(layers.amounts("held_after_B"))),
    )


def _left(count: int, stage: _Stage) -> tuple[Times, Times, Times]:
    """Work of a stage that may be left after the last forward: most, and per memory."""
    work = np.maximum(stage.least, stage.weight)
    pending = _ratio(stage.weight, stage.after)
    whole = _ratio(stage.least, stage.held)
    return count * work, np.maximum(pending, whole), np.ones_like(work)


def _most(room: Times, items: list[tuple[Times, Times, Times]]) -> Times:
    """Return the most work that memory admits: a knapsack of two fractional items.

    Items are ``(most work, work, memory)``, the latter two of one piece.
    """
    room = np.maximum(room, 0.0)
    (work, density), (other_work, other_density) = (
        (most, _ratio(work, memory)) for most, work, memory in items
    )
    swap = other_density > density
    first, rest = np.where(swap, other_work, work), np.where(swap, work, other_work)
    dense, thin = np.maximum(density, other_density), np.minimum(density, other_density)
    free = np.isinf(dense)
    taken = np.where(free, first, np.minimum(first, np.where(free, 0.0, dense) * room))
    used = np.where(free | (dense == 0), 0.0, taken / np.where(free | (dense == 0), 1.0, dense))
    thin_free = np.isinf(thin)
    more = np.where(thin_free, 0.0, thin) * np.maximum(room - used, 0.0)
    result: Times = taken + np.where(thin_free, rest, np.minimum(rest, more))
    return result


def _ratio(work: Times, memory: Times) -> Times:
    """Work per memory; infinite where it needs none."""
    return np.where(memory > 0, work / np.where(memory > 0, memory, 1.0), np.inf)


def _summed(values: object) -> Times:
    return np.concatenate([[0.0], np.cumsum(np.array(values, dtype=np.float64))])


def _between(values: object) -> Times:
    """Sums of values a to b - 1."""
    sums = _summed(values)
    return sums[None, :] - sums[:, None]
