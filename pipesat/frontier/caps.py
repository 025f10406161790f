"""Uniform caps: the problem at a cap, which caps matter, and 1F1B's memory as their unit.

A *cap* is the capacity of every device, the same number for all; ``None`` is unlimited. Static
memory counts against it. The capacities that a problem came with play no part.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

from pipesat.bounds.feasibility import capacities_by_order, preflight, smallest_capacities
from pipesat.core.errors import BadInput, Infeasible
from pipesat.core.problem import Problem
from pipesat.files.folder import changed_problem
from pipesat.files.strict_json import MOST
from pipesat.placement.documents import activations_of_1f1b

Cap: TypeAlias = int | None

_MOST_AMOUNTS = 100_000  # beyond, every multiple of the common divisor stands for them


def at_cap(problem: Problem, cap: Cap) -> Problem:
    """Return the problem with this capacity on every device."""
    named = problem.name or "problem"
    words = "unlimited memory" if cap is None else f"cap {cap}"
    return with_capacities(problem, [cap] * len(problem.devices), f"{named}, {words}")


def with_capacities(problem: Problem, caps: Sequence[Cap], name: str) -> Problem:
    """Return the problem with these capacities, one per device, under another name."""
    return changed_problem(problem, devices=[{"memory": cap} for cap in caps], name=name)


def least_feasible_cap(problem: Problem) -> int:
    """Smallest cap with which a schedule exists: one microbatch at a time, on every device."""
    least = max(need.capacity for need in smallest_capacities(problem))
    enough = max(need.capacity for need in capacities_by_order(problem))
    return bisect_left(range(enough), True, least, key=lambda cap: _feasible(at_cap(problem, cap)))


def _feasible(problem: Problem) -> bool:
    try:
        preflight(problem)
    except Infeasible:
        return False
    return True


@dataclass(frozen=True)
class Scale1F1B:
    """Caps in units of 1F1B's memory, the field's measure: ``cap = static + x * activations``.

    ``activations`` is the most that 1F1B holds on a device if the layers are cut into one stage
    per device, ``max over d of min(p - d, m) * held_after_F``; ``static`` is the largest static
    part of any device, so that the same x means the same room on the fullest.
    """

    static: int
    activations: int

    def share(self, cap: float) -> float:
        """The x of a cap."""
        return (cap - self.static) / self.activations

    def cap(self, share: Fraction) -> int:
        """The cap of an x, rounded."""
        return self.static + round(share * self.activations)


def scale_of(problem: Problem) -> Scale1F1B | None:
    """Return 1F1B's measure of a problem's layers; ``None`` if 1F1B has none.

    On one route the layers are its stages, in order, evenly joined to p stages. Several routes
    count if each passes p stages, as replicas of the same layers; the first one's stages stand for
    all, with the microbatches of all.
    """
    p = len(problem.devices)
    stages = problem.routes[0].stages
    if problem.has_lists:  # what 1F1B holds depends on which microbatches it holds at once
        return None
    if len(problem.routes) > 1 and any(len(route.stages) != p for route in problem.routes):
        return None
    if len(stages) < p:
        return None
    activations = activations_of_1f1b(problem)
    static = max(device.static for device in problem.devices)
    return Scale1F1B(static, activations) if activations else None


def attainable(problem: Problem, most: int) -> Sequence[int]:
    """Every amount up to ``most`` that some device can hold at some moment, sorted.

    A cap counts only through the largest of these that it admits, so no other caps matter.
    """
    each = [attainable_on(problem, device, most) for device in range(len(problem.devices))]
    if any(isinstance(amounts, range) for amounts in each):
        starts = {amounts[0] for amounts in each if amounts}
        apart = (start - min(starts) for start in starts)
        return range(min(starts), most + 1, math.gcd(*_steps(problem), *apart))
    return sorted(set().union(*each))


def attainable_on(problem: Problem, device: int, most: int) -> Sequence[int]:
    """Every amount up to ``most`` that a device can hold at some moment, sorted.

    It is ``static + sum over its stages of (n * held_after_F + k * held_after_B)`` with n and k at
    most m, and the like with all that microbatches of each class can hold in their modes: more than
    what a schedule can reach, which does no harm. Where these are too many, all multiples of their
    common divisor take their place.
    """
    static = problem.devices[device].static
    items: dict[int, int] = {}
    for number in problem.stages_on[device]:
        for amounts, count in amounts_held(problem, number):
            for amount in amounts:
                items[amount] = items.get(amount, 0) + count
    sums = _sums(items, static, most)
    return range(static, most + 1, math.gcd(*_steps(problem))) if sums is None else sorted(sums)


def _steps(problem: Problem) -> set[int]:
    each = (held for s in range(len(problem.stages)) for held, _ in amounts_held(problem, s))
    return {amount for held in each for amount in held if amount}


def amounts_held(problem: Problem, number: int) -> list[tuple[set[int], int]]:
    """Every amount that a microbatch of a stage can hold at a moment, in any mode.

    For each class of microbatches, with how many there are of it.
    """
    classes = problem.routes[problem.route_of[number]].classes
    counted = Counter(classes) if classes else {0: problem.microbatches[number]}
    return [(_held_by(problem, number, kind), count) for kind, count in counted.items()]


def _held_by(problem: Problem, number: int, kind: int) -> set[int]:
    found: set[int] = set()
    for mode in problem.modes_of(number):
        stage = problem.resulting(number, mode, kind)
        found |= {stage.held_after_F, max(stage.held_after_F, stage.held_in_backward)}
        if stage.may_split:
            found |= {stage.held_after_B, max(stage.held_after_B, stage.held_in_backward)}
        if stage.offload is not None:
            found.add(stage.offload.held)
    return found


def _sums(items: Mapping[int, int], static: int, most: int) -> set[int] | None:
    """``static`` + all sums of at most so many of each amount; ``None`` if they are too many."""
    sums = {static} if static <= most else set()
    for amount, count in items.items():
        fresh = set(sums)
        for _ in range(count if amount else 0):
            fresh = {x + amount for x in fresh if x + amount <= most}
            sums |= fresh
            if len(sums) > _MOST_AMOUNTS:
                return None
            if not fresh:
                break
    return sums


def rounded_down(amounts: Sequence[int], cap: int) -> int:
    """The largest amount within a cap; the cap itself if there is none."""
    index = bisect_right(amounts, cap)
    return amounts[index - 1] if index else cap


def choose_caps(problem: Problem, highest: int, count: int) -> list[int]:
    """Choose ``count`` caps, or all that matter, from the smallest feasible one to ``highest``.

    Steps are likely where one more microbatch fits, so the caps are taken from the multiples of
    1/p of 1F1B's memory, and only if these are too few from all attainable amounts. One after the
    other, the widest gap between caps is halved, in ratio: at 1/4 of 1F1B's memory 1/8 more counts
    as much as 1/2 more at all of it.
    """
    lowest = least_feasible_cap(problem)
    if highest <= lowest or count < 2:
        return [lowest]
    amounts = attainable(problem, highest)
    within = amounts[bisect_right(amounts, lowest) :]
    chosen = [rounded_down(amounts, lowest), rounded_down(amounts, highest)]
    chosen[0] = max(chosen[0], lowest)
    scale = scale_of(problem)
    if scale is not None:
        p = len(problem.devices)
        most = int(scale.share(highest) * p)
        whole = (scale.cap(Fraction(k, p)) for k in range(1, most + 1))
        _spread(chosen, [rounded_down(amounts, c) for c in whole if c > lowest], count)
    _spread(chosen, within, count)
    return sorted(set(chosen))


def _spread(chosen: list[int], options: Sequence[int], count: int) -> None:
    """Add the options that halve the widest gaps, until there are ``count``."""
    options = sorted(set(options) - set(chosen)) if isinstance(options, list) else options
    while len(set(chosen)) < count:
        marks = sorted(set(chosen))
        best: tuple[float, int] | None = None
        for low, high in pairwise(marks):
            between = _nearest(options, low, high)
            if between is not None:
                size = min(between / max(1, low), high / between)
                if best is None or (size, between) > best:
                    best = (size, between)
        if best is None:
            return
        chosen.append(best[1])


def _nearest(options: Sequence[int], low: int, high: int) -> int | None:
    """The option strictly between two caps that is nearest to their geometric mean."""
    middle = math.isqrt(max(1, low) * high)
    index = bisect_right(options, middle)
    around = [options[i] for i in (index - 1, index) if 0 <= i < len(options)]
    inside = [option for option in around if low < option < high]
    return min(inside, key=lambda option: abs(option - middle), default=None)


def readable_caps(problem: Problem, texts: Sequence[int | Fraction]) -> list[int]:
    """Turn given caps (numbers, or shares of 1F1B's memory) into numbers, sorted, without doubles.

    Raises
    ------
    BadInput
        If one is below the smallest feasible cap or beyond the format's limit, or a share is given
        and 1F1B has no measure here.
    """
    lowest, scale = least_feasible_cap(problem), scale_of(problem)
    caps = []
    for given in texts:
        if isinstance(given, Fraction):
            if scale is None:
                raise BadInput(
                    "this problem has no share of 1F1B's memory, expected numbers", where="caps"
                )
            cap = scale.cap(given)
        else:
            cap = given
        if not lowest <= cap <= MOST:
            raise BadInput(
                f"expected at least {lowest}, below which no schedule exists, and at most 10^12",
                where="caps",
                value=cap,
            )
        caps.append(cap)
    return sorted(set(caps))
