"""The best row of each hand-written schedule: no problem of the table has a better one.

The sentence says how much shorter the advice is than the best 1F1B. That is true only if 1F1B was
tried wherever it could run: on the problem of every row of the table, also those that our search
found, with their recomputation. :func:`better_on_table` tries them,
:func:`require_best_of_families` holds every answer to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from pipesat.advise.question import Question
from pipesat.advise.rows import OURS, Row
from pipesat.advise.runtimes import marked
from pipesat.advise.written import best_flags, hand_written_of, row_of
from pipesat.core.claims import require_best
from pipesat.core.errors import NotApplicable
from pipesat.workflows.hand_written import baseline


def rank(row: Row) -> tuple[bool, bool, int]:
    """Key to sort rows by: what fits first, then what runs, then the fastest."""
    return not row.fits, not row.runs, row.makespan


def shown_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the table: 1F1B and ours on every split, of all other schedules the best one."""
    kept: dict[tuple[object, ...], Row] = {}
    for row in sorted(rows, key=rank):
        both = row.name in ("1f1b", OURS)
        kept.setdefault((row.name, row.split, bool(row.by_hand)) if both else (row.name,), row)
    return sorted(kept.values(), key=lambda row: (not row.fits, row.makespan))


def best_of(rows: Iterable[Row], name: str, *, runs: bool = False) -> Row | None:
    """Return the fastest row of a schedule that fits, or that its runtime runs too."""
    found = [row for row in rows if row.name == name and (row.runs if runs else row.fits)]
    return min(found, key=lambda row: row.makespan, default=None)


def written_on(question: Question, row: Row) -> Iterator[Row]:
    """Yield the hand-written schedules on the split of a row, with what recomputing suits them."""
    runtime = question.runtime_in(row.shape.placement)
    for name in hand_written_of(question, row.shape.placement):
        try:
            yield best_flags(question, name, row.split, row.shape, row.partition, runtime)
        except NotApplicable:  # the split has a stage too few, or many, for it
            continue


def better_on_table(question: Question, rows: Iterable[Row]) -> list[Row]:
    """Return hand-written rows on the problems of the table that are the best of their name."""
    rows, added = list(rows), []
    tried: set[tuple[str, str]] = set()
    more = True
    while more:
        more = False
        for row in shown_rows(rows):
            for made in _on_problem_of(question, row, tried):
                if made.fits and _is_better(made, rows):
                    rows.append(made)
                    added.append(made)
                    more = True
    return added


def require_best_of_families(question: Question, rows: Iterable[Row]) -> None:
    """Raise ``Contradiction`` if a baseline on a problem of the table beats the best of its name.

    The schedules are built anew here, from the problems alone.
    """
    rows = tuple(rows)
    tried: set[tuple[str, str]] = set()
    for row in shown_rows(rows):
        for made in _on_problem_of(question, row, tried):
            where = f"{made.name} on the problem of {row.name} ({row.split} split)"
            for runs in (False, True):
                if made.runs if runs else made.fits:
                    best = best_of(rows, made.name, runs=runs)
                    value = None if best is None else best.makespan
                    require_best(f"{made.name} of the table", value, [(where, made.makespan)])


def _is_better(made: Row, rows: Iterable[Row]) -> bool:
    found = [best_of(rows, made.name, runs=runs) for runs in {False, made.runs}]
    return any(best is None or made.makespan < best.makespan for best in found)


def _on_problem_of(question: Question, row: Row, tried: set[tuple[str, str]]) -> Iterator[Row]:
    """Yield the hand-written schedules of a row's problem, as the runtime may run it."""
    runtime = question.runtime_in(row.shape.placement)
    problem = question.problem(row.partition, row.shape, row.recompute, runtime, first=row.first)
    for name in hand_written_of(question, row.shape.placement):
        if (name, problem.sha256) in tried:
            continue
        tried.add((name, problem.sha256))
        build = partial(baseline, name)
        try:
            made = row_of(
                build, name, row.split, row.shape, row.partition, row.recompute, problem, runtime
            )
        except NotApplicable:
            continue
        yield marked(question, replace(made, first=row.first))
