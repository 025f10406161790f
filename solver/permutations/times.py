"""Makespan and memory of one order under many permutations of its microbatches at once.

The ops of an order keep their places; only which microbatch is at which changes. Everything is an
array over permutations (length K), so that one pass over the ops values all of them: with n ops,
O(n) array operations of length K.
"""

from __future__ import annotations

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.linear_order import last_ends
from pipesat.core.microbatch_order import relabelled
from pipesat.core.ops import Op, Pair, members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, duration, memory_change
from pipesat.core.schedule import Order
from pipesat.core.timing import linearize

_EXACT = 1 << 60  # sums of longer times do not fit into 64 bits


class PermutedOrder:
    """An order whose microbatches may change places.

    A permutation is an array with, per place, the number of the microbatch that is there; places
    are the microbatches of all routes, one route after the other (``offset[route] + microbatch``).
    Only microbatches of one route may change places.

    Attributes
    ----------
    kind
        Class of each microbatch, of the places of all routes.
    ops, place_of
        Ops in an order that respects what they wait for, and the place of each one's microbatch.
    amounts
        Duration, memory taken at the start, net change, and delay of the input of every op on a
        microbatch of each class; shape (ops, classes, 4).
    """

    def __init__(self, problem: Problem, order: Order) -> None:
        self.problem, self.order = problem, order
        counts = [route.microbatches for route in problem.routes]
        self.offset = [sum(counts[:number]) for number in range(len(counts))]
        self.kind = np.array(
            [c for r in problem.routes for c in (r.classes or (0,) * r.microbatches)]
        )
        sequence = linearize(problem, order)
        self.ops: list[Op] = [op for item in sequence.item for op in members(item)]
        self.place_of = np.array([self._place(op) for op in self.ops])
        self._places = self.place_of.tolist()
        self.amounts = self._amounts()
        self._lengths, self._delays = (list(self.amounts[:, :, which].copy()) for which in (0, 3))
        self._rows = sequence.device
        self._sources = [  # of what an op waits for, and whether it comes with a delay
            [*([(before, False)] if before >= 0 else []), *((source, True) for source, _ in inputs)]
            for before, inputs in zip(sequence.before, sequence.inputs, strict=True)
        ]
        rows: list[list[int]] = [[] for _ in problem.devices]
        for number, device in enumerate(sequence.device):
            rows[device].append(number)
        self._rooms = [
            (device.room, np.array(row))
            for device, row in zip(problem.devices, rows, strict=True)
            if device.room is not None and row
        ]

    @staticmethod
    def applies(problem: Problem, order: Order) -> bool:
        """Whether this can value an order: no pairs, no times beyond 64 bits."""
        longest = sum(
            max(
                duration(problem, Op(op.stage, kind, m))
                for m in range(problem.microbatches[op.stage])
                for kind in ("F", "B", "W", "BW")
            )
            for op in {op._replace(microbatch=0) for row in order for i in row for op in members(i)}
        )
        most = longest * max(problem.microbatches) * len(problem.stages)
        return most < _EXACT and not any(isinstance(i, Pair) for row in order for i in row)

    def _place(self, op: Op) -> int:
        """Place of an op's microbatch among those of all routes."""
        return self.offset[self.problem.route_of[op.stage]] + op.microbatch

    def _amounts(self) -> Ints:
        """:attr:`amounts`: each op asked on one microbatch of each class of its route."""
        classes = [route.classes or (0,) for route in self.problem.routes]
        first = [{c: m for m, c in reversed([*enumerate(own)])} for own in classes]
        table = np.zeros((len(self.ops), max(map(len, first)), 4), dtype=np.int64)
        for number, op in enumerate(self.ops):
            for kind, microbatch in first[self.problem.route_of[op.stage]].items():
                example = op._replace(microbatch=microbatch)
                change, need = memory_change(self.problem, example), awaited(self.problem, example)
                delay = 0 if need is None else need.delay
                length = duration(self.problem, example)
                table[number, kind] = (length, change.at_start, change.net, delay)
        return table

    def makespans(self, permutations: Ints) -> Ints:
        """Makespan of each permutation; shape (K, places) in, (K,) out."""
        kinds = np.ascontiguousarray(self.kind[permutations].T)
        own = [kinds[place] for place in self._places]
        waits = [
            [(source, delay[kind] if delayed else None) for source, delayed in sources]
            for sources, delay, kind in zip(self._sources, self._delays, own, strict=True)
        ]
        lengths = (length[kind] for length, kind in zip(self._lengths, own, strict=True))
        nothing = np.zeros(len(permutations), dtype=np.int64)

        def begin(number: int) -> Ints | None:
            return None if waits[number] else nothing

        last = last_ends(self._rows, waits, lengths, begin)
        values: Ints = np.maximum.reduce([*last.values()])
        return values

    def fits(self, permutations: Ints) -> Ints:
        """Whether each permutation keeps to memory op by op; shape (K, places) in, (K,) out."""
        fine = np.ones(len(permutations), dtype=np.int64)
        for room, row in self._rooms:
            kinds = self.kind[permutations[:, self.place_of[row]]]
            change = self.amounts[row, kinds, 2]
            held = np.cumsum(change, axis=1) - change + self.amounts[row, kinds, 1]
            fine &= held.max(axis=1) <= room
        return fine

    def permuted(self, permutation: Ints) -> Order:
        """The order with its microbatches in these places."""
        return relabelled(self.problem, self.order, self.by_route(permutation))

    def by_route(self, permutation: Ints) -> list[list[int]]:
        """The numbers of the microbatches at each route's places."""
        routes = self.routes()
        return [[int(n) - r.start for n in permutation[r.start : r.stop]] for r in routes]

    @property
    def identity(self) -> Ints:
        """The permutation that leaves all as it is."""
        return np.arange(len(self.kind))

    def routes(self) -> list[range]:
        """Places of each route."""
        return [
            range(first, first + route.microbatches)
            for first, route in zip(self.offset, self.problem.routes, strict=True)
        ]


def neighbours(order: PermutedOrder, here: Ints, chance: np.random.Generator, count: int) -> Ints:
    """Permutations one swap, or one shift, away; places of one route, of different classes.

    None where the order of the microbatches is given.
    """
    routes = [r for r in order.routes() if len(set(order.kind[r.start : r.stop])) > 1]
    if not routes or order.problem.order == "given":
        return np.empty((0, len(here)), dtype=np.int64)
    tried = np.repeat(here[None], count, axis=0)
    for row in tried:
        route = routes[int(chance.integers(len(routes)))]
        while True:
            a, b = chance.integers(route.start, route.stop, 2)
            if order.kind[row[a]] != order.kind[row[b]]:
                break
        if chance.random() < 0.5:
            row[[a, b]] = row[[b, a]]
        elif a < b:
            row[a : b + 1] = np.roll(row[a : b + 1], -1)
        else:
            row[b : a + 1] = np.roll(row[b : a + 1], 1)
    return tried
