"""What a device must do for many ways to cut layers at once: tables for the closed forms.

The arguments are those of :mod:`pipesat.bounds.device_terms`. They depend on the device's own
layers, on sums over the layers before, between and after them, and on how many hops there are;
where another partition could make a term smaller, the smaller one is taken.

Layers that cost no more than a stage will find, whatever is chosen, make the proofs. Lower times
and less memory never make a schedule longer: whatever runs with some stages recomputing runs with
the smaller of both variants' amounts too. So a bound of theirs holds for every choice.

Where a device holds two stages, a programme over devices asks for a value T whether any partition,
recomputing as it may, leaves every device time and memory enough. The largest T that is proven
impossible bounds all. Its rows are the forms of docs/proofs/bounds.md for a low and a top stage:
load, the way home, area, head, tail.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from typing import Final, NamedTuple

import numpy as np

from pipesat.bounds.device_terms import Crossing, DeviceTerms, Work
from pipesat.core.arrays import Ints
from pipesat.layers.layer import Layer, Layers
from pipesat.layers.linear_costs import at_speed, least_backward, shortest_backward, slacks, summed
from pipesat.layers.pipeline import Pipeline
from pipesat.problem.costs import Costs
from pipesat.problem.split import LARGEST_COST
from pipesat.problem.stage import COSTS
from pipesat.schedule.schedule import Objective


def cheapest(layers: Layers) -> Layers:
    """Return the layers with the smaller of every amount, and nothing to choose."""
    if not layers.recomputable:
        return layers
    return replace(layers, layers=tuple(map(_cheapest, layers.layers)))


def unpaired(layers: Layers, shape: Pipeline) -> Layers:
    """Return layers without pairs whose schedules are no longer than those with the shape's pairs.

    F and BW take the pairs' share ``min(1, num / den)`` of their times, rounded down. A pair takes
    at least both shares: in its place, F and then BW end no later, and hold no more.
    """
    if shape.overlap is None:
        return layers
    taken = min(Fraction(1), Fraction(*shape.overlap))
    return layers.with_costs(
        lambda costs: replace(
            costs, F=int(costs.F * taken), BW=int((costs.whole - costs.F) * taken)
        )
    )


def certain(layers: Layers, shape: Pipeline) -> Layers:
    """Return the cheapest layers with no more memory than any stage that has them surely needs.

    Layers whose forward and backward take no time may hold nothing, as an interval of length zero
    holds nothing. Weights with a copy per device are there once if both layers are on one.
    """
    least, static = cheapest(layers), [*layers.static]
    for tie in layers.ties:
        if tie.copies:
            static[tie.other] -= tie.memory
    kept = {tie.other: tie.memory for tie in layers.ties if not tie.copies}
    held = (
        replace(layer.costs, held_after_F=0, held_after_B=0)
        if layer.amount("F") == shortest_backward(least, layer, shape) == 0
        else layer.costs
        for layer in least.layers
    )
    return replace(
        least,
        recipe=None,
        layers=tuple(
            replace(
                layer,
                costs=costs,
                weights=static[number],
                tied_to=layer.tied_to if number in kept else "",
                tied_weights=kept.get(number, 0),
            )
            for number, (layer, costs) in enumerate(zip(least.layers, held, strict=True))
        ),
    )


def variants(layers: Layers) -> tuple[Layers, ...]:
    """The layers as they are, and as they are on a stage that recomputes; each without a choice."""
    plain = replace(layers, layers=tuple(replace(x, recomputed=None) for x in layers.layers))
    if not layers.recomputable:
        return (plain,)
    again = (replace(x, costs=x.recomputed or x.costs, recomputed=None) for x in layers.layers)
    return plain, replace(layers, layers=tuple(again))


def _cheapest(layer: Layer) -> Layer:
    least = {kind: min(layer.amount(kind), layer.amount(kind, recompute=True)) for kind in COSTS}
    return replace(layer, costs=Costs(**least), recomputed=None)


class Part(NamedTuple):
    """A stage, numbered, of layers ``begin`` to ``end`` - 1 in many ways to cut."""

    amounts: Amounts
    stage: int
    begin: Ints
    end: Ints


class Amounts:
    """Sums over the first k layers, k from 0 to L; the layers must leave no choice."""

    def __init__(self, layers: Layers, shape: Pipeline) -> None:
        self.backward = shape.backward
        self.sums = {kind: summed(layers.amounts(kind)) for kind in COSTS}
        self.sums["fused"] = summed([layer.fused for layer in layers.layers])

    @property
    def largest(self) -> int:
        """The largest of all sums."""
        return max(int(line[-1]) for line in self.sums.values())

    def work(self, begin: Ints, end: Ints, stay: Ints, number: int) -> Work:
        """Of layers ``begin`` to ``end`` - 1; what takes no time at all may hold nothing."""
        kinds = {kind: line[end] - line[begin] for kind, line in self.sums.items()}
        whole = kinds.pop("fused") > 0
        split = ~whole if self.backward != "fused" else np.zeros_like(whole)
        fused = whole if self.backward == "split" else np.ones_like(whole)
        F, B, W, BW, held, after = (kinds[kind] for kind in COSTS)
        work = Work(F, B, W, BW, held, after, split, fused, stay, number)
        return replace(work, held=np.where((F == 0) & (work.shortest == 0), 0, held))


class CutTerms:
    """The devices of a shape, whose layers count with the cheaper of every amount elsewhere."""

    def __init__(self, layers: Layers, shape: Pipeline) -> None:
        self.shape, self.layers = shape, cheapest(at_speed(layers, shape))
        self.forward = summed(self.layers.amounts("F"))
        self.back = summed([shortest_backward(self.layers, x, shape) for x in self.layers.layers])
        each = [*layers.static]
        for tie in layers.ties:  # on one device it is there once
            each[tie.other] -= tie.memory
        self.static, self.slacks = summed(each), slacks(layers, shape)

    @cached_property
    def passed(self) -> list[int]:
        """Least time that a microbatch spends on links before each stage."""
        layers, times = self.layers.layers[:-1], [0]
        hop = min((self.shape.delay(layer.output) for layer in layers), default=0)
        for one, other in pairwise(self.shape.homes):
            times.append(times[-1] + hop * (one != other))
        return times

    def bound(self, parts: Sequence[Part], *, absolute: bool) -> tuple[Ints, Ints]:
        """Return the largest closed form of a device with these stages, and whether one fits."""
        terms = self.terms(parts)
        values = {**terms.own_window(absolute=absolute), **terms.route_window(absolute=absolute)}
        largest: Ints = np.maximum.reduce(np.broadcast_arrays(*values.values()))
        return largest, terms.ways[0].held <= terms.memory

    def terms(self, parts: Sequence[Part]) -> DeviceTerms:
        """Return what a device with these stages must do, the first of them first."""
        low, top = parts[0], parts[-1]
        trips = [self._trip(part) for part in parts]
        work = [
            part.amounts.work(part.begin, part.end, trip, self.shape.microbatches)
            for part, trip in zip(parts, trips, strict=True)
        ]
        lines = self.forward, self.back
        begin, home = (line[low.begin] + self.passed[low.stage] for line in lines)
        links = self.passed[top.stage] - self.passed[low.stage]
        there, back = (
            links + sum(line[later.begin] - line[one.end] for one, later in pairwise(parts))
            for line in lines
        )
        turn = there + sum(x.F for x in work) + trips[-1]
        to_low = back + sum(x.shortest for x in work)  # until the backward of the first has ended
        through = to_low - work[0].shortest + work[0].least
        held = sum(x.held for x in work)
        own = tuple(range(len(work)))
        way = Crossing(begin, turn, trips[-1], through, to_low + home, home, own, held)
        return DeviceTerms(work, [way], self._slack(parts))

    def _trip(self, part: Part) -> Ints:
        """Least time from the end of F on a stage to the start of its backward."""
        both = self.forward + self.back
        links: int = 2 * (self.passed[-1] - self.passed[part.stage])
        return both[-1] - both[part.end] + links

    def _slack(self, parts: Sequence[Part]) -> Ints:
        slack = np.full_like(parts[0].end, self.slacks[self.shape.homes[parts[0].stage]])
        for part in parts if slack.max(initial=0) < LARGEST_COST else ():
            slack -= self.static[part.end] - self.static[part.begin]
        return slack


_MOST_LAYERS: Final = {"vee": 100, "loop": 48}
_STEPS: Final = 128  # from the bound that is known to half as much again
_HALF: Final = 2
_TWO: Final = 2


def two_stages_bound(layers: Layers, shape: Pipeline, objective: Objective, known: int) -> int:
    """Return a bound of all partitions of a V or a loop of two, at least the one that is known.

    Of other shapes, without a limit of memory and with too many layers, it is that one.
    """
    programme = _Programme(layers, shape, objective)
    two = shape.stages == _TWO * shape.devices and None not in shape.capacities
    if not (two and len(layers) <= _MOST_LAYERS.get(shape.placement, 0) and programme.is_exact):
        return known
    step = max(1, known // (_HALF * _STEPS))
    if programme.possible(known):
        return known
    above = range(known + step, known + _STEPS * step, step)
    return known + bisect_left(above, True, key=programme.possible) * step + 1


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
        fastest = at_speed(self.layers, self.shape)
        return [Amounts(own, self.shape) for own in variants(fastest)]

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
        return self.shape.microbatches * (self.cuts.forward + backward)

    def possible(self, value: int) -> bool:
        """Whether a partition leaves every device enough time and memory for such a value."""
        count, p, load = len(self.layers), self.shape.devices, self.load
        ends = np.searchsorted(load, load + value, side="right") - 1
        sizes = np.arange(1, int((ends - np.arange(count + 1)).max()) + 1)
        v_shape = self.shape.placement == "vee"
        # a state: where the second round begins in a loop, the low front, the top one
        turns = np.array([count]) if v_shape else np.arange(p, count - p + 1)
        states = np.stack([turns, np.zeros_like(turns), turns])
        for device in range(p):
            turn, a, front = (row[:, None, None] for row in states)
            b = a + sizes[:, None]
            other = front - sizes if v_shape else front + sizes
            keep = (b <= other) if v_shape else (b <= turn) & (other <= count)
            b, other = np.minimum(b, count), np.clip(other, 0, count)
            taken = load[b] - load[a] + np.abs(load[other] - load[front])
            left = (
                load[other] - load[b] if v_shape else load[turn] - load[b] + load[-1] - load[other]
            )
            keep = keep & (taken <= value) & (left <= (p - 1 - device) * value)
            turn, a, front, b, other = (
                part[keep] for part in np.broadcast_arrays(turn, a, front, b, other)
            )
            top = (other, front) if v_shape else (front, other)
            fits = self._fits(value, device, (a, b, *top))
            states = np.unique(np.stack([turn[fits], b[fits], other[fits]]), axis=1)
            if not states.size:
                return False
        return True  # what is left of the load after the last device is nothing

    def _fits(self, value: int, device: int, cut: Sequence[Ints]) -> Ints:
        """Whether a device has time and memory enough, in any way to recompute.

        ``cut``: where its low stage begins and ends, and its top one, over many ways to cut.
        """
        found = np.zeros(len(cut[0]), dtype=bool)
        low_stage, top_stage = self.shape.stages_on[device]
        for low, top in product(self.ways, repeat=2):
            open_ = ~found
            a, b, c, e = (line[open_] for line in cut)
            parts = [Part(low, low_stage, a, b), Part(top, top_stage, c, e)]
            bound, fits = self.cuts.bound(parts, absolute=self.objective == "makespan")
            found[open_] = fits & (bound <= value)
        return found
