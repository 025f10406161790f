"""The best deal of few sequences: every one is tried, replica by replica."""

from __future__ import annotations

from itertools import product
from typing import Final

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.replicas.deal import Deal, Load, deal_of

_CASES: Final = 600_000  # of one replica: every sequence at one of its places, or at none
_MOST: Final = 16  # sequences, whose sets are numbered
_AT_ONCE: Final = 1 << 14
_NONE: Final = 1 << 62


def best_of_all(load: Load) -> Deal | None:
    """Return a deal that no other is faster than; ``None`` if there are too many.

    What a replica takes at best is known for every set of sequences, so the sets are dealt: of
    those that hold the first sequence left, the one whose slower part is fastest.
    """
    n, m = len(load.costs), load.replay.places
    others = int(load.replicas > 1)
    if n > _MOST or (m + others) ** n > _CASES:
        return None
    value = np.full(1 << n, _NONE)
    places = np.zeros((1 << n, n), dtype=np.int64)
    digits = (m + others) ** np.arange(n)
    for begin in range(0, (m + others) ** n, _AT_ONCE):
        numbers = np.arange(begin, min(begin + _AT_ONCE, (m + others) ** n))
        where = numbers[:, None] // digits % (m + others)
        here = where[:, None] == np.arange(m)[:, None]  # (cases, m, n)
        where = where[full := here.any(axis=2).all(axis=1)]
        columns = (here[full].astype(np.int64) @ load.costs).reshape(-1, load.costs.shape[1])
        if not len(columns):
            continue
        values = load.values(columns.T, np.arange(len(columns)).reshape(-1, m))
        masks = (where < m) @ (1 << np.arange(n))
        first = np.lexsort((values, masks))
        first = first[np.flatnonzero(np.diff(masks[first], prepend=-1))]
        better = first[values[first] < value[masks[first]]]
        value[masks[better]], places[masks[better]] = values[better], where[better]
    return deal_of(load, _dealt(load, value, places))


def _dealt(load: Load, value: Ints, places: Ints) -> list[list[list[int]]]:
    """Return the replicas of the best deal of all sequences."""
    n, m = len(load.costs), load.replay.places
    times = value.tolist()
    best: dict[int, tuple[int, list[int]]] = {0: (0, [])}
    for _ in range(load.replicas):
        now: dict[int, tuple[int, list[int]]] = {}
        for rest, (slowest, sets) in best.items():
            free = (1 << n) - 1 - rest
            first, own = free & -free, free
            while own:
                taken = max(slowest, times[own])
                if own & first and taken < now.get(rest | own, (_NONE, []))[0]:
                    now[rest | own] = (taken, [*sets, own])
                own = (own - 1) & free
        best = now
    sets = best[(1 << n) - 1][1]
    found: list[list[list[int]]] = [[[] for _ in range(m)] for _ in sets]
    for (row, mask), sequence in product(zip(found, sets, strict=True), range(n)):
        if mask >> sequence & 1:
            row[int(places[mask, sequence])].append(sequence)
    return found
