"""Solve a problem, from every hand-written schedule that can be made in time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from pipesat.core.arguments import public
from pipesat.core.claims import Period, Standing
from pipesat.core.errors import require
from pipesat.core.progress import doing
from pipesat.core.settings import Seconds, Seed, Target, Workers
from pipesat.schedule.schedule import Objective
from pipesat.schedule.solving import Deadline, EitherStop, study

if TYPE_CHECKING:
    from pipesat.compare.result import Result
    from pipesat.core.claims import Bound
    from pipesat.problem.problem import Problem
    from pipesat.schedule.result import Improvement, Solution
    from pipesat.schedule.schedule import Schedule
    from pipesat.solver import SolveOptions

_LEAST_SECONDS: Final = 0.001


@public
def solve(
    problem: Problem,
    *,
    objective: Objective = "makespan",
    time_limit: Seconds = 60.0,
    workers: Workers | None = None,
    seed: Seed = 0,
    deterministic: bool = False,
    target: Target | None = None,
    version: str | None = None,
    schedules: Iterable[Schedule] = (),
    known_bound: Bound | None = None,
    listener: Callable[[Improvement], None] | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Return the best verified schedule within ``time_limit`` seconds, with its lower bound.

    Starts from every hand-written schedule and every list-scheduling policy that can be made in
    time, so the answer is never worse than the best of those that fit. On problems of more than
    100,000 ops or so, one schedule alone takes seconds. See :func:`pipesat.solver.solve`.

    Parameters
    ----------
    problem
        The problem (a JSON file). :class:`pipesat.Problem` builds one.
    target
        Find only what this runtime can run; ``None``: any. What it cannot do becomes part of the
        problem (in torch the first stage's backward is whole), so that value and bound are those of
        orders that run there.
    schedules
        Schedules to start from besides the hand-written ones, for example those of the same
        problem with less memory. What breaks a rule of this problem is passed over.
    known_bound
        A bound of the objective that is proven already, for example that of the same problem with
        more memory.

    Raises
    ------
    NotApplicable
        If the target cannot run such a pipeline.
    BadInput
        If there is no such target.
    """
    require(
        not deterministic or workers in (None, 1),
        "`deterministic` runs one lane",
        where="workers",
        value=workers,
    )
    from pipesat.compare.result import Result
    from pipesat.runtimes import problems_for, released
    from pipesat.solver import SolveOptions  # slow to import: before the clock starts
    from pipesat.solver import solve as search

    options = SolveOptions(
        objective=objective,
        time_limit=time_limit,
        workers=workers,
        seed=seed,
        deterministic=deterministic,
        schedules=tuple(schedules),
        known_bound=known_bound,
        listener=listener,
        stop=EitherStop(stop),
    )
    ways, release = problems_for(problem, target), released(target, version)
    found = search(ways[0], options) if len(ways) == 1 else _best_way(ways, options)
    return Result.of(found, problem=problem, target=target, release=release)


def _best_way(ways: Sequence[Problem], options: SolveOptions) -> Solution:
    """Solve a choice between problems, each for its share of the time."""
    from pipesat.solver import solve as search

    deadline = Deadline(options.time_limit, options.stop)
    found: list[Solution] = []

    def heard(improvement: Improvement) -> None:
        if options.listener is not None:
            options.listener(_of_all(ways, found, improvement))

    with study():
        for number, way in enumerate(ways):
            left = max(deadline.left, _LEAST_SECONDS) / (len(ways) - number)
            share = options.time_limit / len(ways) if options.deterministic else left
            with doing(_way(way)):
                found.append(search(way, replace(options, time_limit=share, listener=heard)))
    return _best_of(ways, found)


def _of_all(
    ways: Sequence[Problem], before: Sequence[Solution], improvement: Improvement
) -> Improvement:
    """Return what an improvement in one way says of all: the best value, the least bound.

    There is no bound of all before the last way has one.
    """
    values = [result.value for result in before] + [improvement.value]
    bounds = [r.lower_bound for r in before if r.status != "infeasible"] + [improvement.bound]
    told = [bound for bound in bounds if bound is not None]
    known = len(before) + 1 == len(ways) and len(told) == len(bounds)
    return improvement._replace(
        seconds=improvement.seconds + sum(result.wall_s for result in before),
        value=min((value for value in values if value is not None), default=None),
        bound=min(told) if known else None,
    )


def _best_of(ways: Sequence[Problem], found: Sequence[Solution]) -> Solution:
    """Return the result of a choice between problems: the best value, and the least bound.

    A schedule of the choice is one of some way, and that way's bound holds for it. So the least of
    the bounds holds for all, and the answer is proven only if no way's bound is below it.
    """
    possible = [r for r in found if r.status != "infeasible"]
    best = min(possible or found, key=lambda r: (r.value is None, r.value))
    bounds = [r.bound for r in possible]
    bound = None if None in bounds else min(filter(None, bounds), default=None)
    least = None if bound is None else bound.value
    periods = [r.period for r in possible]
    known = [period for period in periods if period is not None]
    baselines = [r.baseline for r in found if r.baseline is not None]
    history = [_of_all(ways, found[:n], step) for n, r in enumerate(found) for step in r.history]
    said = [
        f"{_way(way)}: {r.standing.verdict if r.value is None else r.value}"
        f"{'' if r.lower_bound is None else f', at least {r.lower_bound}'}"
        for way, r in zip(ways, found, strict=True)
    ]
    return replace(
        best,
        status=Standing(best.value, least, infeasible=not possible).status,
        bound=bound,
        period=Period(min(p.value for p in known), min(p.lower_bound for p in known))
        if known and None not in periods
        else None,
        baseline=min(baselines, key=lambda one: one.value, default=None),
        wall_s=sum(r.wall_s for r in found),
        lanes=max(r.lanes for r in found),
        cpu_s=sum(r.cpu_s for r in found),
        history=tuple(history),
        explanation="; ".join(
            [*said, *dict.fromkeys(r.explanation for r in found if r.explanation)]
        ),
        baselines_left_out=any(r.baselines_left_out for r in found),
        contradictions=tuple(chain.from_iterable(r.contradictions for r in found)),
        warnings=tuple(chain.from_iterable(r.warnings for r in found)),
    )


def _way(way: Problem) -> str:
    """Say which of its two ways a runtime that splits all backwards or none runs."""
    split = any(not stage.may_fuse for stage in way.stages)
    return f"all backwards {'split' if split else 'whole'}"
