"""Least cost of a small programme in whole numbers, bounded from below beyond doubt.

The linear relaxation is solved in floats, by the simplex method on its dual. Whatever multipliers
come out, the bound that they prove is worked out exactly: for y >= 0,

    c x >= y b + sum over j of min over 0 <= x_j <= most_j of (c - y A)_j x_j.

So rounding, or stopping early, can cost strength, never truth. A few nodes of branch and bound
close most of what is left to whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_PIVOTS = 400
_NODES = 24
_TINY = 1e-9
_TANGENTS = (1.0, 0.8, 0.6, 0.4, 0.2)
_MANY_PIVOTS, _SCALINGS, _RAISED = 3000, 4, 1e-6  # of large programmes


class _Row(NamedTuple):
    """``sum of coefficients times variables >= least``."""

    coefficients: Mapping[int, int]
    least: int


class _Relaxed(NamedTuple):
    """A proven lower bound, and the relaxation's solution as far as it was found."""

    bound: Fraction
    values: NDArray[np.float64]


@dataclass
class Programme:
    """Minimise a cost over whole numbers from 0 to their ``most``, under linear rows."""

    costs: list[int] = field(default_factory=list)
    most: list[int] = field(default_factory=list)
    rows: list[_Row] = field(default_factory=list)

    def variable(self, cost: int, most: int) -> int:
        """Add a variable of this cost (at least 0) per unit; return its number."""
        self.costs.append(cost)
        self.most.append(most)
        return len(self.costs) - 1

    def at_least(self, coefficients: Mapping[int, int], least: int) -> None:
        """Add a row; those whose coefficients are all 0 say nothing of the variables."""
        kept = {j: value for j, value in coefficients.items() if value}
        if kept:
            self.rows.append(_Row(kept, least))

    def at_most(self, coefficients: Mapping[int, int], most: int) -> None:
        """Add a row the other way round."""
        self.at_least({j: -value for j, value in coefficients.items()}, -most)

    def equals(self, coefficients: Mapping[int, int], value: int) -> None:
        """Add a row in both directions."""
        self.at_least(coefficients, value)
        self.at_most(coefficients, value)

    def relaxed_cost(self) -> int:
        """Return a lower bound on the cost from the linear relaxation alone.

        For programmes of hundreds of variables with coefficients of very different sizes: rows and
        columns are scaled, and costs raised a little and all differently, against ties.
        """
        matrix, least = self._arrays(self.rows)
        rows, columns = np.ones(len(matrix)), np.ones(len(self.costs))
        for _ in range(_SCALINGS):
            rows *= _sizes(matrix * rows[:, None] * columns, 1)
            columns *= _sizes(matrix * rows[:, None] * columns, 0)
        costs = np.array(self.costs, dtype=float) * columns
        unit = costs.max(initial=0) or 1.0
        chance = np.random.default_rng(0).random(len(costs))
        scaled = matrix * rows[:, None] * columns
        duals, _ = _dual_simplex(
            scaled, least * rows, costs / unit, raised=_RAISED * (1 + chance), pivots=_MANY_PIVOTS
        )
        return ceil(self._proven(self.rows, duals * unit * rows))

    def least_cost(self) -> int:
        """Return a lower bound on the cost: the least one, or a little less."""
        return least_of([self])

    def _branch(self, first: _Relaxed, enough: float) -> int:
        """Return a lower bound on the cost; end early once it is ``enough``."""
        open_nodes = [(ceil(first.bound), 0, first, list[_Row]())]
        for count in range(1, _NODES):
            bound, _, relaxed, extra = open_nodes[0]
            whole = np.abs(relaxed.values - np.round(relaxed.values))
            if bound >= enough or whole.max(initial=0) < 1e-6:
                break
            heappop(open_nodes)
            chosen = int(whole.argmax())
            below = int(np.floor(relaxed.values[chosen]))
            for side, row in enumerate((_Row({chosen: -1}, -below), _Row({chosen: 1}, below + 1))):
                child = self._relaxed([*extra, row])
                value = max(bound, ceil(child.bound))
                heappush(open_nodes, (value, 2 * count + side, child, [*extra, row]))
        return open_nodes[0][0]

    def _relaxed(self, extra: Sequence[_Row]) -> _Relaxed:
        rows = [*self.rows, *extra]
        matrix, least = self._arrays(rows)
        scale = np.abs(matrix).max(axis=1, initial=1)
        unit = max(self.costs, default=1) or 1
        duals, values = _dual_simplex(
            matrix / scale[:, None], least / scale, np.array(self.costs, dtype=float) / unit
        )
        return _Relaxed(self._proven(rows, duals * unit / scale), values)

    def _arrays(self, rows: Sequence[_Row]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        matrix = np.zeros((len(rows), len(self.costs)))
        for number, row in enumerate(rows):
            for j, value in row.coefficients.items():
                matrix[number, j] = value
        return matrix, np.array([row.least for row in rows], dtype=float)

    def _proven(self, rows: Sequence[_Row], duals: NDArray[np.float64]) -> Fraction:
        """Return the bound that multipliers prove, exactly."""
        ratios = [max(0.0, dual).as_integer_ratio() for dual in duals.tolist()]
        unit = max((denominator for _, denominator in ratios), default=1)  # powers of two
        reduced = [cost * unit for cost in self.costs]
        total = 0
        for row, (numerator, denominator) in zip(rows, ratios, strict=True):
            if not numerator:
                continue
            multiplier = numerator * (unit // denominator)
            total += multiplier * row.least
            for j, value in row.coefficients.items():
                reduced[j] -= multiplier * value
        gaps = zip(reduced, self.most, strict=True)
        return Fraction(total + sum(cost * most for cost, most in gaps if cost < 0), unit)


def least_of(programmes: Iterable[Programme]) -> int:
    """Return the least of the costs of some programmes, or a little less.

    The one of least relaxation comes first, and the others end where they cannot be less.
    """
    relaxed = [(programme._relaxed([]), programme) for programme in programmes]
    least: float = inf
    for first, programme in sorted(relaxed, key=lambda pair: pair[0].bound):
        least = min(least, programme._branch(first, least))
    return int(least)


def _sizes(matrix: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """What to multiply rows (axis 1) or columns by: one over the mean size of their entries."""
    present = matrix != 0
    logs = np.log(np.where(present, np.abs(matrix), 1.0)).sum(axis=axis)
    scale: NDArray[np.float64] = np.exp(-logs / np.maximum(present.sum(axis=axis), 1))
    return scale


def _dual_simplex(
    matrix: NDArray[np.float64],
    least: NDArray[np.float64],
    costs: NDArray[np.float64],
    *,
    raised: NDArray[np.float64] | float = 0.0,
    pivots: int = _PIVOTS,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Solve ``max least y, y matrix <= costs, y >= 0``; return y and the primal solution.

    Costs are at least 0, so y = 0 is where it starts. If no x satisfies the rows, y is far out on
    a ray on which the bound grows. ``raised`` is added to the costs on the way, and y is that of
    the costs themselves on the same basis.
    """
    rows, columns = matrix.shape
    table = np.zeros((columns + 1, rows + columns + 1))
    table[:columns, :rows] = matrix.T
    table[:columns, rows:-1] = np.eye(columns)
    table[:columns, -1] = costs + raised
    table[columns, :rows] = -least
    basis = np.arange(rows, rows + columns)
    ray = np.zeros(rows + columns)
    for count in range(pivots):
        goal = table[columns, :-1]
        # the steepest first; after a while the first, which never goes round in circles
        better = np.flatnonzero(goal < -_TINY)
        if not better.size:
            break
        entering = int(better[0]) if count > pivots // 2 else int(goal.argmin())
        column = table[:columns, entering]
        rising = np.flatnonzero(column > _TINY)
        if not rising.size:
            ray[entering] = 1
            ray[basis] = -column
            break
        ratios = table[rising, -1] / column[rising]
        ties = rising[ratios <= ratios.min() + 1e-12]
        leaving = int(ties[basis[ties].argmin()])
        table[leaving] /= table[leaving, entering]
        factors = table[:, entering].copy()
        factors[leaving] = 0
        table -= np.outer(factors, table[leaving])
        basis[leaving] = entering
    duals = np.zeros(rows + columns)
    duals[basis] = table[:columns, -1]
    if np.any(raised):
        chosen = np.hstack([matrix.T, np.eye(columns)])[:, basis]
        duals[basis] = np.linalg.lstsq(chosen, costs, rcond=None)[0]
    duals += 1e6 * ray
    return np.maximum(duals[:rows], 0), table[columns, rows:-1].copy()


def add_to(row: dict[int, int], other: Mapping[int, int], factor: int) -> None:
    """Add a row's coefficients, times a factor, to those of another."""
    if factor:
        for variable, value in other.items():
            row[variable] = row.get(variable, 0) + factor * value


def tangent_points(most: int) -> list[int]:
    """Whole numbers up to ``most`` at which a convex sum is replaced by straight lines."""
    return sorted({max(1, round(share * most)) for share in _TANGENTS})
