"""pipesat: pipeline-parallel training schedules with a proof of how close to optimal they are.

>>> import pipesat
>>> problem = pipesat.Problem.chain(devices=4, microbatches=8, F=2, B=2, W=1)
>>> result = pipesat.solve(problem, time_limit=5)
>>> print(result)
>>> result.plot().savefig("gantt.png")
>>> result.export("torch", "schedule.csv")

One function for every command of the command line; ``help(pipesat.solve)`` explains its parameters,
and docs/python.md lists all, also what is imported from its package. Everything is imported when
first used: ``import pipesat`` loads neither ortools nor matplotlib.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # so that not even typing is imported before a command hears signals
if TYPE_CHECKING:
    import typing

    from pipesat.advise.plan_and_advise import advise, plan
    from pipesat.compare.balance import balance
    from pipesat.compare.compare import compare
    from pipesat.compare.explore.exploring import explore
    from pipesat.compare.exports import export
    from pipesat.compare.frontier.memory import frontier, min_memory
    from pipesat.compare.hand_written import baselines
    from pipesat.compare.report.study import read, report
    from pipesat.compare.result import Result, Schedule
    from pipesat.compare.risk.answer import risk
    from pipesat.compare.schedules import check, schedule_of, show
    from pipesat.compare.solve import solve
    from pipesat.compare.sweep.cases import sweep
    from pipesat.core.errors import (
        BadInput,
        Infeasible,
        NotApplicable,
        NotValid,
        PipesatError,
        ProblemWarning,
    )
    from pipesat.measure.profiles import profile
    from pipesat.measure.torch_runs import run
    from pipesat.problem.problem import Device, Problem
    from pipesat.problem.stage import Stage

_HOMES = {
    "BadInput": "core.errors",
    "Device": "problem.problem",
    "Infeasible": "core.errors",
    "NotApplicable": "core.errors",
    "NotValid": "core.errors",
    "PipesatError": "core.errors",
    "Problem": "problem.problem",
    "ProblemWarning": "core.errors",
    "Result": "compare.result",
    "Schedule": "compare.result",
    "Stage": "problem.stage",
    "advise": "advise.plan_and_advise",
    "balance": "compare.balance",
    "baselines": "compare.hand_written",
    "check": "compare.schedules",
    "compare": "compare.compare",
    "explore": "compare.explore.exploring",
    "export": "compare.exports",
    "frontier": "compare.frontier.memory",
    "min_memory": "compare.frontier.memory",
    "plan": "advise.plan_and_advise",
    "profile": "measure.profiles",
    "read": "compare.report.study",
    "report": "compare.report.study",
    "risk": "compare.risk.answer",
    "run": "measure.torch_runs",
    "schedule_of": "compare.schedules",
    "show": "compare.schedules",
    "solve": "compare.solve",
    "sweep": "compare.sweep.cases",
}

__all__ = [
    "BadInput",
    "Device",
    "Infeasible",
    "NotApplicable",
    "NotValid",
    "PipesatError",
    "Problem",
    "ProblemWarning",
    "Result",
    "Schedule",
    "Stage",
    "advise",
    "balance",
    "baselines",
    "check",
    "compare",
    "explore",
    "export",
    "frontier",
    "min_memory",
    "plan",
    "profile",
    "read",
    "report",
    "risk",
    "run",
    "schedule_of",
    "show",
    "solve",
    "sweep",
]


class _Package(type(sys)):  # type: ignore[misc]
    """Class of this package: a function keeps its name where a package has the same one.

    ``pipesat.compare`` is the function. Its package is imported as
    ``from pipesat.compare.balance``, which looks into ``sys.modules``, and importing it would put
    the package in the function's place.
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
    value = globals()[name] = getattr(importlib.import_module(f"pipesat.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
