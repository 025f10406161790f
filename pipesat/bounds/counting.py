"""Least cost of a small programme in whole numbers, bounded from below beyond doubt.

The linear relaxation is solved in floats (GLOP). Whatever multipliers come out, the bound that they
prove is worked out exactly: for y >= 0,

    c x >= y b + sum over j of min over 0 <= x_j <= most_j of (c - y A)_j x_j.

So rounding, or stopping early, can cost strength, never truth. A few nodes of branch and bound
close most of what is left to whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf, lcm
from typing import NamedTuple, Self, TypeAlias

_PARAMETERS = "use_dual_simplex: true change_status_to_imprecise: false use_preprocessing: "
_NODES = 23  # per programme
_MADE = count()  # nodes, so that equal ones keep their order
_TRIED = 4  # variables to split, for the best of them
_NOTHING = Fraction(0)
_WHOLE = 1e-6
_SIMPLE = 1000  # largest denominator of simple multipliers
_PRICE = 1e6  # of breaking a row, as a multiple of the largest cost
_TANGENTS = (1.0, 0.8, 0.6, 0.4, 0.2)


class WeightedSum(dict[int, int]):
    """A sum of variables, by their numbers, each times a whole number."""

    def __iadd__(self, other: Mapping[int, int]) -> Self:
        for variable, value in other.items():
            self[variable] = self.get(variable, 0) + value
        return self

    def __add__(self, other: Mapping[int, int]) -> WeightedSum:
        total = WeightedSum(self)
        total += other
        return total

    def __sub__(self, other: Mapping[int, int]) -> WeightedSum:
        return self + WeightedSum(other) * -1

    def __mul__(self, factor: int) -> WeightedSum:
        return WeightedSum({variable: factor * value for variable, value in self.items()})


class _AtLeast(NamedTuple):
    """``sum of coefficients times variables >= least``."""

    coefficients: Mapping[int, int]
    least: int


@dataclass
class Programme:
    """Minimise a cost over whole numbers from 0 to their ``most``, under linear rows.

    Branching looks at ``splits`` alone, if they are said; what is whole then has ``cases``, one of
    which every solution obeys.
    """

    costs: list[int] = field(default_factory=list)
    most: list[int] = field(default_factory=list)
    rows: list[_AtLeast] = field(default_factory=list)
    splits: list[int] | None = None
    cases: Callable[[], Iterable[Programme]] | None = None

    def variable(self, cost: int, most: int) -> int:
        """Add a variable of this cost (at least 0) per unit; return its number."""
        self.costs.append(cost)
        self.most.append(most)
        return len(self.costs) - 1

    def at_least(self, coefficients: Mapping[int, int], least: int) -> None:
        """Add a row; those whose coefficients are all 0 say nothing of the variables."""
        kept = {j: value for j, value in coefficients.items() if value}
        if kept:
            self.rows.append(_AtLeast(kept, least))

    def at_most(self, coefficients: Mapping[int, int], most: int) -> None:
        """Add a row the other way round."""
        self.at_least(WeightedSum(coefficients) * -1, -most)

    def equals(self, coefficients: Mapping[int, int], value: int) -> None:
        """Add a row in both directions."""
        self.at_least(coefficients, value)
        self.at_most(coefficients, value)

    def total(self, variables: Sequence[int]) -> None:
        """Let a variable be the sum of others, which alone may be of little matter."""
        if len(variables) > 1:
            total = self.variable(0, sum(self.most[j] for j in variables))
            self.equals(dict.fromkeys(variables, 1) | {total: -1}, 0)

    def of_two(self, each: int, number: WeightedSum, points: Iterable[int], most: int) -> int:
        """Add a variable, at most so much: at least ``each`` for any two of a number n.

        That is ``each n (n - 1) / 2``, by straight lines that meet it at some points.
        """
        total = self.variable(0, most)
        for n in points:
            # k (k - 1) / 2 >= n k - n (n + 1) / 2 for all whole numbers
            self.at_least(number * (-each * n) + {total: 1}, -each * n * (n + 1) // 2)
        return total

    def relaxed_cost(self) -> int:
        """Return a lower bound on the cost from the linear relaxation alone."""
        relaxation = _Relaxation(self)
        return relaxation.proven(relaxation.least([0] * len(self.most), self.most))

    def relaxed_rate(self) -> Fraction:
        """Return a lower bound on the cost over fractions, exactly: mostly the least one."""
        relaxation = _Relaxation(self)
        node = relaxation.least([0] * len(self.most), self.most)
        near = [Fraction(dual).limit_denominator(_SIMPLE) for dual in node.duals]
        return max(relaxation.exact(node), relaxation.exact(node._replace(duals=near)))

    def least_cost(self) -> int:
        """Return a lower bound on the cost: the least one, or a little less."""
        return least_of([self])


class _Node(NamedTuple):
    """The relaxation within some limits, as it was solved."""

    cost: float
    duals: Sequence[float | Fraction]
    values: Sequence[float]
    lows: Sequence[int]
    highs: Sequence[int]


class _Relaxation:
    """The linear relaxation of a programme; a row may be broken, at a price."""

    def __init__(self, programme: Programme) -> None:
        from ortools.linear_solver import linear_solver_pb2, pywraplp  # others need not load them

        self.programme, self.solver = programme, pywraplp.Solver.CreateSolver("GLOP")
        once = programme.splits == []  # what is solved again begins where it was
        self.solver.SetSolverSpecificParametersAsString(f"{_PARAMETERS}{once:d}")
        model, far = linear_solver_pb2.MPModelProto(), self.solver.infinity()
        unit, self.scales = max(programme.costs, default=1) or 1, list[float]()
        for most, cost in zip(programme.most, programme.costs, strict=True):
            model.variable.add(lower_bound=0, upper_bound=most, objective_coefficient=cost / unit)
        for broken, (coefficients, least) in enumerate(programme.rows, len(programme.most)):
            scale = max(map(abs, coefficients.values()))
            model.constraint.add(
                lower_bound=least / scale,
                upper_bound=far,
                var_index=[*coefficients, broken],
                coefficient=[*(value / scale for value in coefficients.values()), 1.0],
            )
            model.variable.add(lower_bound=0, upper_bound=far, objective_coefficient=_PRICE)
            self.scales.append(unit / scale)
        self.solver.LoadModelFromProto(model)
        self.objective, self.rows = self.solver.Objective(), self.solver.constraints()
        self.variables = self.solver.variables()[: len(programme.most)]

    def least(self, lows: Sequence[int], highs: Sequence[int]) -> _Node:
        """Solve it with each variable between two limits."""
        for variable, low, high in zip(self.variables, lows, highs, strict=True):
            variable.SetBounds(low, high)
        if self.solver.Solve() != self.solver.OPTIMAL:  # of odd coefficients: nothing is known
            return _Node(0.0, [0.0] * len(self.rows), lows, lows, highs)
        duals = [row.dual_value() * by for row, by in zip(self.rows, self.scales, strict=True)]
        values = [variable.solution_value() for variable in self.variables]
        return _Node(self.objective.Value(), duals, values, lows, highs)

    def proven(self, node: _Node) -> int:
        """Return the bound that multipliers prove, rounded up."""
        return ceil(self.exact(node))

    def exact(self, node: _Node) -> Fraction:
        """Return the bound that multipliers prove."""
        duals = [Fraction(dual) if dual > 0 else _NOTHING for dual in node.duals]
        unit = lcm(*(dual.denominator for dual in duals))
        reduced = [cost * unit for cost in self.programme.costs]
        total = 0
        for row, dual in zip(self.programme.rows, duals, strict=True):
            if dual:
                multiplier = dual.numerator * (unit // dual.denominator)
                total += multiplier * row.least
                for j, value in row.coefficients.items():
                    reduced[j] -= multiplier * value
        limits = zip(reduced, node.lows, node.highs, strict=True)
        total += sum(min(cost * low, cost * high) for cost, low, high in limits)
        return Fraction(total, unit)

    def halves(self, node: _Node) -> tuple[_Node, _Node] | None:
        """Split a node at a variable that is not whole, ``None`` if there is none.

        Of a few that are least whole, the one whose halves cost most.
        """
        splits = self.programme.splits
        split = range(len(node.lows)) if splits is None else splits
        apart = {j: abs(node.values[j] - round(node.values[j])) for j in split}
        least_whole = sorted((j for j, of in apart.items() if of > _WHOLE), key=lambda j: -apart[j])
        halves = (self._halves(node, j) for j in least_whole[:_TRIED])
        return max(halves, key=lambda two: sorted(child.cost for child in two), default=None)

    def _halves(self, node: _Node, j: int) -> tuple[_Node, _Node]:
        lows, highs = [*node.lows], [*node.highs]
        below = min(max(int(node.values[j]), lows[j]), highs[j] - 1)
        lows[j], highs[j] = below + 1, below
        return self.least(node.lows, highs), self.least(lows, node.highs)


_Open: TypeAlias = tuple[int, int, tuple[_Relaxation, _Node] | None, Iterator[Programme] | None]
"""A bound, a number, and how to split what costs no less: in halves, or else into cases."""


class Branching:
    """The least of the costs of some programmes, bounded ever better by branching."""

    def __init__(self, programmes: Iterable[Programme] = ()) -> None:
        self._open = list[_Open]()
        self._add_all(0, programmes)

    @property
    def bound(self) -> int:
        """A lower bound on the least cost."""
        return self._open[0][0]

    def _add(self, known: int, relaxation: _Relaxation, node: _Node) -> None:
        value, programme = max(known, relaxation.proven(node)), relaxation.programme
        halves = None if programme.splits == [] else (relaxation, node)  # some MiB that are let go
        cases = programme.cases and iter(programme.cases())
        heappush(self._open, (value, next(_MADE), halves, cases))

    def _add_all(self, known: int, programmes: Iterable[Programme]) -> None:
        for programme in programmes:
            one = _Relaxation(programme)
            self._add(known, one, one.least([0] * len(programme.most), programme.most))

    def join(self, other: Branching) -> None:
        """Take the programmes of another, as far as they are branched."""
        for entry in other._open:
            heappush(self._open, entry)

    def split(self) -> int:
        """Split what is least, or add its next case; return how many nodes that made.

        What has cases stays until all of them are there: none of them comes before it.
        """
        (known, _, whole, cases), before = self._open[0], len(self._open)
        if halves := whole and whole[0].halves(whole[1]):
            heappop(self._open)
            for child in halves:
                self._add(known, whole[0], child)
            return 1 + len(self._open) - before
        case = next(cases, None) if cases else None
        if case is not None:
            self._add_all(known, [case])
            return 1
        if cases and before > 1:
            heappop(self._open)
            return self.split()
        return 0

    def raise_beyond(self, value: float, most: int) -> None:
        """Split at most so often, until the bound is above a value."""
        for _ in range(most):
            if self.bound > value or not self.split():
                return


def least_of(programmes: Iterable[Programme], beyond: int = -1) -> int:
    """Return the least of the costs of some programmes, or a little less.

    Nothing up to ``beyond`` is of use: it ends with the first programme that costs no more, and
    then what it returns is no bound.
    """
    every, most = Branching(), 0
    for programme in programmes:
        one = Branching([programme])
        one.raise_beyond(beyond, _NODES)
        if one.bound <= beyond:
            return one.bound
        every.join(one)
        most += _NODES
    every.raise_beyond(inf, most)
    return every.bound


def tangent_points(most: int) -> list[int]:
    """Whole numbers up to ``most`` at which a convex sum is replaced by straight lines."""
    return sorted({max(1, round(share * most)) for share in _TANGENTS})
