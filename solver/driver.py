"""One solve, from start to end."""

from __future__ import annotations

import importlib.metadata
import platform
import threading
from collections.abc import Iterable

from pipesat.bounds import closed_form_bound
from pipesat.claims import Standing
from pipesat.errors import Infeasible
from pipesat.feasibility import preflight
from pipesat.machine import usable_cores
from pipesat.problem import Problem
from pipesat.result import Baseline, Bound, Result
from pipesat.schedule import Objective, Schedule
from pipesat.solver import portfolio
from pipesat.solver.incumbent import Clock, Incumbent, Listener
from pipesat.solver.parts import ALL_PARTS, Parts

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
    parts: Parts = ALL_PARTS,
    warm_starts: Iterable[Schedule] = (),
    schedules: Iterable[Schedule] = (),
    known_bound: Bound | None = None,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Return the best checked schedule found within ``time_limit`` seconds, and its bound.

    Parameters
    ----------
    warm_starts
        Hand-written schedules to start from, taken one by one (a generator may make them lazily)
        until one meets the bound. The result is never worse than the best of them that is valid.
    schedules
        Other schedules to start from, none of them a baseline.
    known_bound
        A bound of the objective that is proven already, for example with more memory.
    workers
        Threads of CP-SAT; by default as many as there are cores this process may use.
    deterministic
        Make the result depend on the seed alone, not on the machine's load: one thread, limits in
        CP-SAT's deterministic time (roughly seconds), every warm start taken.
    parts
        What takes part in the search; everything, except in an ablation.
    listener
        Called with every improvement of value or bound, from any thread.
    stop
        Set it from elsewhere to end the solve early with what there is.

    Raises
    ------
    Fault
        If a bound contradicts a checked schedule: a bug in pipesat.
    """
    stop = stop or threading.Event()
    workers = workers or usable_cores()
    if deterministic:
        workers = 1
    clock = Clock(time_limit, deterministic)
    incumbent = Incumbent(problem, objective, clock, listener)
    baseline, notes = None, []
    try:
        preflight(problem)
    except Infeasible as error:
        notes = [str(error)]
    else:
        nothing = Bound(0, "nothing takes less than no time")
        incumbent.raise_bound(
            closed_form_bound(problem, objective) if parts.closed_forms else nothing
        )
        if known_bound is not None:
            incumbent.raise_bound(known_bound)
        longest = min(_STARTS * time_limit, max(_STARTS_SECONDS, _STARTS_OF_LONG * time_limit))
        given = _take_starts(incumbent, schedules, stop, 0)
        written = _take_starts(incumbent, warm_starts, stop, time_limit - longest)
        if written:
            baseline = Baseline(written[0].source, written[0].value(objective))
        starts = sorted(given + written, key=lambda start: start.value(objective))
        if incumbent.schedule is None:
            notes.append("ended before any schedule that fits was made")
        elif not (incumbent.proven or stop.is_set()) and incumbent.clock.left:
            notes += portfolio.search(
                problem, incumbent, starts, workers=workers, seed=seed, parts=parts, stop=stop
            )
    return Result(
        problem=problem,
        status=Standing(incumbent.value, incumbent.bound_value, incumbent.bound is None).status,
        objective=objective,
        schedule=incumbent.schedule,
        lower_bound=incumbent.bound,
        baseline=baseline,
        wall_s=clock.seconds,
        seed=seed,
        workers=workers,
        versions=_versions(),
        history=tuple(incumbent.history),
        explanation="; ".join(notes + incumbent.faults),
        contradictions=tuple(incumbent.faults),
    )


def _take_starts(
    incumbent: Incumbent, starts: Iterable[Schedule], stop: threading.Event, reserved: float
) -> list[Schedule]:
    """Offer schedules until one meets the bound; return every source's best valid one, best first.

    Leaves ``reserved`` seconds of the clock once there is a valid one.
    """
    objective = incumbent.objective
    best: dict[str, Schedule] = {}
    for schedule in starts:
        timed = incumbent.offer_earliest(schedule)
        known = best.get(schedule.source)
        if timed is not None and (known is None or timed.value(objective) < known.value(objective)):
            best[schedule.source] = timed
        meets_bound = timed is not None and timed.value(objective) == incumbent.bound_value
        enough = best and incumbent.clock.left <= reserved
        if meets_bound or stop.is_set() or enough or not incumbent.clock.left:
            break
    return sorted(best.values(), key=lambda schedule: schedule.value(objective))


def _versions() -> dict[str, str]:
    names = ("pipesat", "ortools", "numpy")
    versions = {name: importlib.metadata.version(name) for name in names}
    return versions | {"python": platform.python_version()}
