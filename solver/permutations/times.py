"""Makespan and memory of one order under many permutations of its microbatches at once.

The ops of an order keep their places; only which microbatch is at which changes. Everything is an
array over permutations (length K), so that one pass over the ops values all of them: with n ops,
O(n) array operations of length K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.microbatch_order import relabelled
from pipesat.core.ops import Item, Op, Pair, members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, duration, memory_change
from pipesat.core.schedule import Order
from pipesat.core.timing import linearize

_EXACT = 1 << 60  # sums of longer times do not fit into 64 bits


@dataclass(frozen=True)
class _Step:
    """One op of the sequence: when it starts, and for how long it runs, by class.

    ``place`` is its microbatch's place among all of :class:`PermutedOrder`; ``inputs`` are pairs
    of a step and a delay by class.
    """

    place: int
    before: int
    duration: Ints
    inputs: tuple[tuple[int, Ints], ...]


class PermutedOrder:
    """An order whose microbatches may change places.

    A permutation is an array with, per place, the number of the microbatch that is there; places
    are the microbatches of all routes, one route after the other (``offset[route] + microbatch``).
    Only microbatches of one route may change places.
    """

    def __init__(self, problem: Problem, order: Order) -> None:
        self.problem, self.order = problem, order
        counts = [route.microbatches for route in problem.routes]
        self.offset = [sum(counts[:number]) for number in range(len(counts))]
        self.kind = np.array(
            [c for r in problem.routes for c in (r.classes or (0,) * r.microbatches)]
        )
        sequence = linearize(problem, order)
        self._steps = [
            self._step(item, sequence.before[number], sequence.inputs[number])
            for number, item in enumerate(sequence.item)
        ]
        self._rooms = [
            (device.room, *self._memory(row))
            for device, row in zip(problem.devices, order, strict=True)
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

    def place(self, op: Op) -> int:
        """Place of an op's microbatch among those of all routes."""
        return self.offset[self.problem.route_of[op.stage]] + op.microbatch

    def examples(self, op: Op) -> list[Op]:
        """The op on one microbatch of each class of its route."""
        classes = self.problem.routes[self.problem.route_of[op.stage]].classes
        first = {c: m for m, c in reversed([*enumerate(classes or (0,))])}
        return [op._replace(microbatch=first[c]) for c in sorted(first)]

    def _step(self, item: Item, before: int, inputs: Sequence[tuple[int, int]]) -> _Step:
        (op,) = members(item)
        examples = self.examples(op)
        needs = [awaited(self.problem, example) for example in examples]
        delays = np.array([0 if need is None else need.delay for need in needs])
        return _Step(
            self.place(op),
            before,
            np.array([duration(self.problem, example) for example in examples]),
            tuple((source, delays) for source, _ in inputs),
        )

    def _memory(self, row: Sequence[Item]) -> tuple[Ints, Ints, Ints]:
        """Per op of a row: its place; what it takes at its start and changes in all, by class."""
        ops = [op for item in row for op in members(item)]
        changes = [[memory_change(self.problem, x) for x in self.examples(op)] for op in ops]
        width = max(map(len, changes))
        taken = [[c.at_start for c in of] + [0] * (width - len(of)) for of in changes]
        net = [[c.net for c in of] + [0] * (width - len(of)) for of in changes]
        return np.array([self.place(op) for op in ops]), np.array(taken), np.array(net)

    def makespans(self, permutations: Ints) -> Ints:
        """Makespan of each permutation; shape (K, places) in, (K,) out."""
        kinds = np.ascontiguousarray(self.kind[permutations].T)
        ends: list[Ints] = []
        nothing = np.zeros(len(permutations), dtype=np.int64)
        for step in self._steps:
            kind = kinds[step.place]
            start = nothing if step.before < 0 else ends[step.before]
            for source, delays in step.inputs:
                start = np.maximum(start, ends[source] + delays[kind])
            ends.append(start + step.duration[kind])
        last: Ints = np.maximum.reduce(ends)
        return last

    def fits(self, permutations: Ints) -> Ints:
        """Whether each permutation keeps to memory op by op; shape (K, places) in, (K,) out."""
        fine = np.ones(len(permutations), dtype=np.int64)
        for room, places, taken, net in self._rooms:
            kinds = self.kind[permutations[:, places]]
            index = np.arange(len(places))
            change = net[index, kinds]
            held = np.cumsum(change, axis=1) - change + taken[index, kinds]
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
