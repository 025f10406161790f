"""Narrower problems, searched first: every schedule of theirs is one of the problem itself.

Where a problem mixes memory modes with pairs, or has several modes, what is best of one of them
alone is a start that no guide gives: all of the search is for it. Bounds of a narrower problem say
nothing of the wider one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from pipesat.bounds.feasibility import preflight, sure_order
from pipesat.core.errors import Infeasible
from pipesat.core.least import with_modes_of_stages
from pipesat.core.ops import Pair
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule
from pipesat.solver.modes.assign import in_modes_of_stages
from pipesat.solver.modes.starts import mode_names, mode_number
from pipesat.solver.portfolio import SearchReport
from pipesat.solver.run.incumbent import Incumbent, failure_note
from pipesat.solver.stricter import ONE_BY_ONE

_SHARE = 0.4  # of the time left, for all narrower problems together
_WORTH = 2.0  # seconds: in less, guides with modes put into them are worth more
_STARTS = 0.25  # of the time of one, at most, goes into hand-written schedules

Search = Callable[[Incumbent, list[Schedule]], SearchReport]


class Narrower(NamedTuple):
    """A narrower problem, and the mode of each stage if it is that of one per stage."""

    name: str
    problem: Problem
    modes: tuple[int, ...] | None

    def widened(self, problem: Problem, order: Order) -> Order:
        """Return an order of it as one of the problem."""
        return in_modes_of_stages(problem, order, self.modes) if self.modes else order


def narrower(problem: Problem) -> Iterator[Narrower]:
    """Yield the problems that are left if pairs, or all modes but one, are not used.

    Where a stage has a mode for all of its microbatches, the search branches over the modes itself.
    """
    if not problem.has_modes:
        return
    if problem.mode_choice == "microbatch":
        for name in ("keep", *mode_names(problem)):
            modes = tuple(mode_number(problem, s, name) for s in range(len(problem.stages)))
            alone = with_modes_of_stages(problem, modes)
            if alone is not None and _fits(alone):
                yield Narrower(name, alone, modes)
    if problem.overlap is not None:
        yield Narrower("no pairs", replace(problem, overlap=None), None)


def _fits(problem: Problem) -> bool:
    with suppress(Infeasible):
        preflight(problem)
        return True
    return False


def search_narrower(
    search: Search,
    written_for: Callable[[Problem], Iterable[Schedule]],
    mine: Incumbent,
    starts: Sequence[Schedule],
) -> SearchReport:
    """Search the narrower problems for a share of the time; offer what is found to ``mine``."""
    report = SearchReport([], [])
    problems = list(narrower(mine.problem)) if mine.clock.left >= _WORTH else []
    whole = mine.clock.part(_SHARE * mine.clock.left, stop=lambda: mine.proven)
    for number, narrow in enumerate(problems):
        if whole.over:
            break
        clock = whole.part(whole.left / (len(problems) - number))
        own = mine.narrower(narrow.problem, clock, partial(_offer, mine, narrow))
        with suppress(Infeasible):
            own.offer(sure_order(narrow.problem), ONE_BY_ONE)
        if own.schedule is None:
            continue
        known: list[Schedule] = []
        try:
            mine_too = allowed(narrow.problem, starts if narrow.modes is None else ())
            made = chain(mine_too, written_for(narrow.problem))
            known.extend(own.valid(made, clock.part(_STARTS * clock.left)))
        except Exception as error:
            report.failed.append(failure_note("a hand-written schedule", error))
        known.sort(key=lambda start: start.value(mine.objective))
        if not (own.clock.over or own.proven):
            found = search(own, known)
            report.notes.extend(f"{narrow.name}: {note}" for note in found.notes)
            report.failed.extend(found.failed)
        report.failed.extend(own.faults)
    return report


def allowed(problem: Problem, schedules: Iterable[Schedule]) -> Iterator[Schedule]:
    """Those schedules that have no pairs, where a problem allows none."""
    return (each for each in schedules if problem.overlap is not None or not _has_pairs(each))


def _has_pairs(schedule: Schedule) -> bool:
    return any(isinstance(item, Pair) for row in schedule.order for item in row)


def _offer(mine: Incumbent, narrow: Narrower, found: Schedule) -> None:
    mine.offer(narrow.widened(mine.problem, found.order), found.source)
