"""Any order that fits: every hand-written schedule there is, on the problems that count.

The table has the schedules that users know. Others (v-auto, zb-auto, eager 1F1B, list scheduling,
...) may be shorter on the same problem, and take milliseconds to seconds:
:func:`best_hand_written` tries them as long as there is time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from pipesat.advise.credit import credited
from pipesat.advise.families import compared, plain_of, shown_rows
from pipesat.advise.question import Question
from pipesat.advise.rows import Row, fits, rank
from pipesat.advise.runtimes import marked
from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.claims import Bound
from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics import LIST_SCHEDULING
from pipesat.heuristics.list_scheduling import list_schedules, policies
from pipesat.heuristics.registry import GiveUp, never
from pipesat.workflows.hand_written import baselines

_POLICIES: Final = 8


def chosen_of(rows: Iterable[Row]) -> Row | None:
    """Return the row that is advised: the best that runs."""
    return min((row for row in rows if row.runs), key=rank, default=None)


def best_not_run(rows: Iterable[Row]) -> Row | None:
    """Return the shortest row that fits and that the runtime cannot run, but for offloading."""
    left = (row for row in rows if row.fits and not row.runs and not row.offload)
    return min(left, key=rank, default=None)


def named_rows(question: Question, rows: Iterable[Row]) -> list[Row]:
    """Return the rows of which the answer says how long they take.

    They are the advice, the best with nothing by hand, the best that does not run, and what these
    are compared with.
    """
    rows = tuple(rows)
    found = [chosen_of(rows), plain_of(rows), best_not_run(rows)]
    found += [row for _, row in compared(question, rows)]
    return [*{id(row): row for row in found if row is not None}.values()]


def in_any_order(question: Question, row: Row) -> Problem:
    """Return a row's problem, of all orders that the runtime runs; of Megatron-LM's, of any."""
    if question.any_order:
        return row.problem
    return question.problem(row.partition, row.shape, row.recompute, None, first=row.first)


class Tried(NamedTuple):
    """The shortest hand-written schedule of a problem that fits, and whether all were tried."""

    best: Schedule | None
    all_made: bool


def best_hand_written(problem: Problem, over: GiveUp = never) -> Tried:
    """Return the shortest hand-written schedule that fits, of those made before it is ``over``.

    The quick ones come first, of list scheduling's policies the usually best ones.
    """
    made: list[Schedule] = []
    entries = [entry for entry in baselines().values() if entry.name != LIST_SCHEDULING]
    for entry in sorted(entries, key=lambda entry: entry.slow is not None):
        if over():
            break
        with contextlib.suppress(NotApplicable):
            made.append(entry(problem, over))
    made += list_schedules(problem, over, islice(policies(problem), _POLICIES))
    made.sort(key=lambda schedule: schedule.makespan)
    best = next((schedule for schedule in made if fits(problem, schedule)), None)
    return Tried(best, not over())


def in_order(question: Question, like: Row, schedule: Schedule, bound: Bound | None = None) -> Row:
    """Return the row of an order on the same stages as another row, by the name of who found it."""
    runtime = like.runtime if question.any_order else None
    row = replace(
        like,
        name=credited(schedule.source),
        problem=in_any_order(question, like),
        schedule=schedule,
        runtime=runtime,
        fits=True,
        group=None,
        bound=bound,
        why_not="",
        by_hand="",
        setting="",
    )
    return marked(question, row)


def on_same_stages(rows: Iterable[Row], row: Row) -> list[Row]:
    """Return the rows whose problem is that of another, but for what their runtimes run."""
    return [other for other in rows if _stages(other) == _stages(row)]


def least_on(rows: Iterable[Row], row: Row) -> int | None:
    """The least time known on the stages of a row."""
    same = on_same_stages(rows, row)
    return min((other.makespan for other in same if other.fits), default=None)


def _stages(row: Row) -> tuple[object, ...]:
    return row.partition, row.shape.homes, row.recompute, row.first, row.offload


def unsettled(question: Question, rows: Iterable[Row], searched: Sequence[Problem]) -> list[Row]:
    """Return the rows whose order is worth a search, the most important first.

    These are the advice and the best with nothing by hand; for Megatron-LM, whose order is its own,
    the best in any order; then other rows of the table that could become shorter than the best.
    """
    rows = tuple(row for row in rows if row.fits and not row.offload)
    megatron = not question.any_order
    able = [row for row in rows if row.runs or megatron]
    best = min(able, key=lambda row: rank(row)[2:], default=None)
    if best is None:
        return []
    named = [best, None if megatron else plain_of(rows)]
    seen = {problem.sha256 for problem in searched}
    left = []
    for row in [*named, *shown_rows(rows)]:
        if row is None or (problem := in_any_order(question, row)).sha256 in seen:
            continue
        seen.add(problem.sha256)
        if (
            any(row is one for one in named)
            or closed_form_bound(problem, "makespan").value < best.makespan
        ):
            left.append(row)
    return left


def with_bound(row: Row, problem: Problem, bound: Bound | None) -> Row:
    """Return a row with what is proven of its problem, if it is that problem and more is proven."""
    if bound is None or row.problem.sha256 != problem.sha256:
        return row
    if row.bound is not None and row.bound.value >= bound.value:
        return row
    return replace(row, bound=bound)
