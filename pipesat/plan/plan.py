"""A plan, from layers to answer: the joint search over shapes, partitions, recomputation, orders.

:func:`run_plan` calls the phases in their order; what they share is a
:class:`~pipesat.plan.search.Search`, and what they leave is
:class:`~pipesat.plan.findings.Findings`, so that the search can end after any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from pipesat.core.solving import LEAST_SECONDS
from pipesat.layers.pipeline import Pipeline
from pipesat.plan.answer import Plan
from pipesat.plan.comparison import HandWritten, SplitRow, fill, row_of_plan, rows_to_compare
from pipesat.plan.conclusion import answer
from pipesat.plan.listing import list_all
from pipesat.plan.phases import Reach, bound_shapes, move, polish, propose, solve_survivors
from pipesat.plan.search import Search

_FOR_COMPARISON: Final = 0.15  # of the time limit

Hand: TypeAlias = tuple[str, Pipeline, tuple[range, ...]]
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
    reach, rows = Reach(), list[SplitRow]()
    bound_shapes(search.known)
    if written is not None or hand:
        rows = rows_to_compare(search.known, hand)
    propose(search, reach)
    move(search, reach)
    list_all(search, reach)
    if written is not None:
        fill(search, rows, written, _FOR_COMPARISON * search.deadline.limit)
    polish(search)
    solve_survivors(search)
    _go_on(search, reach)
    if written is not None:
        rows.append(row_of_plan(search, written))
    return answer(
        search.known,
        rows,
        left_out,
        seconds=search.deadline.seconds,
        seed=seed,
        workers=workers,
        versions=versions or {},
    )


def _go_on(search: Search, reach: Reach) -> None:
    """With time left and no proof: move more, list more, and solve what is new."""
    known, deadline = search.known, search.deadline
    while deadline.left > LEAST_SECONDS and not known.complete:
        reach = reach.farther(deadline.left / deadline.limit)
        considered = len(known.memo)
        propose(search, reach)
        move(search, reach)
        list_all(search, reach)
        solve_survivors(search)
        if len(known.memo) == considered:
            return
