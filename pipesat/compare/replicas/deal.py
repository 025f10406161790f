"""A deal: which sequence is in which microbatch, and which microbatch is where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.grouping import grouped

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
        return self.costs[:, -1]

    @property
    def largest_share(self) -> float:
        """The largest share of a replica's tokens that a microbatch may have."""
        return 1.0 if self.cap is None else self.cap * self.replicas / float(self.tokens.sum())

    @cached_property
    def work(self) -> Ints:
        """Time of each sequence, of all its ops."""
        return self.costs[:, self.replay.timed].sum(axis=1)

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
        found = grouped(zip(self.where.tolist(), range(len(self.where)), strict=True))
        return [[found.get(number, []) for number in row] for row in self.order.tolist()]


def deal_of(load: Load, replicas: Sequence[Sequence[Sequence[int]]]) -> Deal:
    """Return what an assignment says."""
    where = np.empty(len(load.costs), dtype=np.int64)
    for number, members in enumerate(one for row in replicas for one in row):
        where[np.asarray(members, dtype=np.int64)] = number
    return Deal(load, where, np.arange(load.count).reshape(load.replicas, -1))
