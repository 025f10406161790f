"""What each sequence takes: a row of integers per sequence, one column per amount and stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.errors import BadInput
from pipesat.core.problem import MicrobatchClass, Route
from pipesat.core.settings import MOST_AMOUNT
from pipesat.placement.lengths import DEN, Factors, factors_of
from pipesat.replicas.replay import AMOUNTS, COLUMNS, column

if TYPE_CHECKING:
    from pipesat.core.problem import Link, Problem, Stage

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
        by += [int(name.startswith(("held", "delay"))) for name in COLUMNS]
    stated = np.array(base, dtype=np.int64)
    costs: Ints = -(-stated * factors[:, by] // DEN)
    for number, stage_data in enumerate(problem.stages):
        if stage_data.sums:
            first = column(number, "B")
            costs[:, first + 2] = costs[:, first] + costs[:, first + 1]
    large = np.argwhere(costs > MOST_AMOUNT)
    for sequence, at in large[:1].tolist():
        stage, name = divmod(at, len(COLUMNS))
        text = f"{COLUMNS[name]} of stage {stage} becomes {costs[sequence, at]}, at most 10^12 may"
        raise BadInput(text, where=f"lengths[{sequence}]", value=lengths[sequence])
    return costs


def require_exact(costs: Ints) -> None:
    """Refuse amounts whose sums do not fit into 64 bits.

    Raises
    ------
    BadInput
        If they do not.
    """
    if float(costs.sum(dtype=float)) > _LARGEST:
        raise BadInput("times and memory of all sequences together pass 2^59: use larger units")


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


def _row(stage: Stage, link: Link | None) -> list[int]:
    amounts: Mapping[str, Any] = {key: getattr(stage, key) for key in AMOUNTS}
    delays = [0, 0] if link is None else [link.F, link.B]
    return [*amounts.values(), *delays]
