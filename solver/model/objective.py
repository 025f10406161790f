"""Objectives: makespan and span."""

from __future__ import annotations

from ortools.sat.python import cp_model

from pipesat.ops import Phase
from pipesat.schedule import Objective
from pipesat.solver.model.variables import Variables

_LAST_PHASES: tuple[Phase, ...] = ("B", "W")


def add_objective(v: Variables, objective: Objective, lower: int, upper: int) -> cp_model.IntVar:
    """Minimise the makespan or the span, known to lie in ``[lower, upper]`` (model time)."""
    value = v.cp.new_int_var(lower, upper, objective)
    for device, stages in enumerate(v.problem.stages_on):
        if not stages:
            continue
        begin = _first_start(v, device) if objective == "span" else 0
        for stage in stages:
            for phase in _LAST_PHASES:
                for task in v.tasks[phase][stage][-1:]:
                    if task.present is True:
                        v.cp.add(task.end - begin <= value)
            for task in v.tasks["W"][stage]:
                if task.present is not True:
                    v.cp.add(task.end - begin <= value).only_enforce_if(task.present)
    v.cp.minimize(value)
    return value


def _first_start(v: Variables, device: int) -> cp_model.IntVar:
    """No later than the first op of a device: the first F of its first stage of some route."""
    first = v.cp.new_int_var(0, v.horizon, f"first start on {device}")
    for stage in v.problem.stages_on[device]:
        v.cp.add(first <= v.tasks["F"][stage][0].start)
    v.first_starts[device] = first
    return first
