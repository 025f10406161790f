"""Where backwards hold more than usual and nothing else is special: two plainer problems first.

Without held_in_backward the problem is no harder: a bound of it holds, and a schedule of it may be
valid. With the excess kept free all the time it is no easier: its schedules are all valid. All of
the search and of the proofs is for such problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from pipesat.bounds.feasibility import sure_order
from pipesat.bounds.one_device import closed_form_bounds
from pipesat.core.claims import Bound
from pipesat.core.errors import Infeasible
from pipesat.core.least import with_excess_as_static, without_held_in_backward
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.solver import portfolio
from pipesat.solver.portfolio import SearchReport
from pipesat.solver.run.incumbent import Incumbent, failure_note
from pipesat.solver.search_parts import SearchParts
from pipesat.solver.stricter import ONE_BY_ONE

_EASIER, _HARDER = 1 / 4, 1 / 3  # of the time left
_STARTS = 1 / 4  # of such a search's time, at most, goes into hand-written schedules


def search_plainer(
    written_for: Callable[[Problem], Iterable[Schedule]],
    mine: Incumbent,
    starts: Sequence[Schedule],
    *,
    threads: int,
    seed: int,
    parts: SearchParts,
) -> SearchReport:
    """Search the two plainer problems for a share of the time each; keep what holds of mine.

    Where ops may pair, windows cannot search the problem itself, and the second has all the rest.
    """
    report = SearchReport([], [])
    easier = without_held_in_backward(mine.problem)
    harder = with_excess_as_static(mine.problem)
    rest = _HARDER if mine.problem.overlap is None else 1.0
    for problem, share in ((easier, _EASIER), (harder, rest)):
        own = Incumbent(problem, mine.objective, mine.clock)
        own.clock = mine.clock.part(share * mine.clock.left, stop=lambda: mine.proven)
        if own.clock.over:
            break
        with suppress(Infeasible):
            own.offer(sure_order(problem), ONE_BY_ONE)
        if own.schedule is None:
            continue
        own.listener = _pass_on(mine, own, proves=problem is easier)
        bounds = [mine.bound]
        if problem is easier:
            bounds = closed_form_bounds(problem, mine.objective) if parts.closed_forms else []
        for bound in bounds:
            own.raise_bound(bound)
        known: list[Schedule] = []
        try:
            known.extend(_valid(own, chain(starts, written_for(problem))))
        except Exception as error:
            report.failed.append(failure_note("a hand-written schedule", error))
        known.sort(key=lambda start: start.value(mine.objective))
        if not (own.clock.over or own.proven):
            found = portfolio.search(problem, own, known, threads=threads, seed=seed, parts=parts)
            report.notes.extend(found.notes)
            report.failed.extend(found.failed)
        report.failed.extend(own.faults)
    return report


def _valid(own: Incumbent, starts: Iterable[Schedule]) -> Iterator[Schedule]:
    """Offer schedules for a share of the time; yield the valid ones as they were timed."""
    clock = own.clock.part(_STARTS * own.clock.left)
    for start in starts:
        if clock.over or own.proven:
            return
        if (timed := own.offer_earliest(start)) is not None:
            yield timed


def _pass_on(mine: Incumbent, own: Incumbent, *, proves: bool) -> Callable[[object], None]:
    def heard(_: object) -> None:
        if own.schedule is not None and (mine.value is None or (own.value or 0) < mine.value):
            mine.offer_timed(own.schedule)
        if proves and own.bound.value > mine.bound.value:
            source = f"{own.bound.source}, without held_in_backward"
            mine.raise_bound(Bound(own.bound.value, source))

    return heard
