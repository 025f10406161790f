"""Exact splits where every device holds two stages: a V, or a loop of two.

Both stages of a device advance a front of their own: in a V one from either end of the model, in a
loop one from its begin and one from layer x, where the second round begins. Device after device,
the states (front of the one, front of the other) that can be reached within a largest load T and
within memory are a table of bool; T is searched. Why one table suffices: for given fronts a' and r
after and before a device, the latest a <= a' that was reachable leaves most load and memory to the
other stage, so only that one counts. O(p L^2 log T) for a V, L times that for a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipesat.core.arrays import Ints
from pipesat.layers.layer import Layers
from pipesat.layers.linear_costs import LinearCost
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import Mask, cut_masks

Limits = Sequence[tuple[Sequence[LinearCost], Sequence[int]]]
"""Per resource (load, memory): its lines by stage, its limit by device."""


@dataclass(frozen=True)
class _TwoStages:
    """One device: its two stages, and which fronts are allowed after it, bool (A + 1, R + 1)."""

    one: int
    other: int
    allowed: Mask


@dataclass(frozen=True)
class Tracks:
    """Fronts a (layers of the first track, from 0) and r (layers of the other track).

    ``layer_of[r]`` is the cut where the other front stands after r layers; it falls in a V.
    """

    layer_of: NDArray[np.intp]
    last_a: int
    steps: tuple[_TwoStages, ...]
    backwards: bool

    def cuts(self, limits: Limits) -> tuple[int, ...] | None:
        """Cuts of a split within the limits, or ``None`` if there is none."""
        fronts = np.arange(len(self.layer_of))
        start = np.zeros((self.last_a + 1, len(fronts)), dtype=bool)
        start[0, 0] = True
        reached = [start]
        for device, step in enumerate(self.steps):
            # a front can be reached from any earlier one whose furthest end is not before it
            furthest = np.maximum.accumulate(self._ends(device, reached[-1], limits), axis=1)
            after = np.zeros_like(start)
            after[:, 1:] = furthest[:, :-1] >= fronts[1:]
            reached.append(after & step.allowed)
            if not reached[-1].any():
                return None
        return self._cuts_back(reached, limits)

    def _ends(self, device: int, reached: Mask, limits: Limits) -> NDArray[np.intp]:
        """Furthest front of the other track, by a after the device and r before; -1: none."""
        step = self.steps[device]
        fronts = np.arange(self.last_a + 1)[:, None]
        latest = np.maximum.accumulate(np.where(reached, fronts, -1), axis=0)
        begin = np.full_like(latest, -1)
        begin[1:] = latest[:-1]  # a stage has a layer
        ends = np.full_like(begin, len(self.layer_of) - 1)
        for lines, limit in limits:
            line = lines[step.one]
            left = limit[device] - (line.at_end[fronts] - line.at_begin[begin])
            at_end, at_begin = self._other(lines[step.other])
            furthest = np.searchsorted(at_end, at_begin[None, :] + left, side="right") - 1
            ends = np.minimum(ends, furthest)
        return np.where(begin >= 0, ends, -1)

    def _other(self, line: LinearCost) -> tuple[Ints, Ints]:
        """Costs by fronts of the other track: ``at_end[r'] - at_begin[r]`` for r to r'.

        In a V these are layers ``layer_of[r']`` to ``layer_of[r] - 1``.
        """
        if self.backwards:
            return -line.at_begin[self.layer_of], -line.at_end[self.layer_of]
        return line.at_end[self.layer_of], line.at_begin[self.layer_of]

    def _cuts_back(self, reached: Sequence[Mask], limits: Limits) -> tuple[int, ...]:
        """Walk from an end to the begin through reachable states."""
        a, r = map(int, np.argwhere(reached[-1])[0])
        cuts = {a, int(self.layer_of[r])}
        for device in reversed(range(len(self.steps))):
            ends = self._ends(device, reached[device], limits)[a, :r]
            r = int(np.flatnonzero(ends >= r)[-1])
            a = int(np.flatnonzero(reached[device][:a, r])[-1])
            cuts |= {a, int(self.layer_of[r])}
        return tuple(sorted(cuts))


def vee_tracks(layers: Layers, pipeline: Pipeline) -> Tracks:
    """Tracks of a V: one front from either end, until they meet."""
    count, p = len(layers), pipeline.devices
    masks = cut_masks(layers, 2 * p)
    layer_of = np.arange(count, -1, -1)
    a, b = np.arange(count + 1)[:, None], layer_of[None, :]
    steps = []
    for d in range(p):
        allowed = masks[d + 1][:, None] & masks[2 * p - 1 - d][None, layer_of]
        allowed = allowed & (a < b if d < p - 1 else a == b)
        for one, other in _ties(layers):
            allowed = allowed & (((one < a) | (one >= b)) == ((other < a) | (other >= b)))
        steps.append(_TwoStages(d, 2 * p - 1 - d, allowed))
    return Tracks(layer_of, count, tuple(steps), backwards=True)


def loop_tracks(layers: Layers, pipeline: Pipeline, second: int) -> Tracks:
    """Tracks of a loop of two, whose second round begins with layer ``second``."""
    count, p = len(layers), pipeline.devices
    masks = cut_masks(layers, 2 * p)
    layer_of = np.arange(second, count + 1)
    a, b = np.arange(second + 1)[:, None], layer_of[None, :]
    steps = []
    for d in range(p):
        allowed = masks[d + 1][: second + 1, None] & masks[p + d + 1][None, layer_of]
        allowed = allowed & (((a == second) & (b == count)) if d == p - 1 else (a < second))
        for one, other in _ties(layers):
            placed = [(k < a) | ((k >= second) & (k < b)) for k in (one, other)]
            allowed = allowed & (placed[0] == placed[1])
        steps.append(_TwoStages(d, p + d, allowed))
    return Tracks(layer_of, second, tuple(steps), backwards=False)


def _ties(layers: Layers) -> list[tuple[int, int]]:
    return [(tie.one, tie.other) for tie in layers.ties if not tie.copies]
