"""Random small problems in which ops may run in pairs, of every kind, as documents."""

from __future__ import annotations

from itertools import combinations_with_replacement
from random import Random
from typing import Any

from tests.support.zero_lengths import random_document

_KINDS = ("F", "B", "W", "BW")
_COMBINATIONS = [frozenset(pair) for pair in combinations_with_replacement(_KINDS, 2)]


def random_paired_document(rng: Random, *, zeros: bool = True) -> dict[str, Any]:
    """Draw a problem as :func:`random_document` does, with pairs, by a factor or listed.

    Listed are F with backwards, or any kinds drawn, or all of them; a pair's time lies anywhere
    from 1, so it is often shorter than a member, to a little more than the sum.
    """
    document = random_document(rng, zeros=zeros)
    if rng.random() < 0.15:
        return document | {"overlap": {"FB": [rng.randint(1, 5), rng.randint(3, 6)]}}
    usual = [frozenset("F") | {kind} for kind in ("B", "W", "BW")]
    drawn = rng.sample(_COMBINATIONS, rng.randint(1, 4))
    allowed = rng.choice([usual[2:], usual, drawn, drawn, _COMBINATIONS])
    stages = document["stages"]
    ops = [(s, kind) for s in range(len(stages)) for kind in _KINDS]
    pairs = []
    for one, other in combinations_with_replacement(ops, 2):
        here = stages[one[0]]["device"] == stages[other[0]]["device"]
        if not here or frozenset({one[1], other[1]}) not in allowed or rng.random() < 0.2:
            continue
        times = [_time(stages[s], kind) for s, kind in (one, other)]
        least = rng.choice([1, max(1, *times), max(1, sum(times) // 2)])
        time = rng.randint(least, max(least, sum(times) + rng.choice([0, 0, 1])))
        pairs.append({"ops": [f"{s}{kind}" for s, kind in (one, other)], "time": time})
    overlap: dict[str, Any] = {"pairs": pairs}
    if rng.random() < 0.2:
        overlap["FB"] = [rng.randint(1, 5), rng.randint(3, 6)]
    return document | {"overlap": overlap}


def _time(stage: dict[str, Any], kind: str) -> int:
    return int(stage.get(kind, stage["B"] + stage["W"]))
