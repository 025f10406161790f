"""One solve, from start to end."""

from __future__ import annotations

import importlib.metadata
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from pipesat.bounds.feasibility import preflight
from pipesat.core.claims import Bound, Standing
from pipesat.core.errors import Infeasible
from pipesat.core.problem import Problem
from pipesat.core.progress import doing
from pipesat.core.result import Solution
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.solving import Listener
from pipesat.core.usable_cores import usable_cores
from pipesat.solver import portfolio
from pipesat.solver.narrower import Search, Solve, search_all
from pipesat.solver.run.aside import aside
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import Incumbent, failure_note
from pipesat.solver.run.team import SearchReport, Team
from pipesat.solver.search_parts import ALL_PARTS, SearchParts

# Most of the time limit that warm starts may take: this share, and no more than these seconds or
# that smaller share, whichever is more.
_STARTS, _STARTS_SECONDS, _STARTS_OF_LONG = 0.5, 15.0, 0.1


def solve(
    problem: Problem,
    *,
    objective: Objective = "makespan",
    time_limit: float = 60.0,
    workers: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    parts: SearchParts = ALL_PARTS,
    warm_starts: Iterable[Schedule] = (),
    schedules: Iterable[Schedule] = (),
    written_for: Callable[[Problem], Iterable[Schedule]] = lambda _: (),
    known_bound: Bound | None = None,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Solution:
    """Return the best checked schedule found within ``time_limit`` seconds, and its bound.

    Parameters
    ----------
    warm_starts
        Hand-written schedules to start from, taken one by one (a generator may make them lazily)
        until one meets the bound, or time is over. The result is never worse than the best of them
        that is valid. If none is, one microbatch after the other is where the search begins.
    schedules
        Other schedules to start from, none of them a baseline.
    written_for
        Makes hand-written schedules for other problems that the search comes to: those in which
        every stage has its memory mode.
    known_bound
        A bound of the objective that is proven already, for example with more memory.
    workers
        Lanes that search at a time: this process, and one more for each worker beyond the first.
        By default as many as there are cores this process may use.
    deterministic
        Make the result depend on the seed alone, not on the machine's load: one lane, limits in
        CP-SAT's deterministic time (about seconds of processor time), every warm start taken,
        uncounted, as loading is.
    parts
        What takes part in the search; everything, except in an ablation.
    listener
        Called with every improvement of value or bound, from any thread.
    stop
        Set it from elsewhere to end the solve early with what there is.

    A bound that contradicts a checked schedule is a bug in pipesat or in CP-SAT, and so is a part
    of the search that fails. The schedule is kept, the bound and all from its origin are dropped,
    and ``warnings`` of the result say so.
    """
    stop = stop or threading.Event()
    workers = workers or usable_cores()
    if deterministic:
        workers = 1
    clock = Clock(time_limit, deterministic, stop.is_set)
    incumbent = Incumbent(problem, objective, clock, listener)
    used = time.process_time()
    whole, team, report = Solve(incumbent), Team(incumbent, workers), SearchReport([], [])

    def begin() -> None:
        try:
            preflight(problem)
        except Infeasible as error:
            incumbent.impossible = str(error)
            return
        if parts.closed_forms:
            whole.begin()
        if known_bound is not None:
            incumbent.raise_bound(known_bound)
        longest = min(_STARTS * time_limit, max(_STARTS_SECONDS, _STARTS_OF_LONG * time_limit))
        guides: list[Schedule] = []
        made = _noted(warm_starts, guides) if problem.has_modes else warm_starts

        def found() -> None:
            """Let the other lanes improve the first valid schedule while others are made."""
            _hand(team, seed, parts, incumbent, whole.starts)

        with doing("hand-written schedules"):
            report.failed.extend(_take_starts(whole, schedules, 0, found, written=False))
            report.failed.extend(
                _take_starts(whole, made, time_limit - longest, found, written=True)
            )
        search = _search_by(team, seed, parts, guides, written_for)
        report.add(whole.improve(search))

    try:
        aside(begin, incumbent, team.begin, at_last=whole.offer_sure)
    finally:
        team.close()
    incumbent.close()
    infeasible = bool(incumbent.impossible)
    warnings = [*incumbent.faults, *report.failed, *team.lost]
    said = [*report.notes, *team.notes, *team.accounted(), *warnings]
    if incumbent.schedule is None:
        said = [incumbent.impossible or "no schedule found", *said]
    return Solution(
        problem=problem,
        status=Standing(incumbent.value, incumbent.bound.value, infeasible).status,
        objective=objective,
        schedule=incumbent.schedule,
        bound=None if infeasible else incumbent.bound,
        baseline=whole.baseline,
        wall_s=clock.seconds,
        seed=seed,
        workers=workers,
        versions=_versions(),
        history=tuple(incumbent.history),
        explanation="; ".join(said),
        warnings=tuple(warnings),
        lanes=1 + team.searched,
        cpu_s=time.process_time() - used + team.cpu,
    )


def _search_by(
    team: Team,
    seed: int,
    parts: SearchParts,
    guides: Sequence[Schedule],
    written_for: Callable[[Problem], Iterable[Schedule]],
) -> Search:
    """Return what searches narrower problems, then the one of an incumbent, in all lanes."""

    def search(mine: Incumbent, starts: list[Schedule]) -> SearchReport:
        return portfolio.search(team, mine, starts, seed=seed, parts=parts, written_for=written_for)

    return partial(
        search_all, search, partial(_hand, team, seed, parts), written_for, guides, seed=seed
    )


def _hand(
    team: Team, seed: int, parts: SearchParts, mine: Incumbent, starts: list[Schedule]
) -> None:
    """Let the other lanes search meanwhile."""
    team.hand(mine, portfolio.travelling(mine, starts, seed, parts))


def _noted(schedules: Iterable[Schedule], notes: list[Schedule]) -> Iterator[Schedule]:
    """Yield schedules and note them all, valid or not."""
    for schedule in schedules:
        notes.append(schedule)
        yield schedule


def _take_starts(
    whole: Solve,
    starts: Iterable[Schedule],
    reserved: float,
    found: Callable[[], None],
    *,
    written: bool,
) -> list[str]:
    """Take schedules to start from until one meets the bound; say what failed.

    Leaves ``reserved`` seconds of the clock once there is a valid one; without one it goes on, and
    whoever makes them lazily should end when time is over. If making one fails, what
    came before it stays. ``found`` is called with the first valid one.
    """
    incumbent = whole.incumbent
    try:
        for schedule in starts:
            first = incumbent.schedule is None
            timed = whole.take(schedule, written=written)
            if first and timed is not None:
                found()
            meets_bound = (
                timed is not None and timed.value(incumbent.objective) == incumbent.bound.value
            )
            enough = incumbent.clock.over or incumbent.clock.left <= reserved
            if meets_bound or (enough and incumbent.schedule is not None):
                break
    except Exception as error:
        return [failure_note("a hand-written schedule", error)]
    return []


def _versions() -> dict[str, str]:
    names = ("pipesat", "ortools", "numpy")
    versions = {name: importlib.metadata.version(name) for name in names}
    return versions | {"python": platform.python_version()}
