"""A device of routes followed through all its states, from the beginning or from the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import numpy as np

from pipesat.core.arrays import Ints, ints
from pipesat.kernels.arrays import NONE
from pipesat.kernels.device_states import (
    COPY,
    NEVER,
    RESOURCES,
    Limits,
    Parts,
    Pool,
    Runnable,
    followers,
    table_of,
)
from pipesat.problem.ops import Op
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.proof.device_runs import B, F, Leg, ModeLegs, Numbers, W, backwards

_MEMORY: Final = 96_000_000  # bytes of the states that are kept at once
_BUCKETS: Final = 1 << 16
_SMALL: Final = 1 << 29  # times of schedules no longer than that are kept in 32 bits
_SECONDS: Final = 1.3e-6  # of a state, as processor time on one core of 2026
_FEW: Final = 40  # states that take as long as what there is to do at each layer besides
_BASE, _PRIME = 1_000_003, (1 << 40) - 87  # what counts are multiplied by in the number of a cell


class RankWait(NamedTuple):
    """What waits for the end of others, by rank: kinds of two stages; of one variant, if stated."""

    stage: int
    kind: int
    then: int
    later: int
    lag: int
    variant: int | None = None


class MixedRows:
    """Rows of a device's stages that may be mixed.

    By direction, 0 from the beginning and 1 from the end: ``until``, a table of cells and of when
    the device must be free for what is left in each.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[ModeLegs]],
        pairs: Mapping[tuple[Op | None, Op | None], int],
        counts: Ints,
        slack: int,
        queues: list[RankWait],
    ) -> None:
        self.rows, self.pairs, self.counts, self.slack = rows, pairs, counts, slack
        most = [
            [_most(row.legs, int(m), slack) for row in own]
            for own, m in zip(rows, counts, strict=True)
        ]
        inner = {min(x.stage, x.then) for x in queues if x.variant is None}
        self.queues, self.places = list[RankWait](), list[int]()
        for x in queues:
            own, variant = most[min(x.stage, x.then)], x.variant or 0
            needed = x.variant is None or x.stage not in inner or len(own) > 1
            if needed and variant < len(own):
                self.queues.append(x)
                self.places.append(max(own) if x.variant is None else own[variant])
        none = np.zeros(0, np.int64)
        self.until = [(none, none), (none, none)]
        self.longest = ints([max(len(row.legs) for row in own) for own in rows])
        self.known = dict[int, tuple[Parts, Runnable, Limits]]()

    def follow(
        self,
        end: int,
        limits: Sequence[Ints],
        length: int,
        width: int,
        effort: Clock,
        runner: Runner,
    ) -> tuple[Ints, bool] | None:
        """Return the least ends by row and rank, from one end, and whether no states were merged.

        ``None``: there were too many, by a clock that counts states alone, or time is over.
        ``NEVER`` where nothing is short enough.
        """
        parts, items, fixed, pool, ends = self.begin(end, limits, length)
        found = list[Ints]()
        for layer in range(len(pool.layers) - 1):
            if pool.layers[layer] != NONE:
                found.append(followers(parts, items, fixed, pool, ends, layer, width))
                for clock in (runner.clock, effort):
                    clock.count((int(found[-1][2].sum()) + _FEW) * _SECONDS)
                if pool.used[0] > len(pool.key) or effort.over or runner.clock.over:
                    return None
        if pool.layers[-1] == NONE:  # nothing comes through
            ends[:] = NEVER
        cells, free, _ = np.concatenate(found, axis=1)
        self.until[1 - end] = table_of(cells, length - free, *self.until[1 - end])
        return ends, not pool.merged[0]

    def begin(
        self, end: int, limits: Sequence[Ints], length: int
    ) -> tuple[Parts, Runnable, Limits, Pool, Ints]:
        """Return what is followed from one end, the first state, and no end by row and rank."""
        parts, items, fixed = self.known.get(end) or self.known.setdefault(end, self._arrays(end))
        fixed = fixed._replace(
            earliest=limits[0],
            latest=limits[1],
            cells=self.until[end][0],
            until=self.until[end][1],
            end=length,
        )
        columns = int(fixed.column[0]) + sum(self.places)
        kind = np.int32 if length < _SMALL else np.int64
        rows = _MEMORY // (columns * np.dtype(kind).itemsize)
        pool = Pool(
            states=np.empty((rows, columns), kind),
            key=np.empty(rows, np.int64),
            next=np.empty(rows + _BUCKETS, np.int64),
            layers=np.full(1 + self.counts @ self.longest, NONE),
            free=ints([NONE]),
            used=ints([1]),
            behind=np.empty(rows, np.int64),
            merged=ints([0]),
        )
        pool.next[rows:] = NONE
        pool.states[0], pool.key[0], pool.next[0], pool.behind[0] = 0, 0, NONE, NONE
        pool.next[rows] = pool.layers[0] = 0
        return parts, items, fixed, pool, np.full(limits[0].shape, NEVER)

    def _arrays(self, end: int) -> tuple[Parts, Runnable, Limits]:
        """Parts and items, from one end, as arrays, and what bounds their states."""
        of = Numbers([backwards(own) for own in self.rows] if end else self.rows, self.pairs)
        size = len(of.flat)
        ends, cell = np.zeros((2, size), np.int64)
        through = np.zeros(len(self.rows), np.int64)
        weights = (pow(_BASE, n, _PRIME) for n in count(1))
        for stage, own in enumerate(of.variants):
            forwards, pending = next(weights), next(weights)
            through[stage] = forwards
            for numbers in own:
                trip = next(weights)
                cell[numbers[F]] = forwards + trip
                cell[numbers[B]] = (pending if W in numbers else 0) - trip
                ends[numbers[B]] = W not in numbers
                if W in numbers:
                    cell[numbers[W]] = -pending
        if end:
            cell, through = -cell, -through
        work, saves = of.left(((B, F, W), (B, W, F)) if end else ((W, F, B), (W, B, F)))
        opens, waits = np.full((2, size, 2), NONE)
        waiting = list[int]()
        for number, x in enumerate(self.queues):
            two = [(x.stage, x.kind), (x.then, x.later)]
            for (stage, kind), table in zip(two[::-1] if end else two, (opens, waits), strict=True):
                for variant, numbers in enumerate(of.variants[stage]):
                    if x.variant in (None, variant):
                        table[numbers[kind], int(table[numbers[kind], 0] != NONE)] = number
            waiting.append(3 * stage + kind)
        kinds = ints(part.kind for part in of.flat)
        parts = Parts(
            after=ints(part.then for part in of.flat),
            resource=ints(part.resource for part in of.flat),
            row=np.where(kinds == COPY, COPY, 3 * ints(of.stages) + kinds),
            before=ints(of.before),
            then=ints(of.then),
            stage=ints(of.stages),
            ends=ends,
            opens=opens,
            waits=waits,
        )
        columns = size + 2 * RESOURCES + 1 + 4 * len(self.rows) + len(self.queues)
        places, none = ints(self.places), np.zeros(0, np.int64)
        fixed = Limits(
            slack=self.slack,
            microbatches=self.counts,
            lag=ints(x.lag for x in self.queues),
            column=columns + np.cumsum(places) - places,
            waiting=ints(waiting),
            origin=-int(self.counts @ through) if end else 0,
            cell=cell,
            through=through,
            left=saves @ self.counts,
            work=work,
            gone=-saves,
            earliest=none,
            latest=none,
            cells=none,
            until=none,
            end=0,
            copies=int(COPY in kinds),
        )
        return parts, items_of(of, parts, fixed), fixed


