"""A deal: which sequence is in which microbatch, and which microbatch is where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from pipesat.core.arrays import Ints

if TYPE_CHECKING:
    from pipesat.compare.replicas.replay import Replay

EXCEEDS: Final = 1 << 60
"""More than any makespan: the value of a replica that exceeds something, and by how much."""


@dataclass(frozen=True, eq=False)
class Load:
    """What is to be dealt: n sequences, or whole microbatches.

    Attributes
    ----------
    replay
        The schedule of one replica.
    costs
        What each sequence takes, in the replay's columns, and in one more its tokens (1 where they
        are not known); shape (n, columns + 1).
    cap
        The most tokens in a microbatch; ``None``: any.
    """

    replay: Replay
    costs: Ints
    cap: int | None
    replicas: int

    @property
    def count(self) -> int:
        """Microbatches of all replicas."""
        return self.replicas * self.replay.places

    @property
    def whole(self) -> bool:
        """Whether each microbatch is one sequence."""
        return len(self.costs) == self.count

    @property
    def tokens(self) -> Ints:
        """Length of each sequence."""
        found: Ints = self.costs[:, -1]
        return found

    @property
    def largest_share(self) -> float:
        """The largest share of a replica's tokens that a microbatch may have."""
        return 1.0 if self.cap is None else self.cap * self.replicas / float(self.tokens.sum())

    @cached_property
    def work(self) -> Ints:
        """Time of each sequence, of all its ops."""
        found: Ints = self.costs[:, self.replay.timed].sum(axis=1)
        return found

    def values(self, columns: Ints, index: Ints) -> Ints:
        """Makespan of each case, or by how much it exceeds memory and tokens, and :data:`EXCEEDS`.

        ``columns`` has microbatches, shape (columns, any); ``index`` those of each case in order,
        shape (cases, m).
        """
        costs = columns[:, index.T]
        found = self.replay.makespans(costs)
        excess = self.replay.excess(costs)
        if self.cap is not None:
            excess += np.maximum(costs[-1] - self.cap, 0).sum(axis=0)
        return np.where(excess > 0, EXCEEDS + excess, found)


class Deal:
    """Sequences in microbatches, and these in their order.

    Attributes
    ----------
    where
        Microbatch of each sequence, by number.
    order
        Numbers of each replica's microbatches as they enter; shape (replicas, m).
    columns, counts
        What each microbatch takes, shape (columns + 1, R m), and how many sequences it has.
    values
        Of each replica: see :meth:`Load.values`.
    """

    def __init__(self, load: Load, where: Ints, order: Ints) -> None:
        self.load, self.where, self.order = load, where.copy(), order.copy()
        self.columns = np.zeros((load.costs.shape[1], load.count), dtype=np.int64)
        np.add.at(self.columns.T, where, load.costs)
        self.counts = np.bincount(where, minlength=load.count)
        self.values = load.values(self.columns, self.order)

    @property
    def value(self) -> int:
        """The slowest replica's value."""
        return int(self.values.max())

    @property
    def fits(self) -> bool:
        """Whether it keeps to memory, and to the tokens of a microbatch, none of them empty."""
        return self.value < EXCEEDS and int(self.counts.min()) > 0

    @property
    def replicas(self) -> list[list[list[int]]]:
        """Sequences by replica and microbatch, in the order in which they enter."""
        found: list[list[int]] = [[] for _ in range(self.load.count)]
        for sequence, microbatch in enumerate(self.where.tolist()):
            found[microbatch].append(sequence)
        return [[found[number] for number in row] for row in self.order.tolist()]


def deal_of(load: Load, replicas: Sequence[Sequence[Sequence[int]]]) -> Deal:
    """Return what an assignment says."""
    where = np.empty(len(load.costs), dtype=np.int64)
    for number, members in enumerate(one for row in replicas for one in row):
        where[np.asarray(members, dtype=np.int64)] = number
    return Deal(load, where, np.arange(load.count).reshape(load.replicas, -1))


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
