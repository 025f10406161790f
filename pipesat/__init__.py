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

TYPE_CHECKING = False  # so that not even typing is imported before a command hears signals
if TYPE_CHECKING:
    import typing

    from pipesat.bounds.feasibility import preflight, smallest_capacities
    from pipesat.bounds.one_device import closed_form_bound
    from pipesat.core.checker import Violation, check
    from pipesat.core.claims import Bound
    from pipesat.core.critical_path import critical_path
    from pipesat.core.errors import (
        BadInput,
        Deadlock,
        Fault,
        Infeasible,
        NotApplicable,
        NotValid,
        PipesatError,
    )
    from pipesat.core.memory import memory_profiles, peak_memory
    from pipesat.core.metrics import measure
    from pipesat.core.ops import Op, Pair, parse_item
    from pipesat.core.problem import Device, Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule, Timed
    from pipesat.core.stage import Stage
    from pipesat.core.timing import time_order
    from pipesat.files.problem_file import parse_problem, read_problem
    from pipesat.files.schedule_file import read_schedule, write_schedule
    from pipesat.parts.file import parse_parts, read_parts
    from pipesat.profile.file import read_profile
    from pipesat.runtime.profile_model import profile_model
    from pipesat.workflows.compare import compare
    from pipesat.workflows.exports import import_order
    from pipesat.workflows.hand_written import baseline
    from pipesat.workflows.pair_times import pair_times
    from pipesat.workflows.solve import solve


_HOMES = {
    "BadInput": "core.errors",
    "Bound": "core.claims",
    "Deadlock": "core.errors",
    "Device": "core.problem",
    "Fault": "core.errors",
    "Infeasible": "core.errors",
    "NotApplicable": "core.errors",
    "NotValid": "core.errors",
    "Op": "core.ops",
    "Pair": "core.ops",
    "PipesatError": "core.errors",
    "Problem": "core.problem",
    "Result": "core.result",
    "Schedule": "core.schedule",
    "Stage": "core.stage",
    "Timed": "core.schedule",
    "Violation": "core.checker",
    "baseline": "workflows.hand_written",
    "check": "core.checker",
    "closed_form_bound": "bounds.one_device",
    "compare": "workflows.compare",
    "critical_path": "core.critical_path",
    "import_order": "workflows.exports",
    "measure": "core.metrics",
    "memory_profiles": "core.memory",
    "pair_times": "workflows.pair_times",
    "parse_item": "core.ops",
    "parse_parts": "parts.file",
    "parse_problem": "files.problem_file",
    "peak_memory": "core.memory",
    "preflight": "bounds.feasibility",
    "profile_model": "runtime.profile_model",
    "read_parts": "parts.file",
    "read_problem": "files.problem_file",
    "read_profile": "profile.file",
    "read_schedule": "files.schedule_file",
    "smallest_capacities": "bounds.feasibility",
    "solve": "workflows.solve",
    "time_order": "core.timing",
    "write_schedule": "files.schedule_file",
}

__all__ = [
    "BadInput",
    "Bound",
    "Deadlock",
    "Device",
    "Fault",
    "Infeasible",
    "NotApplicable",
    "NotValid",
    "Op",
    "Pair",
    "PipesatError",
    "Problem",
    "Result",
    "Schedule",
    "Stage",
    "Timed",
    "Violation",
    "baseline",
    "check",
    "closed_form_bound",
    "compare",
    "critical_path",
    "import_order",
    "measure",
    "memory_profiles",
    "pair_times",
    "parse_item",
    "parse_parts",
    "parse_problem",
    "peak_memory",
    "preflight",
    "profile_model",
    "read_parts",
    "read_problem",
    "read_profile",
    "read_schedule",
    "smallest_capacities",
    "solve",
    "time_order",
    "write_schedule",
]


def __getattr__(name: str) -> typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
