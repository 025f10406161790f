"""From a question to an advice: schedules that users know, the search, then orders of the best."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from pipesat.advise.advice_table import shown_rows
from pipesat.advise.candidates import SETTLED, Candidate
from pipesat.advise.hand_written_rows import Trials, hand_written_of
from pipesat.advise.plan_search import Search
from pipesat.advise.question import Question
from pipesat.advise.splits import balanced_partition
from pipesat.advise.table_rows import SEARCHED, Row, best_of, credited, plain_of, rank, row_of
from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.core.progress import doing
from pipesat.core.settings import RecomputeChoice
from pipesat.schedule.solving import LEAST_SECONDS, Deadline, Listener
from pipesat.solver.options import SolveOptions

# Shares of the time limit that the search keeps for what comes later
_OFFLOADING: Final = 0.2
_ALIKE: Final = 0.15  # a search in which all stages recompute or none
_SETTLING: Final = {True: 0.3, False: 0.05}
"""Searching the orders of what is advised and shown: little for a runtime that runs its own."""
_ADVISED: Final = 0.6  # of that, for the first of several


def advised(
    question: Question, deadline: Deadline, options: SolveOptions, listener: Listener | None
) -> tuple[Trials, Search]:
    """Return all rows, and the search behind them.

    First the settings of hand-written schedules, by count. Then one search over shapes, cuts and
    orders, which starts from these; where a runtime has one switch for recomputation, a second one
    in which all stages recompute or none. Then the orders of what is advised and shown.
    """
    trials = Trials(question, deadline, listener)
    trials.run()
    alike = question.may_recompute and question.record.one_switch
    kept = _SETTLING[question.any_order] + _OFFLOADING * question.may_offload
    search = _searched(trials, options, kept + _ALIKE * alike)
    best = best_of(trials.rows)
    if alike and best is not None and best.by_hand:
        try:
            _searched(trials, options, kept, "never")
        except Infeasible:
            _searched(trials, options, kept, "always")
    search.deadline = deadline
    _offload(trials, search)
    _settle(trials, search)
    return trials, search


def _searched(
    trials: Trials, options: SolveOptions, kept: float, choice: RecomputeChoice | None = None
) -> Search:
    """Search from what is known; add the best, and what users know on its split."""
    question, deadline, best = trials.question, trials.deadline, best_of(trials.rows)
    chunks = 2 if best is None else max(2, best.shape.stages // question.devices)
    asked = question.searched(sorted({2, chunks}), choice)
    seconds = max(LEAST_SECONDS, deadline.left - kept * deadline.limit)
    hear = partial(trials.hear, of_all=choice is None)
    search = Search(asked, options, Deadline(seconds, deadline.stop), hear)
    fit = [row for row in trials.rows if row.fits and row.candidate.first is None]
    search.run(known=[(question.in_any_order(row.candidate), row.schedule) for row in fit])
    if search.best is not None:
        _add(trials, SEARCHED, search.best)
        own = question.shape(search.best.shape.placement, search.best.shape.chunks)
        wanted = search.best.recompute if question.any_order else ()
        for name in hand_written_of(question, own.placement):
            with contextlib.suppress(NotApplicable):  # a stage too few, or many, for it
                trials.add(name, SEARCHED, own, search.best.partition, wanted=wanted)
    return search


def _add(trials: Trials, split: str, candidate: Candidate) -> None:
    """Add the best schedule of a candidate, by the name of who published it."""
    schedule = candidate.schedules[0]
    name = "offload" if candidate.offload else credited(schedule.source)
    same = [row for row in trials.rows if row.candidate.stages == candidate.stages]
    split = same[0].split if same else split
    if all(row.makespan > schedule.makespan or not row.fits for row in same):
        trials.keep(row_of(trials.question, name, split, candidate, schedule))


def _search_order(
    trials: Trials, search: Search, own: Candidate, split: str, seconds: float
) -> None:
    """Search for an order of a candidate; add it if it is shorter."""
    for row in trials.rows:
        if row.fits and row.candidate.stages == own.stages:
            search.offer(own, row.schedule)
    why_not = search.solve(own, seconds, drop=False, starts="all")
    own.effort = SETTLED
    if own.schedules:
        _add(trials, split, own)
    else:
        name = f"our search ({split} split, {own.shape.geometry.label})"
        trials.left_out[name] = why_not or "no schedule was found in time"


@doing("searching schedules that offload")
def _offload(trials: Trials, search: Search) -> None:
    """What offloading would bring, on the best split and on the balanced one in a chain."""
    question, deadline = trials.question, trials.deadline
    if not question.may_offload:
        return
    line = question.shape("chain")
    best = min((row for row in trials.rows if row.fits), key=lambda r: r.makespan, default=None)
    asked = {} if best is None else {(best.shape, best.partition): best.split}
    with contextlib.suppress(BadInput, Infeasible, NotApplicable):
        asked.setdefault((line, balanced_partition(question.layers, line)), "balanced")
    for number, ((shape, partition), split) in enumerate(asked.items()):
        own = question.in_any_order(question.candidate(shape, partition, offload=True))
        kept = _SETTLING[question.any_order] * deadline.limit
        left = max(deadline.left - kept, 0.05 * deadline.limit)
        _search_order(trials, search, own, split, left / (len(asked) - number))


@doing("searching the order of what is advised")
def _settle(trials: Trials, search: Search) -> None:
    """Search for the order of what is advised, and as time allows, of what else is shown."""
    deadline = trials.deadline
    while not deadline.over and (left := _unsettled(trials)):
        (own, row), *others = left.items()
        seconds = deadline.left * (_ADVISED if others else 1.0)
        _search_order(trials, search, own, row.split, seconds)


def _unsettled(trials: Trials) -> dict[Candidate, Row]:
    """Return the rows whose order is worth a search, the most important first.

    These are the advice and the best with nothing by hand; for a runtime with orders of its own,
    the best in any order; then other rows of the table that could become shorter than the best.
    """
    question = trials.question
    rows = [row for row in trials.rows if row.fits and not row.candidate.offload]
    able = [row for row in rows if row.runs or not question.any_order]
    best = min(able, key=lambda row: rank(row)[2:], default=None)
    if best is None:
        return {}
    plain = plain_of(rows) if question.any_order else None
    left: dict[Candidate, Row] = {}
    for row in [best, *([] if plain is None else [plain]), *shown_rows(rows)]:
        own = question.in_any_order(row.candidate)
        named = row is best or row is plain
        if named or closed_form_bound(own.problem, "makespan").value < best.makespan:
            left.setdefault(own, row)
    return {own: row for own, row in left.items() if own.effort < SETTLED}
