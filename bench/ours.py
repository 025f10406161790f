"""Measure one solve of pipesat, in the child process: what solve.py and ablate.py share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from runner import HERE, Case, Row, since

from pipesat.problem.problem_file import read_problem
from pipesat.schedule.schedule_file import write_schedule

if TYPE_CHECKING:
    from pipesat.compare.result import Result

POINTS_PER_DECADE = 50  # of the history that a row keeps
SCHEDULES = HERE / "schedules"  # not in git: plain/collect.py keeps the best


def measure(case: Case, launched: float) -> Row:
    """Solve as any user's ``pipesat.solve`` would; seconds count from the start of the process."""
    import pipesat

    problem = read_problem(case.file)
    began = since(launched)
    result = pipesat.solve(
        problem,
        objective=case.objective,  # type: ignore[arg-type]
        time_limit=case.limit,
        workers=case.workers,
        seed=case.seed,
    )
    if result.schedule is not None:
        SCHEDULES.mkdir(exist_ok=True)
        name = f"{case.problem}.{case.objective}.{result.value}.json"
        write_schedule(SCHEDULES / name, problem, result.schedule)
    return row_of(result, began) | {"problem_sha256": problem.sha256}


def row_of(result: Result, began: float) -> Row:
    """The figures of a result; ``began`` is how long reading and importing took, in seconds."""
    history = [(began + step.seconds, step.value, step.bound) for step in result.history]
    value = result.value
    bound = result.lower_bound
    proven = result.status == "optimal"
    return {
        "status": result.status,
        "value": value,
        "bound": bound,
        "gap": result.gap,
        "bound_source": result.lower_bound_source,
        "baseline": None if result.baseline is None else list(result.baseline),
        "first_s": first(history, lambda v, _: v is not None),
        "best_s": first(history, lambda v, _: v is not None and v == value),
        "proof_s": first(history, lambda v, b: v == b is not None) if proven else None,
        "history": thinned(history),
        "explanation": result.explanation,
        "versions": result.versions,
    }


History = list[tuple[float, int | None, int | None]]


def first(history: History, holds: Any) -> float | None:
    """Seconds until ``holds(value, bound)``, ``None`` if it never does."""
    return next((round(s, 3) for s, value, bound in history if holds(value, bound)), None)


def thinned(history: History) -> list[list[float | int | None]]:
    """The state at the end of each of about 50 slices per decade of time."""
    slices = {
        math.floor(POINTS_PER_DECADE * math.log10(seconds)): [round(seconds, 3), value, bound]
        for seconds, value, bound in history
    }
    return list(slices.values())
