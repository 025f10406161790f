"""Objectives: makespan and span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ortools.sat.python import cp_model

from pipesat.bounds.ways import time_until_forward
from pipesat.core.ops import Phase
from pipesat.core.schedule import Objective
from pipesat.solver.model.lags import lag_before, tail_after
from pipesat.solver.model.turns import classes_of
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
                for *_, task in v.chains(stage, phase):
                    if task.present is True:
                        v.cp.add(task.end - begin <= value)
            for task in v.tasks["W"][stage]:
                if task.present is not True:
                    v.cp.add(task.end - begin <= value).only_enforce_if(task.present)
            _add_what_is_left_out(v, objective, stage, value)
        if v.pairs.all and stages:
            _add_load(v, objective, stages, value)
    v.cp.minimize(value)
    return value


def _add_load(
    v: Variables, objective: Objective, stages: Sequence[int], value: cp_model.IntVar
) -> None:
    """Say that a device's work, less what its pairs save, takes its time.

    It follows from the rest, but no-overlap does not see it: it counts what has to run, not how
    many pairs there must be.
    """
    begin = 0
    if objective == "makespan":
        starts = [time_until_forward(least, s) for s in stages for least in v.least]
        begin = min(starts) // v.times.unit
    work: list[cp_model.LinearExprT] = []
    for stage in stages:
        for m, split in enumerate(v.split[stage]):
            split_time = v.length("B", stage, m) + v.length("W", stage, m)
            fused = v.length("BW", stage, m)
            work.append(v.length("F", stage, m) + fused + (split_time - fused) * split)
    for choice in v.pairs.all:
        if choice.both[0].stage in stages:
            alone = sum(v.length(op.kind, op.stage, op.microbatch) for op in choice.ops)
            work.append((choice.time - alone) * choice.literal)
    v.cp.add(begin + sum(work) <= value)


def _add_what_is_left_out(
    v: Variables, objective: Objective, stage: int, value: cp_model.IntVar
) -> None:
    """Count what must follow a stage's last backward on devices that are left out.

    For the span only with a single route: what goes on from its first F to its end there lies
    within the window of the device that holds its first stage.
    """
    for *_, last in classes_of(v.problem.routes[v.problem.route_of[stage]]):
        tail = tail_after(v.least_for(stage, last), v.kept, stage) // v.times.unit
        if not tail:
            continue
        end = v.tasks["B"][stage][last].end + tail
        if objective == "makespan":
            v.cp.add(end <= value)
        elif len(v.problem.routes) == 1 and not _reaches_kept(v, stage):
            for begin in _begins(v):
                v.cp.add(end - begin <= value)


def _begins(v: Variables) -> Iterator[cp_model.LinearExpr]:
    """What the first op of the route's first stage starts by, from the first F of each class."""
    (route,) = v.problem.routes
    lowest = next(s for s in route.stages if s in v.kept)
    for first, *_ in classes_of(route):
        lag = lag_before(v.least_for(lowest, first), v.kept, lowest, "F")
        yield v.tasks["F"][lowest][first].start - lag.delay // v.times.unit


def _reaches_kept(v: Variables, stage: int) -> bool:
    """Whether a kept stage lies before this one on its route."""
    return lag_before(v.least[0], v.kept, stage, "F").stage is not None


def _first_start(v: Variables, device: int) -> cp_model.IntVar:
    """No later than the first op of a device: the first F of its first stage of some route."""
    first = v.cp.new_int_var(0, v.horizon, f"first start on {device}")
    for stage in v.problem.stages_on[device]:
        for task, *_ in v.chains(stage, "F"):
            v.cp.add(first <= task.start)
    return first
