"""Uniform caps: the problem at a cap, which caps matter, and 1F1B's memory as their unit.

A *cap* is the capacity of every device, the same number for all; ``None`` is unlimited. Static
memory counts against it. The capacities that a problem came with play no part.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

from pipesat.bounds.feasibility import capacities_by_order, preflight, smallest_capacities
from pipesat.core.amounts import rounded_up
from pipesat.core.errors import Infeasible, require
from pipesat.core.strict_json import MOST
from pipesat.problem.costs import activations_of_1f1b
from pipesat.problem.problem import Problem
from pipesat.problem.variants import variants

Cap: TypeAlias = int | None

_MOST_AMOUNTS = 100_000  # beyond, every multiple of the common divisor stands for them


def at_cap(problem: Problem, cap: Cap) -> Problem:
    """Return the problem with this capacity on every device."""
    named = problem.name or "problem"
    words = "unlimited memory" if cap is None else f"cap {cap}"
    devices = tuple(replace(device, memory=cap) for device in problem.devices)
    return replace(problem, devices=devices, name=f"{named}, {words}")


def least_feasible_cap(problem: Problem) -> int:
    """Smallest cap with which a schedule exists: one microbatch at a time, on every device.

    Of more than chains, the smallest that is not proven too small.
    """

    def feasible(cap: int) -> bool:
        try:
            preflight(at_cap(problem, cap))
        except Infeasible:
            return False
        return True

    least = max(device.static for device in problem.devices)
    if problem.chains_only:
        least = max(need.capacity for need in smallest_capacities(problem))
    enough = max(need.capacity for need in capacities_by_order(problem))
    return bisect_left(range(enough), True, least, key=feasible)


@dataclass(frozen=True)
class Scale1F1B:
    """Caps in units of 1F1B's memory, the field's measure: ``cap = static + x * activations``.

    ``activations`` is the most that 1F1B holds on a device if the layers are cut into one stage
    per device (:func:`~pipesat.problem.costs.activations_of_1f1b`); ``static`` is the largest
    static part of any device, so that the same x means the same slack on the fullest.
    """

    static: int
    activations: int

    def share(self, cap: float) -> float:
        """The x of a cap."""
        return (cap - self.static) / self.activations

    def cap(self, share: Fraction) -> int:
        """The cap of an x, rounded."""
        return self.static + round(share * self.activations)


def in_1f1b(scale: Scale1F1B | None, cap: int) -> str:
    """Show a cap's share of 1F1B's memory in brackets, to be put behind the cap."""
    return "" if scale is None else f" ({rounded_up(scale.share(cap), 3)} x 1F1B)"


def scale_of(problem: Problem) -> Scale1F1B | None:
    """Return 1F1B's measure of a problem's layers; ``None`` if 1F1B has none.

    On one route the layers are its stages, in order, evenly joined to p stages. Several routes
    count if each passes p stages, as replicas of the same layers; the first one's stages stand for
    all, with the microbatches of all.
    """
    p, lengths = len(problem.devices), {len(route.stages) for route in problem.routes}
    several = len(problem.routes) > 1 and lengths != {p}
    if problem.has_lists or several or min(lengths) < p:
        return None  # of lists, 1F1B's share depends on which microbatches it holds at once
    activations = activations_of_1f1b(problem)
    static = max(device.static for device in problem.devices)
    return Scale1F1B(static, activations) if activations else None


def attainable(problem: Problem, most: int) -> Sequence[int]:
    """Every amount up to ``most`` that a device can hold at a moment, sorted.

    A cap counts only through the largest of these that it admits, so no other caps matter. On a
    device it is ``static + sum over its stages of (n * held_after_F + k * held_after_B)`` with n
    and k at most m, and the like with all that microbatches of each class can hold in their modes:
    more than what a schedule can reach, which does no harm. Where these are too many, all multiples
    of their common divisor take their place.
    """
    held = [_held(problem, stage) for stage in range(len(problem.stages))]
    found: set[int] = set()
    for device in range(len(problem.devices)):
        items = Counter[int]()
        for stage in problem.stages_on[device]:
            items.update(held[stage])
        sums = _sums(items, problem.devices[device].static, most)
        if sums is None:
            starts = [device.static for device in problem.devices if device.static <= most]
            apart = (start - min(starts) for start in starts)
            return range(min(starts), most + 1, math.gcd(*set().union(*held), *apart))
        found |= sums
    return sorted(found)


def _held(problem: Problem, stage: int) -> Counter[int]:
    """How many microbatches of a stage can hold each amount at a moment, in any mode."""
    route = problem.routes[problem.route_of[stage]]
    found = Counter[int]()
    for kind, count in route.counts.items():
        held = ((v.held, v.rest, v.most, v.after) for v in variants(problem, stage, kind))
        amounts = {amount for each in held for amount in each}
        found.update(dict.fromkeys(amounts - {0}, count))
    return found


def _sums(items: Counter[int], static: int, most: int) -> set[int] | None:
    """``static`` + all sums of at most so many of each amount; ``None`` if they are too many."""
    sums = {static} if static <= most else set()
    for amount, count in items.items():
        fresh = sums
        for _ in range(count):
            fresh = {x + amount for x in fresh if x + amount <= most}
            sums = sums | fresh
            if len(sums) > _MOST_AMOUNTS:
                return None
            if not fresh:
                break
    return sums


def choose_caps(problem: Problem, highest: int, count: int, also: Sequence[int] = ()) -> list[int]:
    """Choose ``count`` caps, or all that matter, from the smallest feasible one to ``highest``.

    Among them are these two, and between them those of ``also`` and the one that is surely enough,
    even if these are more.
    Steps are likely where one more microbatch fits, so the caps are taken from the multiples of
    1/p of 1F1B's memory, and only if these are too few from all attainable amounts. One after the
    other, the widest gap between caps is halved, in ratio: at 1/4 of 1F1B's memory 1/8 more counts
    as much as 1/2 more at all of it.
    """
    lowest, amounts = least_feasible_cap(problem), attainable(problem, highest)
    scale, p = scale_of(problem), len(problem.devices)
    whole = []
    if scale is not None:
        shares = (Fraction(k, p) for k in range(1, int(scale.share(highest) * p) + 1))
        whole = [rounded_down(amounts, scale.cap(share)) for share in shares]
    top = max(lowest, rounded_down(amounts, highest))
    sure = max(need.capacity for need in capacities_by_order(problem))
    chosen = {lowest, top, *(cap for cap in (*also, sure) if lowest <= cap <= top)}
    for options in (whole, amounts):
        while len(chosen) < count and (cap := _halving(chosen, options)) is not None:
            chosen.add(cap)
    return sorted(chosen)


def rounded_down(amounts: Sequence[int], cap: int) -> int:
    """The largest amount within a cap; the cap itself if there is none."""
    index = bisect_right(amounts, cap)
    return amounts[index - 1] if index else cap


def _halving(chosen: set[int], options: Sequence[int]) -> int | None:
    """The option that halves the widest gap between chosen caps."""
    found = []
    for low, high in pairwise(sorted(chosen)):
        at = bisect_right(options, math.isqrt(max(1, low) * high))
        near = [cap for cap in options[max(0, at - 1) : at + 1] if low < cap < high]
        found += [(min(cap / max(1, low), high / cap), cap) for cap in near]
    return max(found)[1] if found else None


def readable_caps(problem: Problem, texts: Sequence[int | Fraction]) -> list[int]:
    """Turn given caps (numbers, or shares of 1F1B's memory) into numbers, sorted, without doubles.

    Raises
    ------
    BadInput
        If one is below the smallest feasible cap or beyond the format's limit, or a share is given
        and 1F1B has no measure here.
    """
    lowest, scale = least_feasible_cap(problem), scale_of(problem)
    require(
        scale is not None or all(not isinstance(given, Fraction) for given in texts),
        "this problem has no share of 1F1B's memory, expected numbers",
        where="caps",
    )
    caps = sorted({scale.cap(x) if scale and isinstance(x, Fraction) else int(x) for x in texts})
    for cap in caps:
        require(
            lowest <= cap <= MOST,
            f"expected at least {lowest}, below which no schedule exists, and at most 10^12",
            where="caps",
            value=cap,
        )
    return caps
