"""pipesat: pipeline-parallel training schedules with a proof of how close to optimal they are.

>>> import pipesat
>>> problem = pipesat.read_problem("examples/zb-6.2B-cap0.75.json")
>>> result = pipesat.solve(problem, time_limit=20)
>>> result.status, result.value, result.lower_bound.value
>>> pipesat.write_schedule("schedule.json", problem, result.schedule)

Everything is imported when first used: ``import pipesat`` loads neither ortools nor matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipesat.bounds import closed_form_bound
    from pipesat.checker import Violation, check
    from pipesat.critical import critical_path
    from pipesat.errors import (
        BadInput,
        Deadlock,
        Fault,
        Infeasible,
        NotApplicable,
        PipesatError,
    )
    from pipesat.feasibility import preflight, smallest_capacities
    from pipesat.files.problem_file import parse_problem, read_problem
    from pipesat.files.schedule_file import read_schedule, write_schedule
    from pipesat.memory import memory_profiles, peak_memory
    from pipesat.metrics import measure
    from pipesat.ops import Op, Pair, parse_item
    from pipesat.problem import Problem
    from pipesat.profile.file import read_profile
    from pipesat.profile.measure import profile_model
    from pipesat.result import Bound, Result
    from pipesat.schedule import Schedule, Timed
    from pipesat.timing import time_order
    from pipesat.workflows import baseline, compare, solve

_HOMES = {
    "BadInput": "errors",
    "Bound": "result",
    "Deadlock": "errors",
    "Fault": "errors",
    "Infeasible": "errors",
    "NotApplicable": "errors",
    "Op": "ops",
    "Pair": "ops",
    "PipesatError": "errors",
    "Problem": "problem",
    "Result": "result",
    "Schedule": "schedule",
    "Timed": "schedule",
    "Violation": "checker",
    "baseline": "workflows",
    "check": "checker",
    "closed_form_bound": "bounds",
    "compare": "workflows",
    "critical_path": "critical",
    "measure": "metrics",
    "memory_profiles": "memory",
    "parse_item": "ops",
    "parse_problem": "files.problem_file",
    "peak_memory": "memory",
    "preflight": "feasibility",
    "profile_model": "profile.measure",
    "read_problem": "files.problem_file",
    "read_profile": "profile.file",
    "read_schedule": "files.schedule_file",
    "smallest_capacities": "feasibility",
    "solve": "workflows",
    "time_order": "timing",
    "write_schedule": "files.schedule_file",
}

__all__ = [
    "BadInput",
    "Bound",
    "Deadlock",
    "Fault",
    "Infeasible",
    "NotApplicable",
    "Op",
    "Pair",
    "PipesatError",
    "Problem",
    "Result",
    "Schedule",
    "Timed",
    "Violation",
    "baseline",
    "check",
    "closed_form_bound",
    "compare",
    "critical_path",
    "measure",
    "memory_profiles",
    "parse_item",
    "parse_problem",
    "peak_memory",
    "preflight",
    "profile_model",
    "read_problem",
    "read_profile",
    "read_schedule",
    "smallest_capacities",
    "solve",
    "time_order",
    "write_schedule",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
