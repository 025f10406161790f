"""Deals of tiny cases against all there are, timed by code that shares nothing with the product."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import permutations, product
from math import ceil
from typing import Any

import pytest

import pipesat

Row = list[list[int]]
"""Per stage F, BW, what is held, delay F, delay B."""


def taken(document: dict[str, Any], length: int, reference: int, share: str) -> Row:
    """What a sequence takes alone: section 8 of the contract, here in fractions."""
    x, q = Fraction(length, reference), Fraction(share)
    time = Fraction(ceil(((1 - q) * x + q * x * x) * 10**4), 10**4)
    other = Fraction(ceil(x * 10**4), 10**4)
    comm = document["comm"]["default"]
    return [
        [
            ceil(s["F"] * time),
            ceil(s["B"] * time) + ceil(s["W"] * time),
            ceil(s["held_after_F"] * other),
            ceil(comm * other),
            ceil(comm * other),
        ]
        for s in document["stages"]
    ]


def together(rows: Sequence[Row]) -> Row:
    return [[sum(parts) for parts in zip(*stage, strict=True)] for stage in zip(*rows, strict=True)]


def makespan(parts: Sequence[Row], slacks: Sequence[int | None]) -> int | None:
    """1F1B, each op as early as possible; ``None`` if a device holds more than it may."""
    p, m = len(parts[0]), len(parts)
    rows = []
    for rank in range(p):
        warm_up = min(p - 1 - rank, m)
        row = [("F", k) for k in range(warm_up)]
        for k in range(m):
            row += [("F", warm_up + k)] * (warm_up + k < m) + [("B", k)]
        held = 0
        for kind, k in row:
            held += parts[k][rank][2] * (1 if kind == "F" else -1)
            slack = slacks[rank]
            if slack is not None and held > slack:
                return None
        rows.append(row)
    end: dict[tuple[str, int, int], int] = {}
    free = [0] * p
    while any(rows):
        for rank, row in enumerate(rows):
            while row:
                kind, k = row[0]
                wait: tuple[str, int, int] | None
                if kind == "F":
                    wait = ("F", rank - 1, k) if rank else None
                    delay = parts[k][rank - 1][3] if rank else 0
                else:
                    wait = ("B", rank + 1, k) if rank < p - 1 else ("F", rank, k)
                    delay = parts[k][rank][4] if rank < p - 1 else 0
                if wait is not None and wait not in end:
                    break
                start = max(free[rank], 0 if wait is None else end[wait] + delay)
                free[rank] = end[kind, rank, k] = start + parts[k][rank][0 if kind == "F" else 1]
                row.pop(0)
    return max(free)


def best_of_all(
    costs: Sequence[Row],
    lengths: Sequence[int],
    replicas: int,
    m: int,
    cap: int | None,
    slacks: Any,
) -> int | None:
    """Try every assignment; replicas are equal, so each order of a set is timed once."""
    known: dict[Any, int | None] = {}

    def least(parts: tuple[tuple[int, ...], ...]) -> int | None:
        key = tuple(sorted(parts))
        if key not in known:
            rows = [together([costs[n] for n in part]) for part in key]
            times = (makespan([rows[k] for k in order], slacks) for order in permutations(range(m)))
            known[key] = min((t for t in times if t is not None), default=None)
        return known[key]

    found = [
        max(values)
        for deal in all_deals(len(costs), replicas * m)
        if cap is None or all(sum(lengths[n] for n in part) <= cap for part in deal)
        if None not in (values := [least(deal[r * m : (r + 1) * m]) for r in range(replicas)])
    ]
    return min(found, default=None)  # type: ignore[type-var]


def all_deals(count: int, places: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    for where in product(range(places), repeat=count):
        if where[0] == 0 and len({*where}) == places:  # the first sequence names its replica
            yield tuple(tuple(n for n in range(count) if where[n] == at) for at in range(places))


def case(seed: int) -> tuple[pipesat.Problem, list[int], int, int | None, str]:
    """A problem of two or three stages, lengths, replicas, tokens and the quadratic share."""
    chance = random.Random(seed)
    p, (replicas, m) = (
        chance.choice([2, 3]),
        chance.choice([(2, 2), (1, 3), (3, 1), (2, 1), (1, 2)]),
    )
    count = chance.randint(replicas * m, 6)
    lengths = [chance.randint(1, 9) for _ in range(count)]
    amounts: dict[str, Any] = {
        key: [chance.randint(1, 7) for _ in range(p)] for key in ("F", "B", "W", "held_after_F")
    }
    memory = chance.choice([None, None, chance.randint(60, 200)])
    comm = chance.choice([0, 2])
    problem = pipesat.Problem.chain(p, m, **amounts, memory=memory, comm=comm)
    tokens = chance.choice([None, max(*lengths, sum(lengths) // (replicas * m) + 3)])
    return problem, lengths, replicas, tokens, chance.choice(["0", "0.25"])


@pytest.mark.parametrize("seed", range(12))
def test_the_best_of_all_deals_is_found(seed: int) -> None:
    problem, lengths, replicas, tokens, share = case(seed)
    document = dict(problem.document) | {"comm": problem.document.get("comm") or {"default": 0}}
    costs = [taken(document, length, 4, share) for length in lengths]
    slacks = [device.memory for device in problem.devices]
    m = problem.routes[0].microbatches
    truth = best_of_all(costs, lengths, replicas, m, tokens, slacks)
    options: dict[str, Any] = {"replicas": replicas, "tokens": tokens, "time_limit": 1}
    options |= {"lengths": lengths, "reference": 4, "quadratic": Fraction(share)}
    try:
        found = pipesat.balance(problem, **options, deterministic=True)
    except pipesat.Infeasible:
        assert truth is None
        return
    assert found.value == truth
    if truth is None:
        return
    assert found.lower_bound <= truth
    assert found.any_bound.value <= truth
    for makes, row in zip(found.makespans, found.replicas, strict=True):
        assert makes == makespan([together([costs[n] for n in part]) for part in row], slacks)
    assert sorted(n for row in found.replicas for part in row for n in part) == [*range(len(costs))]
