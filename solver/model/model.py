"""The finite CP-SAT model of a problem (formulas: docs/proofs/model.md), and how large it is."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import cast

from ortools.sat.python import cp_model

from pipesat.bounds.given_order import HeadsAndTails
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem, Stage
from pipesat.schedule.schedule import Objective, Order
from pipesat.solver.model.alternatives import Literal, joined
from pipesat.solver.model.constraints import (
    add_constraints,
    add_heads_and_tails,
    add_objective,
)
from pipesat.solver.model.memory import staircase_applies
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.times import latest_end, model_times
from pipesat.solver.model.variables import Variables, add_variables


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

        def truth(literal: Literal) -> bool:
            return literal if isinstance(literal, bool) else bool(value(literal))

        turn = v.turns.places(v.problem, value)
        partner = v.pairs.found(value, lambda task: task.name)
        rows = []
        for device in range(len(v.problem.devices)):
            items: list[tuple[tuple[int, ...], Op]] = []
            for task in v.on_device(device):
                if not truth(task.present):
                    continue
                op, length, *_ = next(one for one in task.alternatives if truth(one.chosen))
                place = v.problem.place_of[task.stage]
                # ops of length zero that share an instant: earlier microbatches first, so that
                # what they free is free, and each microbatch in the order of the data flow
                rank, slices = turn[task.stage][task.microbatch], v.problem.slices_of[task.stage]
                number, at = divmod(rank, slices)
                step = 1 if task.phase == "F" else -1
                flow = ("FBW".index(task.phase), step * at, step * place)
                start = value(task.start)
                end = start + length
                if v.pairs.partners(task):
                    end = value(cast(cp_model.IntVar, task.end))
                items.append(((start, end, number, *flow), op))
            rows.append(joined(v.problem, [op for _, op in sorted(items)], partner))
        return tuple(rows)


def build_model(
    problem: Problem,
    objective: Objective,
    lower: int,
    upper: int,
    devices: Collection[int] | None = None,
    *,
    line: HeadsAndTails | None = None,
) -> Model:
    """Model all schedules with an objective between ``lower`` and ``upper`` (time units).

    With ``devices``, a relaxation: only their ops, all other devices never busy. ``line`` has
    heads and tails.
    """
    cp = cp_model.CpModel()
    longest = latest_end(problem, objective, upper)
    times = model_times(problem, longest, objective)
    most = times.at_most(upper, objective)
    # rounded, a span and a delay may each take one unit more on every device
    horizon = most if objective == "makespan" else longest // times.unit + 2 * len(problem.devices)
    variables = add_variables(cp, problem, times, horizon, devices)
    add_constraints(variables)
    value = add_objective(variables, objective, times.at_least(lower), most)
    if line is not None:
        add_heads_and_tails(variables, line, objective, value)
    return Model(variables, value, objective, times.bound(most + 1, objective))


def model_size(problem: Problem, devices: Collection[int] | None = None) -> int:
    """Estimate the number of constraints, within a factor of about two.

    ``devices`` are those of a relaxation; by default all.
    """
    chosen = range(len(problem.devices)) if devices is None else devices
    return sum(_size_of(problem, device) for device in chosen)


def _size_of(problem: Problem, device: int) -> int:
    stages = problem.stages_on[device]
    microbatches = {s: problem.microbatches[s] for s in stages}
    size = 9 * sum(microbatches.values()) + _size_of_pairs(problem, device)
    slack = problem.devices[device].slack
    if slack is None or not stages:
        return size
    if staircase_applies(problem, device):
        stage, m = problem.stages[stages[0]], microbatches[stages[0]]
        steps = slack // stage.held_after_F if stage.held_after_F else 0
        size += 2 * m * min(steps, m)
        return size + 4 * m * m * _takes_more(stage)
    forwards = sum(microbatches.values())
    backwards = sum(microbatches[s] for s in stages if _takes_more(problem.stages[s]))
    events = forwards + backwards
    if not problem.plain:  # order and data flow decide little between two classes
        return size + 8 * max(events, forwards) * forwards
    return size + 4 * events * forwards  # about half of all pairs need a literal, 4 constraints


def _takes_more(stage: Stage) -> bool:
    """Whether a backward may take memory at its start."""
    return max(stage.held_after_B, stage.held_in_backward) > stage.held_after_F


def _size_of_pairs(problem: Problem, device: int) -> int:
    """Candidates, as many per microbatch and two kinds as memory admits microbatches at a time."""
    slack, size = problem.devices[device].slack, 0
    for (one, _), (other, _) in gains(problem):
        if problem.stages[one].device == device:
            least = min(problem.stages[s].held_after_F for s in (one, other))
            depth = slack // least if slack is not None and least else problem.microbatches[other]
            size += problem.microbatches[one] * min(depth, problem.microbatches[other])
    return 4 * size  # of 8 constraints each; every two kinds were there in both orders
