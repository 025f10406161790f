"""What no deal goes below: for one schedule, and for any.

For one schedule: the mean replica (:mod:`pipesat.solver.proof.place_prices`), and what one replica
must hold: the longest sequence, or of the k R + 1 longest at least k + 1 (pigeonholes). For any
schedule: a device's mean work between the shortest way to it and back. docs/proofs/bounds.md
has the arguments.
"""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement
from math import ceil, comb
from typing import Final

import numpy as np

from pipesat.compare.replicas.deal import Load
from pipesat.compare.replicas.replay import column
from pipesat.core.arrays import Ints
from pipesat.core.claims import Bound
from pipesat.problem.problem import Problem
from pipesat.solver.proof.place_prices import Prices, place_prices

_ERROR: Final = 1e-11  # of sums of floats, at most: rounding cannot lift a bound
_MOST_OPS: Final = 2048  # of a replica in the programme: a few seconds
_GROUPS: Final = 2000  # shares in the programme: groups times places
_CASES: Final = 4_000_000  # ops in replays of what one replica must hold
_LONGEST: Final = 64
_ROWS: Final = 1 << 15


def bound_of_schedule(load: Load, name: str) -> Bound:
    """Return the best bound on the slowest replica under the schedule called so."""
    mean = np.repeat(load.costs.mean(axis=0)[:-1, None], load.replay.places, axis=1)
    nothing = np.zeros(load.replay.places)
    paths = [Prices(load.replay.longest_path(mean[:, :, None]), nothing, nothing)]
    if len(load.replay.ops) <= _MOST_OPS and (prices := _prices(load)) is not None:
        paths.append(prices)
    found = [Bound(value_at(load, prices), f"mean replica under {name}") for prices in paths]
    return max([*found, *_of_holding(load, name)], key=lambda bound: bound.value)


def value_at(load: Load, prices: Prices) -> int:
    """Return what the mean replica takes at least at any prices.

    Each sequence stands where it is cheapest: the sum over sequences of min over places j of ``cost
    - place[j] + tokens token[j]``, a replica's share of it, and what the places and their tokens
    come to. Prices of places may be negative only where each has exactly one sequence.
    """
    total = 0.0
    for begin in range(0, len(load.costs), _ROWS):
        rows = slice(begin, begin + _ROWS)
        costs = load.costs[rows, :-1] @ prices.amounts.T - prices.place
        costs += load.tokens[rows, None] * (prices.token / (load.cap or 1))
        total += float(costs.min(axis=1).sum())
    mean, fixed = total / load.replicas, float(prices.place.sum()) - float(prices.token.sum())
    number = len(load.costs) / load.replicas
    size = abs(mean) + number * float(abs(prices.place).max()) + float(prices.token.sum())
    return max(0, ceil(mean + fixed - _ERROR * size))


def _prices(load: Load) -> Prices | None:
    by_work = load.work.argsort(kind="stable")
    count = max(8, min(len(by_work), _GROUPS // load.replay.places))
    groups = [group for group in np.array_split(by_work, count) if len(group)]
    means = np.array([load.costs[group].mean(axis=0) for group in groups])
    numbers = np.array([len(group) / load.replicas for group in groups])
    return place_prices(
        load.replay, means[:, :-1], means[:, -1], numbers, load.cap, whole=load.whole
    )


def _of_holding(load: Load, name: str) -> list[Bound]:
    """Bounds from what some replica holds, all else as small as any sequence."""
    least, m = load.costs.min(axis=0), load.replay.places
    descending = (-load.work).argsort(kind="stable")
    left = _CASES // len(load.replay.ops)
    longest = load.costs[descending[: min(_LONGEST, left // m)]]
    found = [Bound(_least_with(load, least, longest, 1), f"longest sequence under {name}")]
    for more in range(1, len(load.costs)):
        together = more * load.replicas + 1
        ways = comb(m, more + 1) if load.whole else comb(m + more, more + 1)
        left -= ways
        if together > len(load.costs) or not ways or left < 0:
            break
        held = load.costs[descending[:together]].min(axis=0)[None]
        text = f"{more + 1} of the {together} longest in one replica under {name}"
        found.append(Bound(_least_with(load, least, held, more + 1), text))
    return found


def _least_with(load: Load, least: Ints, held: Ints, copies: int) -> int:
    """Makespan of a replica with so many of one of ``held``, in the best places; the worst one."""
    m = load.replay.places
    choose = combinations if load.whole else combinations_with_replacement
    ways = np.zeros((comb(m, copies) if load.whole else comb(m + copies - 1, copies), m))
    for row, places in enumerate(choose(range(m), copies)):
        np.add.at(ways[row], list(places), 1)
    counts = ways.astype(np.int64).T[None]  # (1, m, ways)
    worst = 0
    for one in held:
        costs = np.maximum(counts * one[:, None, None], least[:, None, None])
        worst = max(worst, int(load.replay.makespans(costs).min()))
    return worst


def bound_of_any(problem: Problem, costs: Ints, replicas: int) -> Bound | None:
    """Return a bound that holds for any schedule; ``None`` with modes or pairs.

    ``costs`` has all columns, shape (n, columns).
    """
    if problem.has_modes or problem.overlap is not None:
        return None
    (route,) = problem.routes

    def amount(stage: int, name: str) -> Ints:
        return costs[:, column(stage, name)]

    shortest: dict[int, Ints] = {}
    work: dict[int, Ints] = {}
    for number in route.stages:
        stage = problem.stages[number]
        split, fused = amount(number, "B"), amount(number, "BW")
        both = split + amount(number, "W")
        ways = [(split, both)] * stage.may_split + [(fused, fused)] * stage.may_fuse
        shortest[number] = np.minimum.reduce([way[0] for way in ways])
        work[number] = np.minimum.reduce([way[1] for way in ways])
    there: Ints = np.zeros(len(costs), dtype=np.int64)
    back = there
    found: list[int] = []
    seen: set[int] = set()
    for number in route.stages:
        device = problem.stages[number].device
        if device not in seen:
            seen.add(device)
            own = [s for s in route.stages if problem.stages[s].device == device]
            forward = sum(int(amount(s, "F").sum()) for s in own)
            for backward, tail in ((work, 0), (shortest, int(back.min()))):
                busy = forward + sum(int(backward[s].sum()) for s in own)
                found.append(-(-busy // replicas) + int(there.min()) + tail)
        hop = problem.next[number]
        linked = int(hop is not None and problem.stages[hop].device != device)
        there = there + amount(number, "F") + amount(number, "delay F") * linked
        back = back + shortest[number] + amount(number, "delay B") * linked
    alone = int((there + back).max())
    if alone >= max(found):
        return Bound(alone, "longest sequence alone, any schedule")
    return Bound(max(found), "mean work of a device, way there and back, any schedule")
