"""Makespan and memory of one order under many permutations of its microbatches.

The ops of an order keep their places; only which microbatch is at which changes. Of n ops, a
permutation is valued in one pass over them (:mod:`pipesat.kernels.permutations`).
"""

from __future__ import annotations

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.kernels.arrays import W
from pipesat.kernels.permutations import Places
from pipesat.kernels.timing import sequenced
from pipesat.problem.problem import Problem
from pipesat.schedule.microbatch_order import relabelled
from pipesat.schedule.schedule import Order
from pipesat.solver.growth.packing import jobs_of


class PermutedOrder:
    """An order without pairs whose microbatches may change places.

    A permutation is an array with, per place, the number of the microbatch that is there; places
    are the microbatches of all routes, one route after the other (``offset[route] + microbatch``).
    Only microbatches of one route may change places.

    Attributes
    ----------
    jobs, items
        The ops as numbers (:func:`pipesat.solver.growth.packing.jobs_of`).
    places
        What values permutations; its amounts have shape (ops, classes, 4).
    """

    def __init__(self, problem: Problem, order: Order) -> None:
        self.problem, self.order = problem, order
        self.jobs, self.items = jobs_of(problem, order)
        _, arrays, codes = self.items
        classes = [route.classes or (0,) * route.microbatches for route in problem.routes]
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

    @property
    def may_change(self) -> bool:
        """Whether there are microbatches that differ and whose order is not given."""
        return len(self.places.first) > 0 and self.problem.order != "given"

    def amounts(self, permutation: Ints) -> Ints:
        """Time, memory taken, net change and delay of every op; shape (ops, 4)."""
        kinds = self.places.kind[permutation][self.places.place]
        own: Ints = self.places.amounts[np.arange(len(kinds)), kinds]
        return own

    def permuted(self, permutation: Ints) -> Order:
        """The order with its microbatches in these places."""
        return self.with_microbatches(self.order, permutation)

    def with_microbatches(self, order: Order, permutation: Ints) -> Order:
        """Another order of the same ops with its microbatches in these places."""
        parts = np.split(permutation, self.offset[1:-1])
        own = [(part - first).tolist() for part, first in zip(parts, self.offset, strict=False)]
        return relabelled(self.problem, order, own)

    @property
    def identity(self) -> Ints:
        """The permutation that leaves all as it is."""
        return np.arange(len(self.places.kind))
