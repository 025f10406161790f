"""Makespans and memory of one hand-written schedule under many microbatches at once.

The schedule fixes the order of ops; what a microbatch costs changes from case to case. All arrays
have the cases as their last axis, and one compiled pass over the ops times them all
(:mod:`pipesat.kernels.replicas`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from pipesat.core.arrays import Floats, Ints
from pipesat.core.errors import BadInput, require, require_applicable
from pipesat.core.grouping import in_rows
from pipesat.core.settings import MOST_AMOUNT
from pipesat.kernels.replicas import RouteOps, ends_in_cases, excess_in_cases
from pipesat.problem.lengths import DEN, Factors, factors_of, microbatches_from_lengths
from pipesat.problem.ops import KINDS, Op
from pipesat.problem.problem import Link, MicrobatchClass, Problem, Route, Stage
from pipesat.problem.rules import inputs_of
from pipesat.problem.stage import AMOUNTS, HELD, ONE, scaled
from pipesat.schedule.arrays_of import arrays_of
from pipesat.schedule.schedule import Order
from pipesat.schedule.timing import linearize

COLUMNS: Final = (*AMOUNTS, "delay F", "delay B")
"""What a microbatch costs, stage by stage: times, held amounts, delays to and from the next."""


class Replay:
    """One order of ops on one route, timed as early as possible for any microbatches.

    Attributes
    ----------
    places
        Microbatches of a replica, m.
    columns
        The amounts that matter, numbers of :func:`column`: the first axis of all costs. ``timed``
        are those of them that are times of ops.
    ops, arrays
        The ops in an order that respects what they wait for, as such and as arrays.
    """

    def __init__(self, problem: Problem, order: Order) -> None:
        sequence = linearize(problem, order)
        require_applicable(
            not sequence.copies and all(isinstance(item, Op) for item in sequence.item),
            "it runs pairs or copies, which are not timed over replicas",
        )
        self.places = problem.routes[0].microbatches
        self.ops: list[Op] = [*sequence.item]  # type: ignore[list-item]
        numbers = zip(sequence.device, range(len(self.ops)), strict=True)
        rows = in_rows(len(problem.devices), numbers)
        self.last = np.array([row[-1] + 1 for row in rows if row])
        self.slacks = [
            (device.slack, [*row])
            for device, row in zip(problem.devices, rows, strict=True)
            if device.slack is not None and row
        ]
        self.slack = arrays_of(problem).slack
        lengths = [column(op.stage, op.kind) for op in self.ops]
        delays = [_delay_of(problem, op) for op in self.ops]
        held = [column(op.stage, HELD[0]) if self.slacks else -1 for op in self.ops]
        more = {column(op.stage, key) for op in self.ops for key in HELD if self.slacks}
        self.columns = sorted({*lengths, *delays, *more} - {-1})
        place = {number: at for at, number in enumerate(self.columns)} | {-1: -1}
        self.arrays = RouteOps(
            device=sequence.arrays.device,
            kind=np.array([KINDS.index(op.kind) for op in self.ops]),
            at=np.array([op.microbatch for op in self.ops]),
            length=np.array([place[number] for number in lengths]),
            delay=np.array([place[number] for number in delays]),
            held=np.array([place[number] for number in held]),
            before=np.array(sequence.before) + 1,
            source=np.array([next((j + 1 for j, _ in own), 0) for own in sequence.inputs]),
        )
        self.timed = np.unique(self.arrays.length)

    def makespans(self, costs: Ints) -> Ints:
        """Makespan of each case; ``costs`` has shape (columns, m, cases)."""
        return self.ends(costs)[self.last].max(axis=0)

    def ends(self, costs: Any) -> Any:
        """End of every op, shape (1 + ops, cases); row 0 is the start of time."""
        return ends_in_cases(self.arrays, np.ascontiguousarray(costs))

    def longest_path(self, costs: Any) -> Floats:
        """How often each amount is on the longest path of the first case; shape (m, columns)."""
        ends, ops = self.ends(costs[:, :, :1])[:, 0], self.arrays
        found = np.zeros((self.places, len(self.columns)))
        number = int(self.last[ends[self.last].argmax()])
        while number:
            op, at = number - 1, int(ops.at[number - 1])
            found[at, ops.length[op]] += 1
            before, source, delay = int(ops.before[op]), int(ops.source[op]), int(ops.delay[op])
            late = costs[delay, at, 0] if delay >= 0 else 0
            if by_source := bool(source and ends[source] + late >= ends[before]):
                found[at, delay] += delay >= 0
            number = source if by_source else before
        return found

    def instants(self, row: Sequence[int]) -> int:
        """The fewest ops of a device during which, together, every activation is held once."""
        begins: dict[tuple[int, int], int] = {}
        held: list[tuple[int, int]] = []  # (end, begin)
        for at, op in enumerate(self.ops[number] for number in row):
            if op.kind == "F":
                begins[op.stage, op.microbatch] = at
            elif op.kind != "W":
                held.append((at, begins[op.stage, op.microbatch]))
        last, found = -1, 0
        for end, begin in sorted(held):
            if begin > last:
                last, found = end, found + 1
        return found

    def excess(self, costs: Ints) -> Ints:
        """Most by which each case exceeds a device's memory, op by op; 0: it fits."""
        if not self.slacks:
            return np.zeros(costs.shape[2], np.int64)
        return excess_in_cases(self.arrays, np.ascontiguousarray(costs), self.slack)


