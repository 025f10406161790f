"""Splits improved window by window, for placements whose exact optimum is too far.

A window is a run of stages on different devices. With all cuts outside it fixed, its own cuts are a
chain's, each device with the load and memory that it has elsewhere: :func:`best_split` finds the
best. Single cuts are moved too. It ends when neither helps: a local optimum, not a proven one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.layers.linear_costs import SplitProblem
from pipesat.layers.rules import Mask, cut_masks
from pipesat.layers.split import FORBIDDEN, LARGEST_COST, best_split

_LONG = 4  # a window's stages have at most so many times their mean length


def improved(problem: SplitProblem, cuts: Sequence[int], kicks: int = 0) -> tuple[int, ...]:
    """Improve a split until no window and no single cut does; ties and flags are kept.

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
    best, value = cuts, _judged(problem, cuts)
    while True:
        before = value
        for begin, end in windows:
            found = _window_solved(problem, best, begin, end, masks)
            if found is not None and (judged := _judged(problem, found)) < value:
                best, value = found, judged
        for number in range(1, len(best) - 1):
            found = _cut_moved(problem, best, number, masks)
            if (judged := _judged(problem, found)) < value:
                best, value = found, judged
        if value == before:
            return value, best


def _shifted(cuts: tuple[int, ...], masks: Mask, draw: np.random.Generator) -> tuple[int, ...]:
    """Move some cuts at random between their neighbours."""
    moved = list(cuts)
    for number in draw.choice(np.arange(1, len(cuts) - 1), size=min(3, len(cuts) - 2)):
        inside = np.arange(moved[number - 1] + 1, moved[number + 1])
        places = inside[masks[number, inside]]
        if len(places):
            moved[number] = int(draw.choice(places))
    return tuple(moved)


def _cut_moved(
    problem: SplitProblem, cuts: tuple[int, ...], number: int, masks: Mask
) -> tuple[int, ...]:
    """The best place of one cut, the others fixed: least overflow, then least largest load."""
    places = np.arange(cuts[number - 1] + 1, cuts[number + 1])
    places = places[masks[number, places]]
    if not len(places):
        return cuts
    worst = []
    for ends, begins in (problem.memories, problem.loads):
        sums = np.repeat(problem.on_devices((ends, begins), cuts)[:, None], len(places), axis=1)
        sums[problem.pipeline.homes[number - 1]] += (
            ends[number - 1, places] - ends[number - 1, cuts[number]]
        )
        home = problem.pipeline.homes[number]
        sums[home] += begins[number, cuts[number]] - begins[number, places]
        worst.append(sums)
    lacking = np.maximum((worst[0] - np.array(problem.room)[:, None]).max(axis=0), 0)
    uneven = (worst[1].astype(float) ** 2).sum(axis=0)
    order = np.lexsort((uneven, worst[1].max(axis=0), lacking))
    return (*cuts[:number], int(places[order[0]]), *cuts[number + 1 :])


def _judged(problem: SplitProblem, cuts: Sequence[int]) -> tuple[int, int, float]:
    """How many ties are broken, the value, and, of equal values, how uneven devices are."""
    loads = problem.on_devices(problem.loads, cuts)
    return broken_ties(problem, cuts), problem.value(cuts), float((loads.astype(float) ** 2).sum())


def broken_ties(problem: SplitProblem, cuts: Sequence[int]) -> int:
    """How many tied layers lie on different devices and must not."""
    homes = problem.pipeline.homes
    stage_of = np.searchsorted(cuts, np.arange(len(problem.layers)), side="right") - 1
    return sum(
        homes[stage_of[tie.one]] != homes[stage_of[tie.other]]
        for tie in problem.layers.ties
        if not tie.copies
    )


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
    for lines in (problem.loads, problem.memories):
        inside = problem.of_stages(lines, cuts)[begin:end]
        elsewhere.append(problem.on_devices(lines, cuts)[[*homes]] - inside)
    tied = [*_tied(problem, cuts, begin, end)]

    def cost(a: Ints, b: Ints, stage: int) -> Ints:
        a, b = a + first, b + first
        of = begin + stage
        load, memory = (
            lines[of].at_end[b] - lines[of].at_begin[a] + others[stage]
            for lines, others in zip((problem.load, problem.memory), elsewhere, strict=True)
        )
        lacking = memory - problem.room[homes[stage]]
        costs: Ints = np.where(lacking > 0, LARGEST_COST + lacking, load)
        for layer, home in tied:
            costs = np.where((a <= layer) & (layer < b) & (homes[stage] != home), FORBIDDEN, costs)
        return costs

    inner = masks[begin : end + 1, first : last + 1].copy()
    inner[0], inner[-1] = False, False
    inner[0, 0] = inner[-1, -1] = True
    for tie in problem.layers.ties:
        low, high = sorted((tie.one, tie.other))
        if not tie.copies and first <= low and high < last:
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
    for tie in problem.layers.ties:
        for layer, other in ((tie.one, tie.other), (tie.other, tie.one)):
            if not tie.copies and layer in inside and other not in inside:
                stage = int(np.searchsorted(cuts, other, side="right")) - 1
                yield layer, problem.pipeline.homes[stage]
