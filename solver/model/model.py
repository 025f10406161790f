"""The finite CP-SAT model of a problem: docs/model.md has it as formulas."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ortools.sat.python import cp_model

from pipesat.core.ops import Item, Kind, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Order
from pipesat.solver.model.constraints import add_constraints
from pipesat.solver.model.objective import add_objective
from pipesat.solver.model.times import latest_end, model_times
from pipesat.solver.model.variables import Literal, Task, Variables, add_variables


@dataclass(frozen=True)
class Model:
    """A model with its variables; values are in multiples of ``unit`` time units.

    ``beyond`` is the bound that follows, in time units, if it has no solution.
    """

    variables: Variables
    value: cp_model.IntVar
    objective: Objective
    beyond: int

    @property
    def cp(self) -> cp_model.CpModel:
        """The CP-SAT model."""
        return self.variables.cp

    @property
    def unit(self) -> int:
        """Time units per unit of model time."""
        return self.variables.times.unit

    def bound(self, value: int) -> int:
        """Lower bound of the objective that follows from one of ``value``, in time units."""
        return self.variables.times.bound(value, self.objective)

    def order(self, value: Callable[[cp_model.IntVar], int]) -> Order:
        """Read the order out of a solution; ``value`` evaluates a variable."""
        v = self.variables
        position = {s: i for route in v.problem.routes for i, s in enumerate(route.stages)}

        def truth(literal: Literal) -> bool:
            return literal if isinstance(literal, bool) else bool(value(literal))

        rows = []
        for device in range(len(v.problem.devices)):
            items: list[tuple[tuple[int, ...], Item]] = []
            for task in v.on_device(device):
                if not truth(task.present):
                    continue
                kind = _kind(task, truth(v.split[task.stage][task.microbatch]))
                length = v.times.duration[kind][task.stage]
                start = value(task.start)
                place = position[task.stage]
                # ops of length zero that share an instant: earlier microbatches first, so that
                # what they free is free, and each microbatch in the order of the data flow
                flow = ("FBW".index(task.phase), place if task.phase == "F" else -place)
                key = (start, start + length, task.microbatch, *flow)
                items.append((key, Op(task.stage, kind, task.microbatch)))
            rows.append(tuple(item for _, item in sorted(items)))
        return tuple(rows)


def build_model(
    problem: Problem,
    objective: Objective,
    lower: int,
    upper: int,
    devices: Collection[int] | None = None,
    *,
    staircase: bool = True,
) -> Model:
    """Model all schedules with an objective between ``lower`` and ``upper`` (time units).

    With ``devices``, a relaxation: only their ops, all other devices never busy. Without
    ``staircase``, order literals count the memory of every device.
    """
    cp = cp_model.CpModel()
    longest = latest_end(problem, objective, upper)
    times = model_times(problem, longest, objective)
    most = times.at_most(upper, objective)
    # rounded, a span and a delay may each take one unit more on every device
    horizon = most if objective == "makespan" else longest // times.unit + 2 * len(problem.devices)
    variables = add_variables(cp, problem, times, horizon, devices)
    add_constraints(variables, staircase=staircase)
    value = add_objective(variables, objective, times.at_least(lower), most)
    return Model(variables, value, objective, times.bound(most + 1, objective))


def model_is_exact(problem: Problem) -> bool:
    """Whether the model's bound holds for the problem: it does not model overlapped pairs."""
    return problem.overlap is None


def _kind(task: Task, split: bool) -> Kind:
    if task.phase == "B":
        return "B" if split else "BW"
    return task.phase
