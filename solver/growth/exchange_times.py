"""Makespan and memory of one order under many permutations of its microbatches.

The ops of an order keep their places; only which microbatch is at which changes. Of n ops, a
permutation is valued in one pass over them (:mod:`pipesat.kernels.permutations`).

Where ops may pair, an order can be *loose*: which of its ops run as pairs, and which backwards are
fused, may change. Packing joins what is free (:mod:`pipesat.kernels.packing`). A backward that may
be either is then two items, and where it is fused the second one takes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.kernels.arrays import BW, NO_PAIR, NONE, B, Coded, W
from pipesat.kernels.packing import Fusing, Jobs
from pipesat.kernels.permutations import Places
from pipesat.kernels.timing import sequenced
from pipesat.problem.ops import Item, Op, Pair, members
from pipesat.problem.problem import Problem
from pipesat.schedule.arrays_of import order_of
from pipesat.schedule.microbatch_order import relabelled
from pipesat.schedule.schedule import Order
from pipesat.solver.growth.packing import jobs_of


class PermutedOrder:
    """An order without pairs, or a loose one, whose microbatches may change places.

    A permutation is an array with, per place, the number of the microbatch that is there; places
    are the microbatches of all routes, one route after the other (``offset[route] + microbatch``).
    Only microbatches of one route may change places.

    Attributes
    ----------
    jobs, items
        The ops as numbers (:func:`pipesat.solver.growth.packing.jobs_of`).
    places
        What values permutations; its amounts have shape (ops, classes, 4).
    fused, joined
        Of the order that was made loose, by item: whether it is a fused backward; the one with
        which it ran as one, or -1.
    weight
        By item: the W of a backward that may be split and fused, -1: it is none.
    """

    def __init__(self, problem: Problem, order: Order, *, loose: bool = False) -> None:
        self.problem, self.loose = problem, loose
        self.order = _loosened(problem, order) if loose else order
        self.jobs, self.items = jobs_of(problem, self.order)
        _, arrays, codes = self.items
        self.joined = np.full(len(codes.first), NONE)
        place_of = {op: place for place, op in enumerate(op for row in self.order for op in row)}
        for pair in (item for row in order for item in row if isinstance(item, Pair) and loose):
            a, b = (place_of.get(op, place_of.get(op._replace(kind="B"))) for op in pair)
            self.joined[a], self.joined[b] = b, a
        classes = [route.class_of_each for route in problem.routes]
        self.offset = np.cumsum([0, *map(len, classes)])
        kind = np.concatenate([np.array(own, np.int64) for own in classes])
        example = np.zeros((len(classes), kind.max() + 1), np.int64)  # a microbatch of each class
        for route, own in enumerate(classes):
            example[route, own] = range(len(own))
        cell, op = codes.first >> arrays.shift, (codes.first & 3)[:, None]
        stage = arrays.stage_of[cell]
        route = arrays.route[stage]
        cells = arrays.first_cell[stage][:, None] + example[route]
        rows = arrays.variant_of[cells] + ((codes.first & (1 << arrays.shift) - 1) >> 2)[:, None]
        at = arrays.begin[2 * cells + (op & 1)]  # of a chain: one input, or none
        none = (op == W) | (at == arrays.begin[2 * cells + (op & 1) + 1])
        delays = np.where(none, 0, np.append(arrays.delay, 0)[at])
        tables = (arrays.time[rows, op], arrays.taken[rows, op], arrays.net[rows, op], delays)
        whole = (arrays.time[rows, BW], arrays.taken[rows, BW], arrays.net[rows, BW])
        self._whole = np.stack(whole, axis=2)  # amounts of backwards that are fused
        self._cell, self._op, weight = cell, codes.first & 3, np.full(len(arrays.stage_of), NONE)
        weight[cell[self._op == W]] = np.flatnonzero(self._op == W)
        either = np.array([data.may_split and data.may_fuse for data in problem.stages])[stage]
        self.weight = np.where((self._op == B) & either & loose, weight[cell], NONE)
        self.fused = np.zeros(len(cell), np.int64)
        for item in (item for row in order for item in row if loose):
            for one in members(item):
                if one.kind == "BW" and problem.stages[one.stage].may_split:
                    self.fused[place_of[one._replace(kind="B")]] = 1
        mixed = [number for number, own in enumerate(classes) if len(set(own)) > 1]
        self.places = Places(
            sequence=sequenced(arrays, codes).item,
            device=self.jobs.device,
            place=self.offset[route] + cell - arrays.first_cell[stage],
            begin=self.jobs.inputs.begin,
            source=self.jobs.inputs.item,
            amounts=np.stack(tables, axis=2),
            slack=arrays.slack,
            kind=kind,
            first=self.offset[mixed],
            end=self.offset[1:][mixed],
        )
        self._waiting = np.repeat(np.arange(len(cell)), np.diff(self.jobs.inputs.begin))

    @property
    def may_change(self) -> bool:
        """Whether there are microbatches that differ and whose order is not given."""
        return len(self.places.first) > 0 and self.problem.order != "given"

    def jobs_in(self, permutation: Ints, fused: Ints, joined: Ints) -> Jobs:
        """The items with what the microbatches at their places need; some are joined."""
        kinds, items = self.places.kind[permutation][self.places.place], np.arange(len(self._op))
        own, jobs = self.places.amounts[items, kinds], self.jobs
        joins = jobs.joins
        if self.loose:
            slot = 4 * self.items.arrays.place_on_device[self.jobs.chain // 3]
            kind = slot + self._op
            now = np.where(fused > 0, slot + BW, kind)
            now[self.weight[fused > 0]] = NONE
            fusing = Fusing(self.weight, fused, slot + BW, *self._whole[items, kinds].T.copy())
            joins = joins._replace(mate=self._joinable(joined, now), kind=kind, fusing=fusing)
            if self.problem.order == "free":  # equals alone keep their order
                jobs = jobs._replace(chain=jobs.chain * self.places.amounts.shape[1] + kinds)
        length, taken, net, delay = own.T.copy()
        return jobs._replace(
            duration=length,
            taken=taken,
            net=net,
            inputs=jobs.inputs._replace(delay=delay[self._waiting]),
            outputs=jobs.outputs._replace(delay=delay[jobs.outputs.item]),
            joins=joins,
        )

    def _joinable(self, joined: Ints, kind: Ints) -> Ints:
        """Drop pairs that may not be, or no longer, of such kinds."""
        device, by = self.jobs.device, self.jobs.joins.by
        may = (joined >= 0) & (kind >= 0) & (kind[joined] >= 0)
        return np.where(may & (by[device, kind, kind[joined]] != NO_PAIR), joined, NONE)

    def permuted(self, permutation: Ints) -> Order:
        """The order with its microbatches in these places."""
        return self._with_microbatches(self.order, permutation)

    def packed(self, row: Ints, joined: Ints, fused: Ints, permutation: Ints) -> Order:
        """The order of a row of items, some of which joined others, with its microbatches."""
        problem, arrays, (codes, _, begin) = self.items
        whole, mate, place = fused > 0, joined[row], np.argsort(row)
        codes, stays = np.where(whole, codes | BW, codes), np.ones(len(row), np.bool_)
        stays[self.weight[whole]] = False
        stays = stays[row] & ((mate < 0) | (place[mate] > place[row]))
        first, second = codes[row], np.where(mate < 0, NONE, codes[mate])
        begin = np.append(0, np.cumsum(stays))[begin]
        order = order_of(problem, arrays, Coded(first[stays], second[stays], begin))
        return self._with_microbatches(order, permutation)

    def _with_microbatches(self, order: Order, permutation: Ints) -> Order:
        parts = np.split(permutation, self.offset[1:-1])
        own = [(part - first).tolist() for part, first in zip(parts, self.offset, strict=False)]
        return relabelled(self.problem, order, own)

    @property
    def identity(self) -> Ints:
        """The permutation that leaves all as it is."""
        return np.arange(len(self.places.kind))


def _loosened(problem: Problem, order: Order) -> Order:
    """Return an order with all its ops alone, and backwards split where they may be either."""

    def alone(item: Item) -> Iterator[Op]:
        whole = [
            op for op in members(item) if op.kind == "BW" and problem.stages[op.stage].may_split
        ]
        yield from (op._replace(kind="B") if op in whole else op for op in members(item))
        yield from (op._replace(kind="W") for op in whole)

    return tuple(tuple(op for item in row for op in alone(item)) for row in order)
