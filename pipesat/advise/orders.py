"""Any order that fits: every hand-written schedule there is, on the problems that count.

The table has the schedules that users know. Others (v-auto, zb-auto, eager 1F1B, list scheduling,
...) may be shorter on the same problem, and take milliseconds to seconds: what the answer advises,
compares with or calls ours must not be longer. :func:`better_orders` tries them all,
:func:`require_best_orders` holds every answer to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from pipesat.advise.families import best_of, compared, plain_of, shown_rows
from pipesat.advise.question import Question
from pipesat.advise.rows import OURS, Row, fits, rank
from pipesat.advise.runtimes import marked
from pipesat.bounds.one_device import closed_form_bound
from pipesat.core.claims import Bound, require_best
from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.workflows.hand_written import baselines


def chosen_of(rows: Iterable[Row]) -> Row | None:
    """Return the row that is advised: the best that runs."""
    return min((row for row in rows if row.runs), key=rank, default=None)


def named_rows(question: Question, rows: Iterable[Row]) -> list[Row]:
    """Return the rows of which the answer says how long they take.

    They are the advice, the best with nothing by hand, ours, and what these are compared with.
    """
    rows = tuple(rows)
    found = [chosen_of(rows), plain_of(rows), best_of(rows, OURS)]
    found += [row for _, row in compared(question, rows)]
    return [*{id(row): row for row in found if row is not None}.values()]


def in_any_order(question: Question, row: Row) -> Problem:
    """Return a row's problem, of all orders that the runtime runs; of Megatron-LM's, of any."""
    if question.runtime != "megatron":
        return row.problem
    return question.problem(row.partition, row.shape, row.recompute, None, first=row.first)


def best_hand_written(problem: Problem) -> Schedule | None:
    """Return the shortest hand-written schedule that fits, list scheduling included."""
    return _best(_Keyed(problem.sha256, problem))


@dataclass(frozen=True)
class _Keyed:
    sha256: str
    problem: Problem = field(compare=False)


@lru_cache(maxsize=256)
def _best(keyed: _Keyed) -> Schedule | None:
    made = []
    for build in baselines().values():
        with contextlib.suppress(NotApplicable):
            made.append(build(keyed.problem))
    made.sort(key=lambda schedule: schedule.makespan)
    return next((schedule for schedule in made if fits(keyed.problem, schedule)), None)


def _best_on(question: Question, row: Row) -> Schedule | None:
    """The shortest hand-written schedule on a row's stages; of offloading, none is looked for."""
    return None if row.offload else best_hand_written(in_any_order(question, row))


def in_our_order(
    question: Question, like: Row, schedule: Schedule, bound: Bound | None = None
) -> Row:
    """Return the row of an order on the same stages as another row."""
    runtime = None if question.runtime == "megatron" else like.runtime
    row = replace(
        like,
        name=OURS,
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


def better_orders(question: Question, rows: Iterable[Row], on: Iterable[Row]) -> Iterator[Row]:
    """Yield our rows: hand-written schedules shorter than all known on the stages of some rows."""
    rows = [*rows]
    for row in on:
        best = _best_on(question, row)
        known = least_on(rows, row)
        if best is not None and (known is None or best.makespan < known):
            rows.append(in_our_order(question, row, best))
            yield rows[-1]


def on_same_stages(rows: Iterable[Row], row: Row) -> list[Row]:
    """Return the rows whose problem is that of another, but for what their runtimes run."""
    return [other for other in rows if _stages(other) == _stages(row)]


def least_on(rows: Iterable[Row], row: Row) -> int | None:
    """The least time known on the stages of a row."""
    same = on_same_stages(rows, row)
    return min((other.makespan for other in same if other.fits), default=None)


def _stages(row: Row) -> tuple[object, ...]:
    return row.partition, row.shape.homes, row.recompute, row.first, row.offload


def require_best_orders(question: Question, rows: Iterable[Row]) -> None:
    """Raise ``Contradiction`` if a hand-written schedule beats what the answer names.

    It is compared with the best row on the same stages: of Megatron-LM's rows, that may be ours.
    """
    rows = tuple(rows)
    for row in named_rows(question, rows):
        best = _best_on(question, row)
        if best is not None:
            where = f"{best.source} on the problem of {row.name} ({row.split} split)"
            others = [(where, best.makespan)]
            require_best("what is known on its stages", least_on(rows, row), others)


def unsettled(question: Question, rows: Iterable[Row], searched: Sequence[Problem]) -> list[Row]:
    """Return the rows whose order is worth a search, the most important first.

    These are the advice and the best with nothing by hand; for Megatron-LM, whose order is its own,
    the best in any order; then other rows of the table that could become shorter than the best.
    """
    rows = tuple(row for row in rows if row.fits and not row.offload)
    megatron = question.runtime == "megatron"
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
