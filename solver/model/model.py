"""The finite CP-SAT model of a problem: docs/proofs/model.md has it as formulas."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import cast

from ortools.sat.python import cp_model

from pipesat.core.ops import Event, Kind, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Order
from pipesat.solver.model.constraints import add_constraints
from pipesat.solver.model.literals import Literal
from pipesat.solver.model.objective import add_objective
from pipesat.solver.model.pair_choices import joined
from pipesat.solver.model.times import latest_end, model_times
from pipesat.solver.model.variables import Task, Variables, add_variables


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

        turn = _turns(v, value)
        partner: dict[Event, Event] = {}
        for choice in v.pairs.all:
            if value(choice.literal):
                one, other = (task.name for task in choice.both)
                partner |= {one: other, other: one}
        rows = []
        for device in range(len(v.problem.devices)):
            items: list[tuple[tuple[int, ...], Op]] = []
            for task in v.on_device(device):
                if not truth(task.present):
                    continue
                kind = _kind(task, truth(v.split[task.stage][task.microbatch]))
                place = position[task.stage]
                # ops of length zero that share an instant: earlier microbatches first, so that
                # what they free is free, and each microbatch in the order of the data flow
                flow = ("FBW".index(task.phase), place if task.phase == "F" else -place)
                start = value(task.start)
                end = start + v.length(kind, task.stage, task.microbatch)
                if v.pairs.partners(task):
                    end = value(cast(cp_model.IntVar, task.end))
                key = (start, end, turn[task.stage][task.microbatch], *flow)
                items.append((key, Op(task.stage, kind, task.microbatch)))
            rows.append(joined(v.problem, [op for _, op in sorted(items)], partner))
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
    """Whether the model's bound holds for the problem."""
    return not why_not_exact(problem)


def why_not_exact(problem: Problem) -> str:
    """Say why the model's bound need not hold for a problem; ``""`` where it does."""
    return "memory modes" if problem.has_modes else ""


def _turns(v: Variables, value: Callable[[cp_model.IntVar], int]) -> list[list[int]]:
    """By stage, each microbatch's place in the order that all stages have, else its number."""
    places = []
    for number, route in enumerate(v.problem.routes):
        place = list(range(route.microbatches))
        chosen = [(x, y) if value(first) else (y, x) for x, y, first in v.turns.of(number)]
        if chosen:
            own = route.classes or ()
            place = [sum(own[m] == own[n] for m in range(n)) for n in place]
            for _, later in chosen:
                place[later] += 1
        places.append(place)
    return [places[route] for route in v.problem.route_of]


def _kind(task: Task, split: bool) -> Kind:
    if task.phase == "B":
        return "B" if split else "BW"
    return task.phase
