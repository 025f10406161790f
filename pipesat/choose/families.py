"""The best row of each hand-written schedule: no problem of the table has a better one.

The answer says how much shorter the advice is than the best 1F1B. That is true only if 1F1B was
tried wherever it could run: on the problem of every row of the table, also those that our search
found, with their recomputation. :func:`better_on_table` tries them as long as there is time. What
other schedules there are is tried in :mod:`pipesat.choose.families`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.choose.candidates import Candidate
from pipesat.choose.pairs import OFFLOAD
from pipesat.choose.question import Question
from pipesat.choose.rows import PLAINEST_FIRST, Row, credited, fits, rank
from pipesat.choose.runtimes import marked
from pipesat.choose.written import SPLITS, hand_written_of, plainly_named, row_of, rows_of_flags
from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics import LIST_SCHEDULING
from pipesat.heuristics.list_scheduling import list_schedules, policies
from pipesat.heuristics.registry import GiveUp, never
from pipesat.workflows.hand_written import baseline, baselines

_ALWAYS: Final = (*PLAINEST_FIRST, OFFLOAD)


def shown_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the table: 1F1B on every split that differs, of all other schedules the best row.

    The best that runs with nothing by hand is among them. Ours, and published schedules that few
    users know, are there where no other row is as good; what fits and does not run, only if nothing
    of its name does.
    """
    ranked = sorted(rows, key=rank)
    kept: dict[tuple[str, str], Row] = {}
    running = {row.name for row in ranked if row.runs}
    for row in ranked:
        if row.name in _ALWAYS and (row.runs or not row.fits or row.name not in running):
            split = row.split if row.name == "1f1b" else ""
            if all(row.partition != k.partition for k in kept.values() if k.name == row.name):
                kept.setdefault((row.name, split), row)
    shown = [*kept.values()]
    easy = [row for row in ranked if row.runs and not row.by_hand][:1]
    for row in [*easy, *(row for row in ranked if row.name not in _ALWAYS)]:
        if row not in shown and not any(_as_good(other, row) for other in shown):
            shown.append(row)
    return sorted(shown, key=lambda row: (not row.fits, *rank(row)[2:]))


def _as_good(other: Row, row: Row) -> bool:
    """Whether another row leaves no reason to take a row."""
    easier = not other.by_hand or row.by_hand != ""
    runs = other.fits >= row.fits and other.runs >= row.runs
    return runs and easier and other.makespan <= row.makespan and other.name != OFFLOAD


def best_of(rows: Iterable[Row], name: str, *, runs: bool = False) -> Row | None:
    """Return the fastest row of a schedule that fits, or that its runtime runs too."""
    found = [row for row in rows if row.name == name and (row.runs if runs else row.fits)]
    return min(found, key=lambda row: (row.makespan, row.by_hand != ""), default=None)


def plain_of(rows: Iterable[Row]) -> Row | None:
    """Return the best row that runs as it is exported."""
    return min((row for row in rows if row.runs and not row.by_hand), key=rank, default=None)


def compared(question: Question, rows: Iterable[Row]) -> Iterator[tuple[str, Row | None]]:
    """Yield what users know, to compare with: for Megatron-LM, what it runs as it is called."""
    rows = tuple(rows)
    if question.any_order:
        yield "1F1B found", best_of(rows, "1f1b")
        yield "interleaved 1F1B found", best_of(rows, "interleaved-1f1b")
        if question.parts is not None:
            yield "DualPipeV found", best_of(rows, "dualpipev")
        return
    yield "1F1B found that it runs", best_of(rows, "1f1b", runs=True)
    default = [row for row in rows if row.group is None and row.split in SPLITS]
    label = "interleaved 1F1B in groups of the default size on the even or the balanced split"
    yield label, best_of(default, "interleaved-1f1b", runs=True)


def written_on(question: Question, row: Row, over: GiveUp) -> Iterator[Row]:
    """Yield the hand-written schedules on the split of a row, with what recomputing suits them."""
    runtime = question.runtime_in(row.shape.placement)
    for name in hand_written_of(question, row.shape.placement):
        try:
            yield from rows_of_flags(
                question, name, row.split, row.shape, row.partition, runtime, over=over
            )
        except NotApplicable:  # the split has a stage too few, or many, for it
            continue


