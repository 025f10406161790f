"""pipesat: pipeline-parallel training schedules with a proof of how close to optimal they are.

>>> import pipesat
>>> problem = pipesat.Problem.chain(devices=4, microbatches=8, F=2, B=2, W=1)
>>> result = pipesat.solve(problem, time_limit=5)
>>> print(result)
>>> result.plot().savefig("gantt.png")
>>> result.export("torch-csv", "schedule.csv")

One function for every command of the command line; ``help(pipesat.solve)`` explains its parameters,
and docs/python.md lists all. Everything is imported when first used: ``import pipesat`` loads
neither ortools nor matplotlib.
"""

from __future__ import annotations

import importlib
import sys

from pipesat.core.attached import HOMES, attached

TYPE_CHECKING = False  # so that not even typing is imported before a command hears signals
if TYPE_CHECKING:
    import typing

    from pipesat.advise.study import advise
    from pipesat.bounds.feasibility import preflight, smallest_capacities
    from pipesat.bounds.one_device import closed_form_bound
    from pipesat.core.checker import check
    from pipesat.core.claims import Bound
    from pipesat.core.critical_path import critical_path
    from pipesat.core.errors import (
        BadInput,
        Contradiction,
        Deadlock,
        Fault,
        Infeasible,
        NotApplicable,
        NotValid,
        PipesatError,
        RunFailed,
    )
    from pipesat.core.exported import Exported
    from pipesat.core.memory import memory_profiles, peak_memory
    from pipesat.core.metrics import measure
    from pipesat.core.ops import Op, Pair, parse_item
    from pipesat.core.problem import Device, Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule, Timed
    from pipesat.core.stage import Stage
    from pipesat.core.timing import time_order
    from pipesat.core.violation import Violation
    from pipesat.doctor import doctor
    from pipesat.files.problem_file import parse_problem, read_problem
    from pipesat.files.problem_text import write_problem
    from pipesat.files.schedule_file import read_schedule, write_schedule
    from pipesat.layers.file import read_layers, write_layers
    from pipesat.parts.file import read_parts
    from pipesat.parts.trace import parts_of_trace
    from pipesat.placement.lengths import microbatches_from_lengths
    from pipesat.profile.file import read_profile, write_profile
    from pipesat.report.study import report
    from pipesat.runtime.profile_model import profile_model
    from pipesat.sweep.study import sweep
    from pipesat.timeline.file import read_timeline, write_timeline
    from pipesat.timeline.refit import refit
    from pipesat.timeline.trace import import_traces
    from pipesat.workflows.compare import compare
    from pipesat.workflows.exports import export, import_order
    from pipesat.workflows.from_profile import (
        estimate_layers,
        layers_from_profile,
        problem_from_profile,
    )
    from pipesat.workflows.hand_written import baseline, baselines
    from pipesat.workflows.memory import frontier, min_memory
    from pipesat.workflows.microbatch_orders import balance
    from pipesat.workflows.pair_times import pair_times
    from pipesat.workflows.plans import plan
    from pipesat.workflows.profiles import profile
    from pipesat.workflows.risk import risk
    from pipesat.workflows.schedules import show, steps
    from pipesat.workflows.solve import solve
    from pipesat.workflows.timelines import compare_timeline
    from pipesat.workflows.torch_runs import parity, run, run_rank

