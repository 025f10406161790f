"""Many solves on the same layers: what memory buys, how little is enough, and the best plan."""

from __future__ import annotations

import contextlib
import importlib.metadata
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Unpack

from pipesat.core.errors import NotApplicable
from pipesat.workflows.hand_written import published

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Improvement, Result
    from pipesat.core.schedule import Objective, Schedule
    from pipesat.core.solving import Listener, Solve, Starts, Told
    from pipesat.frontier.min_memory import Reference, Sufficient
    from pipesat.frontier.trace import Frontier
    from pipesat.layers.layer import Layers
    from pipesat.plan.answer import Plan
    from pipesat.plan.plan import Hand
    from pipesat.plan.recompute import RecomputeChoice
    from pipesat.plan.shapes import Shapes


def frontiers(
    placed: Mapping[str | None, Problem],
    *,
    caps: Mapping[str | None, Sequence[int] | None] | None = None,
    count: int = 12,
    also: Sequence[int] = (),
    objective: Objective = "makespan",
    time_limit: float = 600.0,
    workers: int | None = None,
    seed: int = 0,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> dict[str | None, Frontier]:
    """Trace one problem after another; each gets its share of the time that is left.

    Parameters
    ----------
    placed
        Problems by the name of their placement; ``None`` for one as it is.
    caps
        Capacities to look at, by the same names; ``None``: ``count`` of them, where steps are
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
            caps=None if caps is None else caps[name],
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


def least_memory(
    problem: Problem,
    *,
    within: Fraction = Fraction(1, 20),
    reference: Reference = "unlimited",
    objective: Objective = "makespan",
    time_limit: float = 120.0,
    workers: int | None = None,
    seed: int = 0,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Sufficient:
    """Return the smallest capacity that keeps the objective within a share of the best.

    See :func:`pipesat.frontier.min_memory.least_memory`.
    """
    from pipesat.frontier import min_memory

    return min_memory.least_memory(
        problem,
        solve=solver_of(objective, workers, seed),
        objective=objective,
        within=within,
        reference=reference,
        time_limit=time_limit,
        baselines=published(),
        listener=listener,
        stop=stop,
    )


def best_plan(
    layers: Layers,
    shapes: Shapes,
    hand: Sequence[Hand] = (),
    *,
    compare: bool = True,
    recompute: RecomputeChoice = "never",
    objective: Objective = "makespan",
    time_limit: float = 120.0,
    workers: int | None = None,
    seed: int = 0,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Plan:
    """Return the best cut, placement and order found of layers.

    Parameters
    ----------
    hand
        Splits to compare with.
    """
    from pipesat.core.machine import usable_cores
    from pipesat.core.solving import Deadline
    from pipesat.plan.findings import Findings
    from pipesat.plan.plan import run_plan
    from pipesat.plan.question import Question
    from pipesat.plan.search import Search
    from pipesat.workflows.plan_orders import columns, quick_orders

    known = Findings(Question.of(layers, shapes.pipelines, objective, recompute))
    solver = solver_of(objective, workers, seed)
    deadline = Deadline(time_limit, stop or threading.Event())
    return run_plan(
        Search(known, quick_orders, solver, deadline, listener),
        hand=hand,
        written=columns() if compare else None,
        left_out=shapes.left_out,
        seed=seed,
        workers=workers or usable_cores(),
        versions=versions(),
    )


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
