"""Many solves on the same layers: how each is made, and curves of what memory buys."""

from __future__ import annotations

import contextlib
import importlib.metadata
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Unpack

from pipesat.core.errors import NotApplicable
from pipesat.workflows.hand_written import published

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Improvement, Result
    from pipesat.core.schedule import Objective, Schedule
    from pipesat.core.solving import Listener, Solve, Starts, Told
    from pipesat.frontier.trace import Frontier


def frontiers(
    placed: Mapping[str | None, Problem],
    *,
    caps: Mapping[str | None, Sequence[int] | None],
    count: int,
    also: Sequence[int],
    objective: Objective,
    time_limit: float,
    workers: int | None,
    seed: int,
    listener: Listener | None,
    stop: threading.Event | None,
) -> dict[str | None, Frontier]:
    """Trace one problem after another; each gets its share of the time that is left.

    Parameters
    ----------
    placed
        Problems by the name of their placement; ``None`` for one as it is.
    caps
        Capacities to look at, by the same names; of ``None``: ``count`` of them, where steps are
        likely.
    also
        Capacities to look at besides, within the range of those.
    """
    from pipesat.core.stage import KEEP
    from pipesat.frontier.levers import Lever, taken_over
    from pipesat.frontier.trace import trace

    solve, baselines = solver_of(objective, workers, seed), published()  # slow to import
    stop = stop or threading.Event()
    began = time.monotonic()
    expires = began + time_limit
    curves: dict[str | None, Frontier] = {}
    for number, (name, problem) in enumerate(placed.items()):
        if curves and stop.is_set():
            break
        curves[name] = trace(
            problem,
            solve=solve,
            objective=objective,
            caps=caps[name],
            count=count,
            also=also,
            time_limit=(expires - time.monotonic()) / (len(placed) - number),
            baselines=baselines,
            known=[
                schedule
                for other, frontier in curves.items()
                if isinstance(name, Lever) and isinstance(other, Lever)
                for schedule in taken_over(frontier.curve, problem)
            ],
            listener=_telling(listener, name, time.monotonic() - began),
            stop=stop,
        )
        if isinstance(name, Lever) and name != KEEP:  # the same as keep's, which shows them
            curves[name] = replace(curves[name], points=())
    return curves


def _telling(listener: Listener | None, name: str | None, began: float) -> Listener | None:
    """A listener to one curve of several: it says which, and counts seconds from the first on."""
    if listener is None or name is None:
        return listener

    def tell(improvement: Improvement) -> None:
        seconds, source = began + improvement.seconds, f"{name}, {improvement.source}"
        listener(improvement._replace(seconds=seconds, source=source))

    return tell


def solver_of(objective: Objective, workers: int | None, seed: int) -> Solve:
    """Return how a study solves: with every hand-written schedule, with some, or with none."""
    from pipesat.solver import solve as search
    from pipesat.workflows.solve import solve as solve_with_all

    def solve(problem: Problem, *, starts: Starts, **told: Unpack[Told]) -> Result:
        expires = time.monotonic() + told["time_limit"]
        if starts == "all":
            return solve_with_all(problem, objective=objective, workers=workers, seed=seed, **told)
        greedy = _greedy(problem, lambda: time.monotonic() > expires) if starts == "greedy" else ()
        return search(
            problem, objective=objective, workers=workers, seed=seed, warm_starts=greedy, **told
        )

    return solve


def _greedy(problem: Problem, give_up: Callable[[], bool]) -> Iterator[Schedule]:
    """Schedules for any capacities that are made in no time."""
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.list_scheduling import list_schedules
    from pipesat.heuristics.lockstep import lockstep_schedules

    with contextlib.suppress(NotApplicable):
        yield BASELINES["zb-auto"](problem)
    if problem.overlap is not None and problem.plain:
        yield from islice(lockstep_schedules(problem, give_up), 2)
    yield from list_schedules(problem, give_up)


def versions() -> dict[str, str]:
    """Versions that results depend on."""
    names = ("pipesat", "ortools", "numpy")
    return {name: importlib.metadata.version(name) for name in names}
