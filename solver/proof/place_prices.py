"""Prices of a microbatch's places in a replica: a linear programme about the mean replica.

The makespan of an order is the longest of many paths, so it is convex in what microbatches take,
and the slowest replica takes at least what one with the mean of all would. Which mean that is, only
the sequences say that stand at each place: a programme in their shares. Its multipliers are a
mixture of paths, a price of each place and a price of tokens.
:mod:`pipesat.compare.replicas.least_times` turns them into a bound, whatever they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipesat.core.arrays import Floats


class Prices(NamedTuple):
    """What paths charge.

    ``amounts`` has, per place, how much of each column is on the mean path; shape (m, columns).
    ``place`` is what a sequence earns by standing at a place, ``token`` what each token there
    costs; shape (m,).
    """

    amounts: Floats
    place: Floats
    token: Floats


def place_prices(
    replay: Any,
    costs: Floats,
    tokens: Floats,
    numbers: Floats,
    cap: float | None,
    *,
    whole: bool,
) -> Prices | None:
    """Solve the programme for groups of sequences; ``None`` if that fails.

    Parameters
    ----------
    replay
        The order of one replica's ops, as :mod:`pipesat.compare.replicas.replay` has it.
    costs, tokens
        Mean of each group, shape (groups, columns) and (groups,).
    numbers
        How many of each group one replica has on average.
    whole
        Whether a place has one sequence, not at least one.
    """
    scale = max(float(costs.max()), 1.0)
    programme = _PlaceProgramme(replay, costs / scale, tokens, numbers, cap, whole)
    if programme.solver.Solve() != programme.solver.OPTIMAL:
        return None
    duals = [np.array([row.dual_value() for row in rows]) for rows in programme.limits]
    place = duals[0] if whole else np.maximum(duals[0], 0)
    token = np.maximum(-duals[1], 0) if cap is not None else np.zeros(replay.places)
    return Prices(programme.mixture(), place * scale, token * scale)


class _PlaceProgramme:
    """Variables: the share of each group at each place, what places take, ends of ops, makespan."""

    def __init__(
        self,
        replay: Any,
        costs: Floats,
        tokens: Floats,
        numbers: Floats,
        cap: float | None,
        whole: bool,
    ) -> None:
        from ortools.linear_solver import pywraplp

        self.replay, m = replay, replay.places
        self.solver: Any = pywraplp.Solver.CreateSolver("GLOP")
        far = self.solver.infinity()

        def new(most: float = far) -> Any:
            return self.solver.NumVar(0, most, "")

        shares = [[new(number) for _ in range(m)] for number in numbers.tolist()]
        for row, number in zip(shares, numbers.tolist(), strict=True):
            self._row(number, number, dict.fromkeys(row, 1))
        count = [self._row(1, 1 if whole else far, {row[j]: 1 for row in shares}) for j in range(m)]
        long: list[Any] = []
        if cap is not None:
            sizes = tokens.tolist()
            for j in range(m):
                here = {row[j]: size / cap for row, size in zip(shares, sizes, strict=True)}
                long.append(self._row(-far, 1, here))
        self.limits, self.cap = (count, long), cap
        taken = [[new() for _ in range(costs.shape[1])] for _ in range(m)]
        for j, own in enumerate(taken):
            for column, variable in enumerate(own):
                here = {row[j]: -float(c) for row, c in zip(shares, costs[:, column], strict=True)}
                self._row(0, 0, {variable: 1, **here})
        ends, ops = [None, *(new() for _ in replay.ops)], replay.arrays
        self.arcs: list[list[tuple[int, bool, Any]]] = []
        for number, (length, at, delay) in enumerate(
            zip(ops.length.tolist(), ops.at.tolist(), ops.delay.tolist(), strict=True), 1
        ):
            arcs = []
            before, source = int(ops.before[number - 1]), int(ops.source[number - 1])
            by_source = [(source, delay >= 0)] if source else []
            by_device = [(before, False)] if before or not source else []
            for waits, late in by_device + by_source:
                terms = {ends[number]: 1.0, taken[at][length]: -1.0}
                if late:
                    terms[taken[at][delay]] = -1.0
                if waits:
                    terms[ends[waits]] = -1.0
                arcs.append((waits, late, self._row(0, far, terms)))
            self.arcs.append(arcs)
        longest = new()
        last = replay.last.tolist()
        self.last = [(end, self._row(0, far, {longest: 1, ends[end]: -1})) for end in last]
        self.solver.Minimize(longest)

    def _row(self, least: float, most: float, terms: dict[Any, float]) -> Any:
        made = self.solver.Constraint(least, most)
        for variable, coefficient in terms.items():
            made.SetCoefficient(variable, coefficient)
        return made

    def mixture(self) -> Floats:
        """Return what a mixture of paths charges: it follows the multipliers back, op by op.

        Whatever they are, the parts of one op's flow add up to it, so it is a mixture.
        """
        replay = self.replay
        found = np.zeros((replay.places, len(replay.columns)))
        flow = np.zeros(1 + len(replay.ops))
        for end, part in _parts(self.last):
            flow[end] += part
        for number in range(len(replay.ops), 0, -1):
            if not flow[number]:
                continue
            at = replay.arrays.at[number - 1]
            found[at, replay.arrays.length[number - 1]] += flow[number]
            arcs = self.arcs[number - 1]
            for (waits, late), part in _parts([((w, late), row) for w, late, row in arcs]):
                flow[waits] += flow[number] * part
                if late:
                    found[at, replay.arrays.delay[number - 1]] += flow[number] * part
        return found


def _parts(rows: list[tuple[Any, Any]]) -> list[tuple[Any, float]]:
    """Return shares of 1 in proportion to multipliers; all to the first where there are none."""
    duals = [max(0.0, row.dual_value()) for _, row in rows]
    total = sum(duals)
    if not total:
        return [(rows[0][0], 1.0)]
    return [(key, dual / total) for (key, _), dual in zip(rows, duals, strict=True)]
