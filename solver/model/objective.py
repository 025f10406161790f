"""Objectives: makespan and span."""

from __future__ import annotations

from ortools.sat.python import cp_model

from pipesat.core.ops import Phase
from pipesat.core.schedule import Objective
from pipesat.solver.model.lags import lag_before, tail_after
from pipesat.solver.model.variables import Variables

_LAST_PHASES: tuple[Phase, ...] = ("B", "W")


def add_objective(v: Variables, objective: Objective, lower: int, upper: int) -> cp_model.IntVar:
    """Minimise the makespan or the span, known to lie in ``[lower, upper]`` (model time)."""
    value = v.cp.new_int_var(lower, upper, objective)
    for device, stages in enumerate(v.problem.stages_on):
        if not stages or not v.kept.issuperset(stages):
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
            _add_what_is_left_out(v, objective, stage, value)
    v.cp.minimize(value)
    return value


def _add_what_is_left_out(
    v: Variables, objective: Objective, stage: int, value: cp_model.IntVar
) -> None:
    """Count what must follow a stage's last backward on devices that are left out.

    For the span only with a single route: what goes on from its first F to its end there lies
    within the window of the device that holds its first stage.
    """
    tail = tail_after(v.least, v.kept, stage) // v.times.unit
    if not tail:
        return
    end = v.tasks["B"][stage][-1].end + tail
    if objective == "makespan":
        v.cp.add(end <= value)
    elif len(v.problem.routes) == 1 and not _reaches_kept(v, stage):
        lowest = min(v.problem.routes[0].stages.index(s) for s in v.kept)
        first = v.problem.routes[0].stages[lowest]
        head = lag_before(v.least, v.kept, first, "F").delay // v.times.unit
        v.cp.add(end - (v.tasks["F"][first][0].start - head) <= value)


def _reaches_kept(v: Variables, stage: int) -> bool:
    """Whether a kept stage lies before this one on its route."""
    return lag_before(v.least, v.kept, stage, "F").stage is not None


def _first_start(v: Variables, device: int) -> cp_model.IntVar:
    """No later than the first op of a device: the first F of its first stage of some route."""
    first = v.cp.new_int_var(0, v.horizon, f"first start on {device}")
    for stage in v.problem.stages_on[device]:
        v.cp.add(first <= v.tasks["F"][stage][0].start)
    return first
