"""Splits whose most loaded device has least to do, within memory: exact where it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from math import comb
from typing import Final, Literal, TypeAlias

import numpy as np

from pipesat.core.amounts import memory_text, rounded_down
from pipesat.core.arrays import Ints
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.layers.layer import Layers
from pipesat.layers.linear_costs import LineMaker, SplitProblem, loads, split_problem_of
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import (
    check_counts,
    cut_masks,
    cuts_of,
    same_stage,
)
from pipesat.layers.several_stages import Tracks, broken_ties, improved, tracks_of
from pipesat.problem.partition import partition_of
from pipesat.problem.split import LARGEST_COST, Split, best_split

Recompute: TypeAlias = Literal["never", "always", "where_needed"]

EXACT_V: Final = 200
"""Up to so many layers, a split on a V is exact."""
EXACT_LOOP: Final = 100
"""Up to so many layers, a split on a loop of two is exact."""
EXACT_CUTS: Final = 20_000
"""Up to so many ways to cut, all of them are looked at."""
_SLACK: Final = 3  # stages of so many times the mean length are tried first
_KICKS: Final = 600  # of a local search, divided by the number of layers


def smallest_largest(
    layers: Layers,
    pipeline: Pipeline,
    *,
    lines: LineMaker | None = None,
    in_flight: Sequence[int] | None = None,
    recompute: Recompute = "never",
) -> Split:
    """Split layers so that the most loaded device has least to do, within every device's memory.

    Parameters
    ----------
    lines
        What counts as load: :func:`~pipesat.layers.linear_costs.loads` (the default: F + BW), or
        :func:`~pipesat.layers.linear_costs.makespan_lines`.
    in_flight
        Microbatches whose activations every stage holds when its device holds most; ``None``: one.
    recompute
        Which stages compute activations again; ``where_needed``: those that do not fit without. In
        a chain that choice is part of the exact programme; elsewhere, all do if no split without
        fits, and then those that need not are taken back.

    Returns
    -------
    Split
        Proven best in a chain, in a V of up to 200 layers, in a loop of two of up to 100, and where
        there are at most 20,000 ways to cut; else the best that a local search found, with a bound
        from below.

    Raises
    ------
    BadInput
        If there are fewer layers than stages, or flags and ties cannot be kept.
    Infeasible
        If no split fits into memory: names the layer that fits on no device, or what is lacking.
    NotApplicable
        If the local search found no split that fits, though one may exist.
    """
    check_cuttable(layers, pipeline)

    def problem(flags: Sequence[bool]) -> SplitProblem:
        return split_problem_of(layers, pipeline, lines or loads(), flags, in_flight)

    never, always = ([flag] * pipeline.stages for flag in (False, True))
    if recompute == "where_needed" and layers.recomputable:
        choices = [problem(never), problem(always)]
    else:
        choices = [problem(always if recompute == "always" else never)]
    if pipeline.stages == pipeline.devices:
        return _chain(choices)
    return _several_per_device(choices, problem)


def _chain(choices: Sequence[SplitProblem]) -> Split:
    """One stage per device; a stage takes the first choice in which it fits."""
    first, last = choices[0], choices[-1]

    def cost(a: Ints, b: Ints, stage: int) -> Ints:
        costs = last.memory.cost(a, b, stage) + (LARGEST_COST - last.slack[stage])
        for problem in reversed(choices):
            fits = problem.memory.cost(a, b, stage) <= problem.slack[stage]
            np.copyto(costs, problem.load.cost(a, b, stage), where=fits)
        return costs

    layers, stages = first.layers, first.pipeline.stages
    masks = same_stage(layers, cut_masks(layers, stages))
    longest = _SLACK * -(-len(layers) // stages)
    while True:
        found = best_split(cost, len(layers), stages, masks=masks, longest=longest)
        needed = len(layers) if found is None else _longest_within(choices, found.value)
        if needed <= longest:
            break
        longest = max(needed, 2 * longest)
    if found is None:
        raise BadInput(_no_way(first))
    if found.value > LARGEST_COST:
        raise Infeasible(why_no_split_fits(last, found.value - LARGEST_COST))
    lacking = first.on_devices(first.memory, cuts_of(found.partition)) > first.slack
    again = last.recompute if len(choices) == 1 else tuple(map(bool, lacking))
    return replace(found, recompute=again if any(again) else ())


def _no_way(problem: SplitProblem) -> str:
    stages = problem.pipeline.stages
    return f"flags and ties leave no way to cut {len(problem.layers)} layers into {stages}"


def _longest_within(choices: Sequence[SplitProblem], most: int) -> int:
    """Most layers that a stage can have without costing more than ``most``."""
    if most >= LARGEST_COST:
        return len(choices[0].layers)
    longest = 0
    for problem in choices:
        for at_end, at_begin in zip(problem.load.ends, problem.load.begins, strict=True):
            ends = np.searchsorted(at_end, at_begin + most, side="right") - 1
            longest = max(longest, int((ends - np.arange(len(ends))).max()))
    return longest


def _several_per_device(
    choices: Sequence[SplitProblem], problem_of: Callable[[Sequence[bool]], SplitProblem]
) -> Split:
    """The first choice in which a split fits; stages that need not recompute are taken back."""
    for number, problem in enumerate(choices):
        cuts, exact = _least(problem)
        if cuts is None:
            continue
        proven = exact and number == 0
        chosen = _taken_back(problem, cuts, problem_of) if number else problem
        value = chosen.value(cuts)
        bound = value if proven else min(choices[0].lower_bound(), value)
        again = chosen.recompute if any(chosen.recompute) else ()
        return Split(partition_of(cuts), value, bound, again)
    roomy = replace(choices[-1], slack=(LARGEST_COST,) * choices[-1].pipeline.devices)
    if exact and _least(roomy)[0] is None:
        raise BadInput(_no_way(roomy))
    reason = why_no_split_fits(choices[-1])
    if reason or exact:
        raise Infeasible(reason or "no split fits into the devices' memory, flags and ties kept")
    raise NotApplicable("no split was found that fits into memory, and none was proven impossible")


def _least(problem: SplitProblem) -> tuple[tuple[int, ...] | None, bool]:
    """The best cuts, ``None`` if none fits; and whether both are certain."""
    layers, pipeline = problem.layers, problem.pipeline
    count, p, stages = len(layers), pipeline.devices, pipeline.stages
    if comb(count - 1, stages - 1) <= EXACT_CUTS:
        return _enumerated(problem), True
    if pipeline.placement == "vee" and count <= EXACT_V:
        return _exact(problem, [tracks_of(layers, pipeline)]), True
    if stages == 2 * p and count <= EXACT_LOOP:
        # the most even second rounds first: a good value early makes the others short
        seconds = sorted(range(p, count - p + 1), key=lambda x: abs(2 * x - count))
        return _exact(problem, [tracks_of(layers, pipeline, second) for second in seconds]), True
    return _searched(problem, _KICKS // count), False


def _enumerated(problem: SplitProblem) -> tuple[int, ...] | None:
    """Look at all ways to cut."""
    layers, stages = len(problem.layers), problem.pipeline.stages
    inner = np.array([*combinations(range(1, layers), stages - 1)], dtype=np.int64)
    ends = np.full((len(inner), 1), layers)
    cuts = np.hstack([np.zeros_like(ends), inner.reshape(len(ends), stages - 1), ends])
    rows = np.arange(stages)
    allowed = cut_masks(problem.layers, stages)[np.arange(stages + 1), cuts].all(axis=1)
    homes = np.array(problem.pipeline.homes)
    for pair in problem.layers.bound:
        one, other = (homes[(cuts[:, 1:] <= k).sum(axis=1)] for k in pair)
        allowed &= one == other
    costs = [
        (lines.ends[rows, cuts[:, 1:]] - lines.begins[rows, cuts[:, :-1]]) @ problem.on.T
        for lines in (problem.memory, problem.load)
    ]
    fits = (costs[0] <= np.array(problem.slack)).all(axis=1) & allowed
    if not fits.any():
        return None
    best = int(np.where(fits, costs[1].max(axis=1), LARGEST_COST).argmin())
    return tuple(map(int, cuts[best]))


def _exact(problem: SplitProblem, tracks: Sequence[Tracks]) -> tuple[int, ...] | None:
    """Cuts of the least value; ``None`` if no split fits."""
    best, low = _searched(problem, 0), problem.lower_bound()
    value = LARGEST_COST if best is None else problem.value(best)
    for track in tracks:
        floor, most = low, value - 1
        while floor < value:
            limits = [
                (problem.load, [most] * problem.pipeline.devices),
                (problem.memory, problem.slack),
            ]
            found = track.cuts(limits)
            if found is None:
                floor = most + 1
            else:
                best, value = found, problem.value(found)
            most = (floor + value) // 2
    return best


def _searched(problem: SplitProblem, kicks: int) -> tuple[int, ...] | None:
    """Cuts that a local search finds; ``None`` if none of them fits or ties are broken."""
    layers, stages = problem.layers, problem.pipeline.stages
    masks, starts = cut_masks(layers, stages), []
    for lines in (problem.load, problem.memory):
        found = best_split(lines.cost, len(layers), stages, masks=masks)
        if found is not None:
            starts.append(improved(problem, cuts_of(found.partition), kicks))
    fit = [cuts for cuts in starts if not broken_ties(problem, cuts)]
    best = min(fit, key=problem.value, default=None)
    return None if best is None or problem.value(best) >= LARGEST_COST else best


def _taken_back(
    problem: SplitProblem, cuts: Sequence[int], problem_of: Callable[[Sequence[bool]], SplitProblem]
) -> SplitProblem:
    """The same split, recomputing on fewer stages: those that save most are taken back first."""
    plain = problem_of([False] * problem.pipeline.stages)
    saved = problem.load.of(cuts) - plain.load.of(cuts)
    for stage in np.argsort(-saved, kind="stable"):
        flags = list(problem.recompute)
        flags[stage] = False
        less = problem_of(flags)
        if less.value(cuts) <= problem.value(cuts):
            problem = less
    return problem


def check_cuttable(layers: Layers, pipeline: Pipeline) -> None:
    """Pass unless counts, flags or ties surely leave no way to cut the layers."""
    stages = pipeline.stages
    check_counts(layers, stages)
    places = same_stage(layers, cut_masks(layers, stages))[1:stages, 1:-1].any(axis=0).sum()
    if stages == pipeline.devices > 1 and places < stages - 1:
        pairs = [" and ".join(map(layers.label, pair)) for pair in layers.bound]
        raise BadInput(
            f"{stages} stages on {stages} devices need {stages - 1} cuts. {', '.join(pairs)} share "
            f"weights, so every layer between lies on the same device. That leaves {places} places."
            ' Take a V, which has the first and the last stage on one device, or "tie": "copies"',
            where="stages",
        )


def why_no_split_fits(problem: SplitProblem, lacking: int | None = None) -> str:
    """Say why no split fits into memory; empty if simple arithmetic cannot.

    ``lacking`` is what the best split lacks on a device, where that is known.
    """
    layers, homes = problem.layers, problem.pipeline.homes
    said = partial(memory_text, unit=layers.memory_unit)
    slacks = np.maximum(problem.slack, 0)
    ends, begins = problem.memory.ends, problem.memory.begins
    begin_of = [k for k, cut in enumerate(layers.may_cut) if cut]
    for begin, end in pairwise(begin_of):  # layers that no cut can part
        needs = ends[:, end] - begins[:, begin]
        stage = int(np.argmin(needs - slacks[[*homes]]))
        if needs[stage] > slacks[homes[stage]]:
            most = said(int(slacks[homes[stage]]), towards=rounded_down)
            last = f" to {layers.label(end - 1)}, kept together," if end - begin > 1 else ""
            return (
                f"{layers.label(begin)}{last} fits on no device: on stage {stage}, where "
                f"least is missing, {said(int(needs[stage]))} are needed, microbatches in flight: "
                f"{problem.in_flight[stage]}; device {homes[stage]} has memory for "
                f"{most}: give devices more memory, or make microbatches "
                "smaller"
            )
    least = int(np.diff(ends, axis=1).min(axis=0).sum())
    slack = sum(map(int, slacks))
    if least > slack:
        return (
            f"all layers need at least {said(least)} together, all devices have memory for "
            f"{said(slack, towards=rounded_down)}"
        )
    if lacking is None:
        return ""
    return (
        f"no split of {len(layers)} layers into {len(homes)} stages fits: even the best lacks "
        f"{said(lacking)} on a device"
    )