_HOMES = {
    "BadInput": "core.errors",
    "Bound": "core.claims",
    "Contradiction": "core.errors",
    "Deadlock": "core.errors",
    "Device": "core.problem",
    "Exported": "core.exported",
    "Fault": "core.errors",
    "Infeasible": "core.errors",
    "NotApplicable": "core.errors",
    "NotValid": "core.errors",
    "Op": "core.ops",
    "Pair": "core.ops",
    "PipesatError": "core.errors",
    "Problem": "core.problem",
    "Result": "core.result",
    "RunFailed": "core.errors",
    "Schedule": "core.schedule",
    "Stage": "core.stage",
    "Timed": "core.schedule",
    "Violation": "core.violation",
    "advise": "advise.study",
    "balance": "workflows.microbatch_orders",
    "baseline": "workflows.hand_written",
    "baselines": "workflows.hand_written",
    "check": "core.checker",
    "closed_form_bound": "bounds.one_device",
    "compare": "workflows.compare",
    "compare_timeline": "workflows.timelines",
    "critical_path": "core.critical_path",
    "doctor": "doctor",
    "estimate_layers": "workflows.from_profile",
    "export": "workflows.exports",
    "frontier": "workflows.memory",
    "import_order": "workflows.exports",
    "import_traces": "timeline.trace",
    "layers_from_profile": "workflows.from_profile",
    "measure": "core.metrics",
    "memory_profiles": "core.memory",
    "microbatches_from_lengths": "placement.lengths",
    "min_memory": "workflows.memory",
    "pair_times": "workflows.pair_times",
    "parity": "workflows.torch_runs",
    "parse_item": "core.ops",
    "parse_problem": "files.problem_file",
    "parts_of_trace": "parts.trace",
    "peak_memory": "core.memory",
    "plan": "workflows.plans",
    "preflight": "bounds.feasibility",
    "problem_from_profile": "workflows.from_profile",
    "profile": "workflows.profiles",
    "profile_model": "runtime.profile_model",
    "read_layers": "layers.file",
    "read_parts": "parts.file",
    "read_problem": "files.problem_file",
    "read_profile": "profile.file",
    "read_schedule": "files.schedule_file",
    "read_timeline": "timeline.file",
    "refit": "timeline.refit",
    "report": "report.study",
    "risk": "workflows.risk",
    "run": "workflows.torch_runs",
    "run_rank": "workflows.torch_runs",
    "show": "workflows.schedules",
    "smallest_capacities": "bounds.feasibility",
    "solve": "workflows.solve",
    "steps": "workflows.schedules",
    "sweep": "sweep.study",
    "time_order": "core.timing",
    "write_layers": "layers.file",
    "write_problem": "files.problem_text",
    "write_profile": "profile.file",
    "write_schedule": "files.schedule_file",
    "write_timeline": "timeline.file",
}

_METHODS = {
    "built": "placement.building",
    "changed": "placement.changing",
    "export_result": "workflows.exports",
    "figure_of_parts": "parts.picture",
    "figure_of_plan": "plan.picture",
    "figure_of_result": "picture.of_result",
    "figure_of_schedule": "picture.of_result",
    "frame_of": "picture.notebook",
    "from_parts": "placement.building",
    "html_of": "picture.notebook",
    "html_of_problem": "picture.notebook",
    "png_of": "picture.notebook",
    "save_advice": "advise.files",
    "save_plan": "plan.files",
    "save_result": "workflows.exports",
    "schedule_of": "workflows.valid",
}
HOMES |= _HOMES | _METHODS

__all__ = [
    "BadInput",
    "Bound",
    "Contradiction",
    "Deadlock",
    "Device",
    "Exported",
    "Fault",
    "Infeasible",
    "NotApplicable",
    "NotValid",
    "Op",
    "Pair",
    "PipesatError",
    "Problem",
    "Result",
    "RunFailed",
    "Schedule",
    "Stage",
    "Timed",
    "Violation",
    "advise",
    "balance",
    "baseline",
    "baselines",
    "check",
    "closed_form_bound",
    "compare",
    "compare_timeline",
    "critical_path",
    "doctor",
    "estimate_layers",
    "export",
    "frontier",
    "import_order",
    "import_traces",
    "layers_from_profile",
    "measure",
    "memory_profiles",
    "microbatches_from_lengths",
    "min_memory",
    "pair_times",
    "parity",
    "parse_item",
    "parse_problem",
    "parts_of_trace",
    "peak_memory",
    "plan",
    "preflight",
    "problem_from_profile",
    "profile",
    "profile_model",
    "read_layers",
    "read_parts",
    "read_problem",
    "read_profile",
    "read_schedule",
    "read_timeline",
    "refit",
    "report",
    "risk",
    "run",
    "run_rank",
    "show",
    "smallest_capacities",
    "solve",
    "steps",
    "sweep",
    "time_order",
    "write_layers",
    "write_problem",
    "write_profile",
    "write_schedule",
    "write_timeline",
]


class _Package(type(sys)):  # type: ignore[misc]
    """Class of this package: a function keeps its name where a room has the same one.

    ``pipesat.frontier`` is the function; its room is imported as ``from pipesat.frontier.caps``,
    which looks into ``sys.modules``, and importing it would put the room in the function's place.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, type(sys))):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> typing.Any:
    if name == "__version__":
        metadata = importlib.import_module("importlib.metadata")
        return metadata.version(__name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = attached(name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
