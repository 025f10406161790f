"""The finite CP-SAT model of a problem: docs/model.md has it as formulas."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ortools.sat.python import cp_model

from pipesat.ops import Item, Kind, Op
from pipesat.problem import Problem
from pipesat.schedule import Objective, Order
from pipesat.solver.model.constraints import add_constraints
from pipesat.solver.model.objective import add_objective
from pipesat.solver.model.times import model_times
from pipesat.solver.model.variables import Literal, Task, Variables, add_variables


@dataclass(frozen=True)
class Model:
    """A model with its variables; values are in multiples of ``unit`` time units."""

    variables: Variables
    value: cp_model.IntVar

    @property
    def cp(self) -> cp_model.CpModel:
        """The CP-SAT model."""
        return self.variables.cp

    @property
    def unit(self) -> int:
        """Time units per unit of model time."""
        return self.variables.times.unit

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
    times = model_times(problem, objective)
    upper_bound = upper // times.unit
    horizon = upper_bound
    if objective == "span":  # windows of the devices may lie one after the other
        farthest = max((*times.forward_delay, *times.backward_delay), default=0)
        horizon = len(problem.devices) * (upper_bound + farthest)
    variables = add_variables(cp, problem, times, horizon, devices)
    add_constraints(variables, staircase=staircase)
    value = add_objective(variables, objective, -(-lower // times.unit), upper_bound)
    return Model(variables, value)


def model_is_exact(problem: Problem) -> bool:
    """Whether the model's bound holds for the problem: it does not model overlapped pairs."""
    return problem.overlap is None


def _kind(task: Task, split: bool) -> Kind:
    if task.phase == "B":
        return "B" if split else "BW"
    return task.phase