def better_on_table(question: Question, rows: Iterable[Row], over: GiveUp) -> list[Row]:
    """Return hand-written rows on the problems of the table that are the best of their name.

    No more are tried once it is ``over``.
    """
    rows, added = list(rows), []
    tried: set[tuple[str, Candidate]] = set()
    more = True
    while more:
        more = False
        for row in shown_rows(rows):
            for made in _on_problem_of(question, row, rows, tried, over):
                if made.fits and _is_better(made, rows):
                    rows.append(made)
                    added.append(made)
                    more = True
    return added


def _is_better(made: Row, rows: Iterable[Row]) -> bool:
    found = [best_of(rows, made.name, runs=runs) for runs in {False, made.runs}]
    return any(best is None or made.makespan < best.makespan for best in found)


def _on_problem_of(
    question: Question,
    row: Row,
    rows: Iterable[Row],
    tried: set[tuple[str, Candidate]],
    over: GiveUp,
) -> Iterator[Row]:
    """Yield the hand-written schedules of a row's problem that could be the best of their name."""
    runtime = question.runtime_in(row.shape.placement)
    asked = row.candidate
    candidate = question.candidate(
        asked.partition, asked.shape, asked.recompute, runtime, first=asked.first
    )
    for name in hand_written_of(question, row.shape.placement):
        if over() or (name, candidate) in tried:
            continue
        tried.add((name, candidate))
        build = partial(baseline, name)
        try:
            made = row_of(build, name, row.split, candidate)
        except NotApplicable:
            continue
        made = plainly_named(question, made)
        best = best_of(rows, made.name, runs=True)
        if made.fits and (best is None or made.makespan < best.makespan):
            yield marked(question, made)


_POLICIES: Final = 8


def chosen_of(rows: Iterable[Row]) -> Row | None:
    """Return the row that is advised: the best that runs."""
    return min((row for row in rows if row.runs), key=rank, default=None)


def best_not_run(rows: Iterable[Row]) -> Row | None:
    """Return the shortest row that fits and that the runtime cannot run, but for offloading."""
    left = (row for row in rows if row.fits and not row.runs and not row.candidate.offload)
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
    for entry in sorted(entries, key=lambda entry: entry.slow):
        if over():
            break
        with contextlib.suppress(NotApplicable):
            made.append(entry(problem, over))
    made += list_schedules(problem, over, islice(policies(problem), _POLICIES))
    made.sort(key=lambda schedule: schedule.makespan)
    best = next((schedule for schedule in made if fits(problem, schedule)), None)
    return Tried(best, not over())


def in_order(question: Question, like: Row, schedule: Schedule) -> Row:
    """Return the row of an order on the same stages as another row, by the name of who found it."""
    row = replace(
        like,
        name=credited(schedule.source),
        candidate=question.in_any_order(like.candidate),
        schedule=schedule,
        fits=True,
        group=None,
        why_not="",
        by_hand="",
        setting="",
    )
    return marked(question, row)


def on_same_stages(rows: Iterable[Row], candidate: Candidate) -> list[Row]:
    """Return the rows of a candidate's stages, whatever their runtimes run."""
    return [row for row in rows if row.candidate.stages == candidate.stages]


def unsettled(question: Question, rows: Iterable[Row], searched: Sequence[Candidate]) -> list[Row]:
    """Return the rows whose order is worth a search, the most important first.

    These are the advice and the best with nothing by hand; for Megatron-LM, whose order is its own,
    the best in any order; then other rows of the table that could become shorter than the best.
    """
    rows = tuple(row for row in rows if row.fits and not row.candidate.offload)
    megatron = not question.any_order
    able = [row for row in rows if row.runs or megatron]
    best = min(able, key=lambda row: rank(row)[2:], default=None)
    if best is None:
        return []
    named = [best, None if megatron else plain_of(rows)]
    seen = {*searched}
    left = []
    for row in [*named, *shown_rows(rows)]:
        if row is None or (candidate := question.in_any_order(row.candidate)) in seen:
            continue
        seen.add(candidate)
        if (
            any(row is one for one in named)
            or closed_form_bound(candidate.problem, "makespan").value < best.makespan
        ):
            left.append(row)
    return left
