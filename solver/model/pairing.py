"""Which kinds of ops gain by running as a pair, and when a backward is worth fusing for it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations_with_replacement, product
from types import MappingProxyType
from typing import Final, TypeAlias

from pipesat.problem.ops import PHASE_OF, Kind, Op, OpKind
from pipesat.problem.problem import Problem, once
from pipesat.problem.rules import duration, one_of_each, pair_time, time_together
from pipesat.problem.variants import Variant, variants
from pipesat.solver.model.turns import Name, precedes

Gains: TypeAlias = Mapping[tuple[OpKind, OpKind], int]
"""Times of the pairs of two kinds that gain something, in either order of the two."""

NO_GAINS: Final[Gains] = MappingProxyType({})


@once
def gains(problem: Problem) -> Gains:
    """Return the times of all pairs that take less than their members in turn.

    No other pair is needed: its members in turn take no longer, end no later, and hold no more, as
    the first takes no less than it leaves behind. An op of a kind that its stage never runs has
    none. Where microbatches differ, these are the times of the longest op of each kind: a pair by
    factor gains by them if it gains by any, as ``s - ceil(s num / den)`` does not fall with s. What
    two ops take, :func:`time_that_gains` says.
    """
    if problem.overlap is None:
        return NO_GAINS
    found: dict[tuple[OpKind, OpKind], int] = {}
    longest = _longest(problem)
    for stages in problem.stages_on:
        kinds = [(stage, kind) for stage in stages for kind in _kinds(problem, stage)]
        for one, other in combinations_with_replacement(kinds, 2):
            for a, b in product(longest[one], longest[other]):
                time = time_together(problem, a, b)
                if time is not None and time < duration(problem, a) + duration(problem, b):
                    found[one, other] = found[other, one] = time
    return found


def time_that_gains(problem: Problem, known: Gains, a: Op, b: Op) -> int | None:
    """Time of a pair of two ops, if it gains something and they may run as one.

    Whether memory and the order of microbatches leave it possible is asked only where they are
    alike, on chains: slices and graphs let other ops meet, and a stage without a backward holds
    nothing once its F has ended.
    """
    if not (problem.plain and problem.chains_only):
        time = pair_time(problem, a, b)
        gained = time is not None and time < duration(problem, a) + duration(problem, b)
        return time if gained else None
    time = known.get((a[:2], b[:2]))
    names = (Name(op.stage, PHASE_OF[op.kind], op.microbatch) for op in (a, b))
    return time if time is not None and may_coincide(problem, *names) else None


def least_time(problem: Problem, op: Op) -> int:
    """Least time in which an op runs, alone or as a pair with whatever its device has."""
    if problem.overlap is None:
        return duration(problem, op)
    key = ("least time", op.stage, op.kind, problem.class_of(*op[::2]), op.mode)
    if key not in problem.answers:
        found = (time_together(problem, op, other) for other in one_of_each(problem))
        times = [duration(problem, op), *(time for time in found if time is not None)]
        problem.answers[key] = min(times)
    found_before: int = problem.answers[key]
    return found_before


def useful_variants(problem: Problem, stage: int, of_class: int, known: Gains) -> list[Variant]:
    """Variants of a stage for a class, without BW where it is never the better choice.

    It may be by itself, or in a pair that gains (``known``). Elsewhere B and then W in its place
    take no longer and hold no more.
    """
    paired = any(one == (stage, "BW") for one, _ in known)
    return [
        variant
        for variant in variants(problem, stage, of_class)
        if variant.split
        or paired
        or not problem.stages[stage].has_backward
        or problem.resulting(stage, variant.mode, of_class).fusing_may_pay
    ]


def may_coincide(problem: Problem, x: Name, y: Name) -> bool:
    """Whether two phases of a device can run as one, where memory admits it.

    Of one stage and phase only neighbours in microbatch order can: those between would have to run
    at the same time, unless they are weight gradients of backwards that are fused.
    """
    if x[:2] == y[:2]:
        absent = x.phase == "W" and problem.stages[x.stage].may_fuse
        return absent or abs(x.microbatch - y.microbatch) == 1
    if precedes(problem, x, y) or precedes(problem, y, x):
        return False
    return _least_held(problem, x, y) <= _slack(problem, x.stage)


def _slack(problem: Problem, stage: int) -> float:
    slack = problem.devices[problem.stages[stage].device].slack
    return float("inf") if slack is None else slack


def _least_held(problem: Problem, x: Name, y: Name) -> int:
    """Least memory that the device holds while both run: what both say of how far others are."""
    total = 0
    for stage in problem.stages_on[problem.stages[x.stage].device]:
        data = problem.stages[stage]
        started = 0
        ended = freed = problem.microbatches[stage]
        for z in (x, y):
            if problem.route_of[z.stage] != problem.route_of[stage]:
                continue
            later = problem.place_of[stage] > problem.place_of[z.stage]
            if z.phase != "F" or not later:
                started = max(started, z.microbatch + 1)
            if z.phase == "F" or (z.phase == "B" and not later):
                ended = min(ended, z.microbatch)
            if z.phase == "F" or z.stage == stage or (z.phase == "B" and not later):
                freed = min(freed, z.microbatch)
        ended = min(ended, started)
        total += data.held_after_F * (started - ended)
        if not data.may_fuse:  # else their backwards may have been fused, and all is free
            kept = min(data.held_after_F, data.held_after_B)
            total += kept * max(0, ended - freed)
    return total


def _longest(problem: Problem) -> dict[OpKind, list[Op]]:
    """By stage and kind, the op that takes longest in keep, and in any mode."""
    found: dict[OpKind, dict[bool, Op]] = {}
    for op in one_of_each(problem):
        known = found.setdefault(op[:2], {})
        for in_any in (False, True) if not op.mode else (True,):
            if in_any not in known or duration(problem, op) > duration(problem, known[in_any]):
                known[in_any] = op
    return {kind: [*dict.fromkeys(known.values())] for kind, known in found.items()}


def _kinds(problem: Problem, stage: int) -> list[Kind]:
    split = {variant.split for variant in variants(problem, stage, 0)}
    used = {"F", *(("B", "W") if True in split else ()), *(("BW",) if False in split else ())}
    return [kind for kind in PHASE_OF if kind in used]