def items_of(of: Numbers, parts: Parts, limits: Limits) -> Runnable:
    """What runs at once, as arrays."""
    runs, layers = of.runs, ints(of.layers)
    members, inner = np.full((2, len(runs), 4), NONE)
    more = np.zeros(len(runs), np.int64)
    for number, run in enumerate(runs):
        members[number, : len(run.parts)] = run.parts
        inner[number, : len(run.parts)] = [n for _, own in run.members for n in range(len(own))]
        more[number] = sum(leg.held - parts.after[own[-1]] for leg, own in run.members)
    return Runnable(
        time=ints(run.time for run in runs),
        during=ints(sum(leg.held for leg, _ in run.members) for run in runs),
        more=more,
        resource=ints(run.members[0][0].resource for run in runs),
        members=members,
        inner=inner,
        layers=ints(int(layers[run.parts].sum()) for run in runs),
        cell=ints(int(limits.cell[run.parts].sum()) for run in runs),
        left=np.stack([limits.work[:, run.parts].sum(1) for run in runs], axis=1),
    )


def _most(row: Sequence[Leg], m: int, slack: int) -> int:
    """How many microbatches of a variant may be in flight: each holds at least what stays."""
    one = min(part.then for part in row if part.kind in (F, COPY))
    return min(m, slack // one) if one else m
