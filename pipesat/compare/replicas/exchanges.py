"""Improving a deal: exchanges between the slowest replicas and others, and within each.

A round tries some hundred exchanges at once and replays them together. Each of the slowest replicas
is paired with another one, and keeps the exchange after which the slower of both is fastest; or
replicas change within themselves, each for its own sake, which leaves place for what others give.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import cycle
from typing import Any, Final

import numpy as np

from pipesat.compare.replicas.deal import EXCEEDS, Deal, Load
from pipesat.compare.replicas.dealing_rules import Replicas
from pipesat.core.arrays import Floats, Ints

_PAIRS: Final = 4  # of replicas in a round at least; an eighth of many
_NEAR: Final = 8  # sequences looked at for one of the length wanted
_MOVES: Final = 0.15  # of exchanges, in which nothing comes back
_KICK: Final = 4  # sequences that change places at random at most, where nothing helps any more


def by_shares(load: Load, shares: Floats) -> Replicas:
    """Deal so that microbatches have these shares of a replica's work, in the order of entry.

    The longest sequence first, each to the microbatch that lacks most. Whole microbatches go to the
    replica of least work, and enter so that larger ones are where shares are.
    """
    found: Replicas = [[[] for _ in shares] for _ in range(load.replicas)]
    work, tokens = load.work.tolist(), load.tokens.tolist()
    descending = (-load.work).argsort(kind="stable").tolist()
    if load.whole:
        loads = [(0, replica) for replica in range(load.replicas)]
        rows: list[list[int]] = [[] for _ in loads]
        for item in descending:
            total, replica = loads[0]
            rows[replica].append(item)
            full = len(rows[replica]) == len(shares)
            heapreplace(loads, (total + work[item] if not full else 1 << 62, replica))
        places = (-shares).argsort(kind="stable").tolist()
        for row, own in zip(found, rows, strict=True):
            for place, item in zip(places, own, strict=True):
                row[place].append(item)
        return found
    mean = float(load.work.sum()) / load.replicas
    lacks = [
        (-share * mean, replica, place)
        for replica in range(load.replicas)
        for place, share in enumerate(shares.tolist())
    ]
    heapify(lacks)
    cap = load.cap or 1 << 62
    left = {(replica, place): cap for _, replica, place in lacks}
    for item in descending:
        aside = []
        while lacks and left[lacks[0][1:]] < tokens[item]:
            aside.append(heappop(lacks))
        if not lacks:  # no microbatch has slack: the emptiest is overfull, and search may mend it
            lacks, aside = aside, []
            heapify(lacks)
        lack, replica, place = lacks[0]
        heapreplace(lacks, (lack + work[item], replica, place))
        found[replica][place].append(item)
        left[replica, place] -= tokens[item]
        for entry in aside:
            heappush(lacks, entry)
    return found


class ExchangeRounds:
    """Rounds of exchanges from one deal on; the deal changes, and never for the worse.

    ``width`` is how many replicas are replayed in a round.
    """

    def __init__(self, deal: Deal, chance: np.random.Generator, width: int) -> None:
        self.deal, self.load, self.chance, self.width = deal, deal.load, chance, width
        several, more = self.load.replay.places > 1, self.load.replicas > 1
        rounds: list[Callable[[], None]] = [self.reordered, self.sequences_moved_within] * several
        self.rounds = cycle([*rounds, *[self.sequences_exchanged] * 2 * more] or [lambda: None])

    def round(self) -> None:
        """Try one round of exchanges."""
        next(self.rounds)()

    def reordered(self) -> None:
        """Let two microbatches of a replica change places, or one go elsewhere."""
        rows, k = self._worst()
        tried = _moved(np.repeat(self.deal.order[rows], k, axis=0), self.chance)
        for place, case in self._kept([rows], self.deal.columns, [tried]):
            self.deal.order[rows[place]] = tried[case]

    def sequences_exchanged(self) -> None:
        """Let the slower of two replicas exchange a sequence, or give one away."""
        a, b, k = self._pairs()
        slower = np.maximum(self.deal.values[a] - self.deal.values[b], 0)
        scale = self.load.work.sum() / self.load.replicas / max(self.deal.value, 1)
        wanted = self.chance.random((len(a), k)) * (np.minimum(slower, EXCEEDS) * scale)[:, None]
        change = self._drawn(a, b, k, wanted)
        one, other = (np.repeat(self.deal.order[rows], k, axis=0) for rows in (a, b))
        orders = [change.renamed(one, change.x, 0), change.renamed(other, change.y, 1)]
        for _, case in self._kept([a, b], change.columns, orders, change.allowed):
            change.make(case)

    def sequences_moved_within(self) -> None:
        """Let sequences of one replica change places, or one go to another microbatch."""
        rows, k = self._worst()
        near = self.chance.normal(0, 1, (len(rows), k)) * self.load.work.mean() / 4
        change = self._drawn(rows, rows, k, near)
        order = np.repeat(self.deal.order[rows], k, axis=0)
        order = change.renamed(change.renamed(order, change.x, 0), change.y, 1)
        allowed = change.allowed & (change.x != change.y)
        for _, case in self._kept([rows], change.columns, [order], allowed):
            change.make(case)

    def kicked(self) -> ExchangeRounds:
        """Return a search from a deal a few random exchanges away."""
        deal, chance = self.deal, self.chance
        where = deal.where.copy()
        for _ in range(int(chance.integers(1, _KICK + 1))):
            s, t = chance.integers(0, len(where), 2)
            full = np.bincount(where)[where[s]] > 1
            if chance.random() < 0.5 and full and not self.load.whole:
                where[s] = int(chance.integers(0, self.load.count))
            else:
                where[s], where[t] = where[t], where[s]
        return ExchangeRounds(Deal(self.load, where, deal.order), chance, self.width)

    def _worst(self) -> tuple[Ints, int]:
        """The slowest replicas, and how many cases each may have."""
        count = max(1, min(self.load.replicas, self.width // 4))
        return (-self.deal.values).argsort(kind="stable")[:count], self.width // count

    def _pairs(self) -> tuple[Ints, Ints, int]:
        """The slowest replicas, others drawn for them, and how many cases a pair may have."""
        count = min(max(_PAIRS, self.load.replicas // 8), self.load.replicas // 2)
        descending = (-self.deal.values).argsort(kind="stable")
        others = self.chance.permutation(descending[count:])[:count]
        return descending[:count], others, max(1, self.width // 2 // count)

    def _kept(
        self, rows: list[Ints], columns: Ints, orders: list[Ints], allowed: Any = True
    ) -> list[tuple[int, int]]:
        """Keep the best case of each row, or pair of rows; return (place, case) of those kept.

        A pair's has to be an improvement of its slower one; a row's alone may be as fast.
        """
        values = self.load.values(columns, np.concatenate(orders)).reshape(len(rows), -1)
        slower = np.where(allowed, values.max(axis=0), 2 * EXCEEDS).reshape(len(rows[0]), -1)
        case = slower.argmin(axis=1) + np.arange(len(slower)) * slower.shape[1]
        least, before = slower.min(axis=1), self.deal.values[rows[0]]
        kept = np.flatnonzero(least < before if len(rows) > 1 else least <= before)
        for own, new in zip(rows, values, strict=True):
            self.deal.values[own[kept]] = new[case[kept]]
        return [*zip(kept.tolist(), case[kept].tolist(), strict=True)]

    def _drawn(self, a: Ints, b: Ints, k: int, wanted: Floats) -> _Change:
        """Draw a sequence of each a for each case, and one of b that is shorter by what is wanted.

        None of b where a sequence moves alone.
        """
        deal, load, chance = self.deal, self.load, self.chance
        replica_of = np.empty(load.count, dtype=np.int64)
        replica_of[deal.order] = np.arange(load.replicas)[:, None]
        of_sequence = replica_of[deal.where]
        members = of_sequence.argsort(kind="stable")
        sizes = np.bincount(of_sequence, minlength=load.replicas)
        begins = sizes.cumsum() - sizes

        def draw(rows: Ints, shape: tuple[int, ...]) -> Ints:
            axes = (slice(None), *(None,) * (len(shape) - 1))
            picked = (chance.random(shape) * sizes[rows][axes]).astype(np.int64)
            return members[begins[rows][axes] + picked]

        s = draw(a, (len(a), k))
        near = draw(b, (len(b), k, _NEAR))
        off = np.abs(load.work[near] - (load.work[s] - wanted)[..., None])
        t = np.take_along_axis(near, off.argmin(axis=2)[..., None], axis=2)[..., 0]
        y = deal.where[t]
        alone = chance.random(s.shape) < _MOVES
        t = np.where(alone, -1, t)
        return _Change(deal, s.ravel(), t.ravel(), deal.where[s.ravel()], y.ravel())


class _Change:
    """Cases in which sequence s goes from microbatch x to y, and t (-1: none) from y to x."""

    def __init__(self, deal: Deal, s: Ints, t: Ints, x: Ints, y: Ints) -> None:
        self.deal, self.s, self.t, self.x, self.y = deal, s, t, x, y
        costs, back = deal.load.costs, t >= 0
        self.net = (costs[s] - costs[t] * back[:, None]).T  # what y takes more
        new = (deal.columns[:, x] - self.net, deal.columns[:, y] + self.net)
        self.columns = np.concatenate([deal.columns, *new], axis=1)
        self.allowed = back | (deal.counts[x] > 1)

    def renamed(self, order: Ints, microbatch: Ints, which: int) -> Ints:
        """Orders in which each case's x (``which`` 0) or y (1) is as it would be."""
        cases = np.arange(len(microbatch))
        new = self.deal.load.count + which * len(microbatch) + cases
        return np.where(order == microbatch[:, None], new[:, None], order)

    def make(self, row: int) -> None:
        """Let a case come true; values are the caller's."""
        deal, s, t = self.deal, int(self.s[row]), int(self.t[row])
        x, y = int(self.x[row]), int(self.y[row])
        deal.where[s] = y
        if t >= 0:
            deal.where[t] = x
        else:
            deal.counts[x] -= 1
            deal.counts[y] += 1
        for microbatch, sign in ((x, -1), (y, 1)):
            deal.columns[:, microbatch] += sign * self.net[:, row]


def _moved(order: Ints, chance: np.random.Generator) -> Ints:
    """Rows with two entries exchanged, or one put elsewhere; shape (cases, m)."""
    order = order.copy()
    m = order.shape[1]
    i, j = chance.integers(0, m, (2, len(order)))
    swap = chance.random(len(order)) < 0.5
    at = np.arange(m)[None]
    a, b = i[:, None], j[:, None]
    source = np.where((a <= at) & (at < b), at + 1, np.where((b < at) & (at <= a), at - 1, at))
    source = np.where(at == b, a, source)
    exchanged = np.where(at == a, b, np.where(at == b, a, at))
    return np.take_along_axis(order, np.where(swap[:, None], exchanged, source), axis=1)
