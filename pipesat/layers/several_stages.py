"""Splits where devices hold several stages: exact tables for two, windows beyond.

**Tables**, for a V or a loop of two. Both stages of a device advance a front of their own: in a V
one from either end of the model, in a loop one from its begin and one from layer x, where the
second round begins. Device after device, the states (front of the one, front of the other) that can
be reached within a largest load T and within memory are a table of bool; T is searched. Why one
table suffices: for given fronts a' and r after and before a device, the latest a <= a' that was
reachable leaves most load and memory to the other stage, so only that one counts. O(p L^2 log T)
for a V, L times that for a loop.

**Windows**, where that is too far. A window is a run of stages on different devices. With all cuts
outside it fixed, its own cuts are a chain's, each device with the load and memory that it has
elsewhere: :func:`best_split` finds the best. It ends when none helps: a local optimum, not a proven
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from pipesat.core.arrays import Ints
from pipesat.layers.layer import Layers
from pipesat.layers.linear_costs import Lines, SplitProblem
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import cut_masks
from pipesat.problem.split import FORBIDDEN, LARGEST_COST, Mask, best_split

Limits = Sequence[tuple[Lines, Sequence[int]]]
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
            left = limit[device] - lines.cost(begin, fronts, step.one)
            at_end, at_begin = self._other(lines, step.other)
            furthest = np.searchsorted(at_end, at_begin[None, :] + left, side="right") - 1
            ends = np.minimum(ends, furthest)
        return np.where(begin >= 0, ends, -1)

    def _other(self, lines: Lines, stage: int) -> tuple[Ints, Ints]:
        """Costs by fronts of the other track: ``at_end[r'] - at_begin[r]`` for r to r'.

        In a V these are layers ``layer_of[r']`` to ``layer_of[r] - 1``.
        """
        if self.backwards:
            return -lines.begins[stage, self.layer_of], -lines.ends[stage, self.layer_of]
        return lines.ends[stage, self.layer_of], lines.begins[stage, self.layer_of]

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


def tracks_of(layers: Layers, pipeline: Pipeline, second: int | None = None) -> Tracks:
    """Tracks of a V, one front from either end until they meet; or of a loop of two.

    The loop's second round begins with layer ``second``.
    """
    count, p = len(layers), pipeline.devices
    masks = cut_masks(layers, 2 * p)
    v_shape, last_a = second is None, count if second is None else second
    layer_of = np.arange(count, -1, -1) if v_shape else np.arange(last_a, count + 1)
    a, b = np.arange(last_a + 1)[:, None], layer_of[None, :]
    steps = []
    for d in range(p):
        other = 2 * p - 1 - d if v_shape else p + d
        moved = other if v_shape else other + 1  # the cut that the other front is at then
        allowed = masks[d + 1][: last_a + 1, None] & masks[moved][None, layer_of]
        if d < p - 1:
            allowed &= a < (b if v_shape else last_a)
        else:
            allowed &= (a == b) if v_shape else (a == last_a) & (b == count)
        for pair in layers.bound:
            passed = [(k < a) | ((k >= b) if v_shape else (last_a <= k) & (k < b)) for k in pair]
            allowed &= passed[0] == passed[1]
        steps.append(_TwoStages(d, other, allowed))
    return Tracks(layer_of, last_a, tuple(steps), backwards=v_shape)


_LONG = 4  # a window's stages have at most so many times their mean length


def improved(problem: SplitProblem, cuts: Sequence[int], kicks: int = 0) -> tuple[int, ...]:
    """Improve a split until no window does; ties and flags are kept.

    Then, ``kicks`` times, some cuts are shifted at random (always the same ones) and it begins
    again. A split that breaks ties is mended or comes back broken.
    """
    masks = cut_masks(problem.layers, problem.pipeline.stages)
    best = _descended(problem, tuple(cuts), masks)
    draw = np.random.default_rng(0)
    for _ in range(kicks):
        shifted = _descended(problem, _shifted(best[1], masks, draw), masks)
        best = min(best, shifted, key=lambda found: found[0])
    return best[1]


def _descended(
    problem: SplitProblem, cuts: tuple[int, ...], masks: Mask
) -> tuple[tuple[int, int, float], tuple[int, ...]]:
    """The local optimum below a split, and how it is judged."""
    windows = [*_windows(problem.pipeline.homes)]
    best = _judged(problem, cuts), cuts
    before = None
    while best != before:
        before = best
        for begin, end in windows:
            found = _window_solved(problem, best[1], begin, end, masks)
            if found is not None:
                best = min(best, (_judged(problem, found), found), key=lambda found: found[0])
    return best


def _shifted(cuts: tuple[int, ...], masks: Mask, draw: np.random.Generator) -> tuple[int, ...]:
    """Move some cuts at random between their neighbours."""
    moved = list(cuts)
    for number in draw.choice(np.arange(1, len(cuts) - 1), size=min(3, len(cuts) - 2)):
        inside = np.arange(moved[number - 1] + 1, moved[number + 1])
        places = inside[masks[number, inside]]
        if len(places):
            moved[number] = int(draw.choice(places))
    return tuple(moved)


def _windows(homes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Longest runs of stages on different devices."""
    reached = 0
    for begin in range(len(homes)):
        end = begin
        while end < len(homes) and homes[end] not in homes[begin:end]:
            end += 1
        if end > reached and end - begin > 1:
            yield begin, end
        reached = max(reached, end)


def _window_solved(
    problem: SplitProblem, cuts: Sequence[int], begin: int, end: int, masks: Mask
) -> tuple[int, ...] | None:
    """Best cuts inside stages ``begin`` to ``end - 1``; ``None`` if ties forbid them all."""
    first, last = cuts[begin], cuts[end]
    homes = problem.pipeline.homes[begin:end]
    elsewhere = []
    for lines in (problem.load, problem.memory):
        inside = lines.of(cuts)[begin:end]
        elsewhere.append(problem.on_devices(lines, cuts)[[*homes]] - inside)
    tied = [*_tied(problem, cuts, begin, end)]

    def cost(a: Ints, b: Ints, stage: int) -> Ints:
        a, b = a + first, b + first
        of = begin + stage
        load, memory = (
            lines.cost(a, b, of) + others[stage]
            for lines, others in zip((problem.load, problem.memory), elsewhere, strict=True)
        )
        lacking = memory - problem.slack[homes[stage]]
        costs: Ints = np.where(lacking > 0, LARGEST_COST + lacking, load)
        for layer, home in tied:
            costs = np.where((a <= layer) & (layer < b) & (homes[stage] != home), FORBIDDEN, costs)
        return costs

    inner = masks[begin : end + 1, first : last + 1].copy()
    inner[0], inner[-1] = False, False
    inner[0, 0] = inner[-1, -1] = True
    for low, high in problem.layers.bound:
        if first <= low and high < last:
            inner[:, low + 1 - first : high + 1 - first] = False
    longest = _LONG * -(-(last - first) // (end - begin))
    found = best_split(cost, last - first, end - begin, masks=inner, longest=longest)
    if found is None:
        return None
    middle = (first + part.stop for part in found.partition[:-1])
    return (*cuts[: begin + 1], *middle, *cuts[end:])


def _tied(
    problem: SplitProblem, cuts: Sequence[int], begin: int, end: int
) -> Iterator[tuple[int, int]]:
    """Layers of a window that are tied to one outside, and the device that they must be on."""
    inside = range(cuts[begin], cuts[end])
    for pair in problem.layers.bound:
        for layer, other in permutations(pair):
            if layer in inside and other not in inside:
                stage = int(np.searchsorted(cuts, other, side="right")) - 1
                yield layer, problem.pipeline.homes[stage]


def _judged(problem: SplitProblem, cuts: Sequence[int]) -> tuple[int, int, float]:
    """How many ties are broken, the value, and, of equal values, how uneven devices are."""
    loads = problem.on_devices(problem.load, cuts)
    return broken_ties(problem, cuts), problem.value(cuts), float((loads.astype(float) ** 2).sum())


def broken_ties(problem: SplitProblem, cuts: Sequence[int]) -> int:
    """How many tied layers lie on different devices and must not."""
    homes = np.repeat(problem.pipeline.homes, np.diff(cuts))
    return sum(int(homes[one] != homes[other]) for one, other in problem.layers.bound)
