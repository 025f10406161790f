"""A plan, from layers to answer: the phases of the search with the comparison between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pipesat.layers.pipeline import Pipeline
from pipesat.plan.answer import Plan, answer
from pipesat.plan.comparison import HandWritten, Row, fill, row_of_plan, rows_to_compare
from pipesat.plan.search import Search

_FOR_COMPARISON: Final = 0.15  # of the time limit

Hand = tuple[str, Pipeline, tuple[range, ...]]
"""Name, shape and partition of a split that a user gives."""


def run_plan(
    search: Search,
    *,
    hand: Sequence[Hand] = (),
    written: HandWritten | None = None,
    left_out: Sequence[tuple[str, str]] = (),
    seed: int = 0,
    workers: int = 1,
    versions: Mapping[str, str] | None = None,
) -> Plan:
    """Search within its time limit, and compare.

    Parameters
    ----------
    written
        Columns of the comparison; ``None``: there is none.
    left_out
        Shapes that were not tried, and why.

    Raises
    ------
    Infeasible
        If no partition of any shape fits into memory.
    BadInput
        If the only shape's flags and ties leave no partition.
    """
    search.bound_shapes()
    rows: list[Row] = []
    if written is not None or hand:
        rows = rows_to_compare(search, hand)
    search.propose()
    search.move()
    search.list_all()
    if written is not None:
        fill(search, rows, written, _FOR_COMPARISON * search.time_limit)
    search.polish()
    search.solve_survivors()
    search.go_on()
    if written is not None:
        rows.append(row_of_plan(search, written))
    return answer(search, rows, left_out, seed=seed, workers=workers, versions=versions or {})