def column(stage: int, name: str) -> int:
    """Number of an amount of a stage among all of a microbatch's."""
    return stage * len(COLUMNS) + COLUMNS.index(name)


def _delay_of(problem: Problem, op: Op) -> int:
    """Column of the delay of an op's input; -1 where it has none for any microbatch."""
    need = next(iter(inputs_of(problem, op)), None)
    if need is None or not need.delay:
        return -1
    forward = op.kind == "F"
    return column(need.event[0] if forward else op.stage, "delay F" if forward else "delay B")


_MOST_FACTOR: Final = 10**6
_LARGEST = 1 << 59  # of sums, so that none passes 64 bits


def costs_of_list(problem: Problem) -> Ints:
    """Return what each microbatch of a problem's list takes; shape (n, columns)."""
    (route,) = problem.routes
    rows = [
        [
            value
            for stage in range(len(problem.stages))
            for value in _row(problem.resulting(stage, 0, kind), problem.link_of_class(stage, kind))
        ]
        for kind in range(len(route.definitions))
    ]
    return np.array(rows, dtype=np.int64)[list(route.classes or ())]


def costs_of_lengths(
    problem: Problem,
    lengths: Sequence[int],
    reference: int,
    quadratic: Fraction | float,
    known: dict[int, Factors] | None = None,
) -> Ints:
    """Return what each sequence takes by section 8 of the contract; shape (n, columns).

    ``known`` keeps the factors of lengths from call to call.

    Raises
    ------
    BadInput
        If a length is none, or an amount becomes too large.
    """
    known = {} if known is None else known
    new = [length for length in lengths if type(length) is not int or length not in known]
    if new or not lengths:
        known.update(factors_of(lengths, reference, quadratic))
    factors = np.array([known[length] for length in lengths], dtype=np.int64)
    base, by = [], []
    for stage in range(len(problem.stages)):
        base += _row(problem.stages[stage], problem.link_of_class(stage, 0))
        by += [int(AMOUNTS.get(name) != "time") for name in COLUMNS]
    stated = np.array(base, dtype=np.int64)
    costs: Ints = -(-stated * factors[:, by] // DEN)
    for number, stage_data in enumerate(problem.stages):
        if stage_data.sums:
            first = column(number, "B")
            costs[:, first + 2] = costs[:, first] + costs[:, first + 1]
    large = np.argwhere(costs > MOST_AMOUNT)
    for sequence, at in large[:1].tolist():
        stage, name = divmod(at, len(COLUMNS))
        raise BadInput(
            f"{COLUMNS[name]} of stage {stage} becomes {costs[sequence, at]}, at most 10^12 may",
            where=f"lengths[{sequence}]",
            value=lengths[sequence],
        )
    return costs


def require_exact(costs: Ints) -> None:
    """Refuse amounts whose sums do not fit into 64 bits.

    Raises
    ------
    BadInput
        If they do not.
    """
    require(
        float(costs.sum(dtype=float)) <= _LARGEST,
        "times and memory of all sequences together pass 2^59: use larger units",
    )


def problem_of(problem: Problem, costs: Ints) -> Problem:
    """Return the problem of one replica: its microbatches in the order in which they enter.

    ``costs`` has what each takes; shape (m, columns). It has them outright, delays too, so that
    every part of pipesat, and the checker, can take it.
    """
    kinds: dict[tuple[int, ...], int] = {}
    classes = tuple(kinds.setdefault(tuple(row), len(kinds)) for row in costs.tolist())
    stages = range(len(problem.stages))
    definitions = []
    for number, row in enumerate(kinds):
        parts = [row[column(stage, "F") : column(stage + 1, "F")] for stage in stages]
        definitions.append(
            MicrobatchClass(
                str(number),
                outright=tuple(
                    (stage, tuple(zip(AMOUNTS, part, strict=False)))
                    for stage, part in enumerate(parts)
                ),
                delays=tuple((stage, (part[-2], part[-1])) for stage, part in enumerate(parts)),
            )
        )
    (route,) = problem.routes
    own = Route(route.stages, len(classes), classes, tuple(definitions))
    plain = tuple(replace(stage, modes=()) for stage in problem.stages)
    return replace(problem, stages=plain, routes=(own,), order="free")


def microbatches_of_packs(
    problem: Problem,
    packs: Sequence[Sequence[int]],
    reference: int,
    quadratic: Fraction | float,
) -> list[dict[str, Any]]:
    """Return ``microbatches`` of a problem document, each of one or more lengths.

    One of several states outright the sum of what its sequences take alone (contract, section 11).

    Raises
    ------
    BadInput
        If a file cannot state that: in stages with modes, or of delays.
    """
    told, listed = dict[str, str](), list[dict[str, Any]]()
    for number, pack in enumerate(packs):
        if len(pack) == 1:
            (entry,) = microbatches_from_lengths(pack, reference, quadratic)
            del entry["name"]
        else:
            costs = costs_of_lengths(problem, pack, reference, quadratic).sum(axis=0)
            entry = {"count": 1} | _stated(problem, costs.tolist())
        name = told.get(repr(entry))
        told.setdefault(repr(entry), str(number))
        listed.append({"name": name, "count": 1} if name else {"name": str(number)} | entry)
    return listed


def _stated(problem: Problem, costs: Sequence[int]) -> dict[str, Any]:
    """Amounts as an entry of ``microbatches`` states them."""
    stages, delays = {}, list[tuple[int, int]]()
    for number, stage in enumerate(problem.stages):
        require(
            not stage.modes,
            "no file states a microbatch of several sequences on a stage with modes",
            where="problems",
            value=f"stage {number}",
        )
        names = [key for key in AMOUNTS if not (key == "BW" and stage.sums)]
        stages[str(number)] = {key: costs[column(number, key)] for key in names}
        row = _row(stage, problem.link_of_class(number, 0))
        delays += zip(row[-2:], costs[column(number, "delay F") :][:2], strict=True)
    some = [(one, total) for one, total in delays if one]
    most = min((Fraction(total, one) for one, total in some), default=Fraction(1))
    above = max((Fraction(total - 1, one) for one, total in some), default=Fraction(1))
    near = ((above + most) / 2).limit_denominator(int(_MOST_FACTOR / max(Fraction(1), most)) or 1)
    num, den = comm = near.as_integer_ratio()
    require(
        max(comm) <= _MOST_FACTOR and all(scaled(one, comm) == total for one, total in delays),
        "no factor gives the delays of a microbatch of several sequences, rounded one by one: "
        "deal whole microbatches, or without delays",
        where="problems",
    )
    return {"stages": stages} | ({} if comm == ONE else {"comm": [num, den]})


def _row(stage: Stage, link: Link | None) -> list[int]:
    delays = [0, 0] if link is None else [link.F, link.B]
    return [*(getattr(stage, key) for key in AMOUNTS), *delays]
