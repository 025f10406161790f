"""Constraint families, each one function: what a schedule must keep, in proofs/model.md's words."""

from __future__ import annotations

from itertools import pairwise

from ortools.sat.python import cp_model

from pipesat.core.ops import Phase
from pipesat.solver.model.lags import lag_before
from pipesat.solver.model.order_literals import add_memory_by_order, add_memory_of_backwards
from pipesat.solver.model.staircase import add_memory_by_staircase, staircase_applies
from pipesat.solver.model.variables import Task, Variables


def add_constraints(v: Variables, *, staircase: bool = True) -> None:
    """Add all of them."""
    add_one_op_at_a_time(v)
    add_dataflow(v)
    add_microbatch_order(v)
    add_memory(v, staircase=staircase)


def add_one_op_at_a_time(v: Variables) -> None:
    """Ops on one device do not overlap."""
    for device in range(len(v.problem.devices)):
        intervals = [i for task in v.on_device(device) for i in task.intervals]
        if len(intervals) > 1:
            v.cp.add_no_overlap(intervals)


def add_dataflow(v: Variables) -> None:
    """Every op waits for its input and the input's travel."""
    for phase, stages in v.tasks.items():
        for stage, tasks in enumerate(stages):
            if not tasks:
                continue
            listed = v.problem.routes[v.problem.route_of[stage]].classes is not None
            lags = [lag_before(least, v.kept, stage, phase) for least in v.least]
            for place, task in enumerate(tasks):
                lag = lags[v.problem.class_of(stage, task.microbatch)]
                delay = lag.delay // v.times.unit
                if lag.stage is None:
                    if listed or not place:
                        v.cp.add(task.start >= delay)
                    continue
                source = v.tasks[lag.phase][lag.stage][task.microbatch]
                constraint = v.cp.add(task.start >= source.end + delay)
                if not isinstance(task.present, bool):
                    constraint.only_enforce_if(task.present)


def add_microbatch_order(v: Variables) -> None:
    """Run F, backwards and W of a stage in microbatch order each (proofs/model.md: no loss)."""
    for phase, stages in v.tasks.items():
        for stage in range(len(stages)):
            for tasks in v.chains(stage, phase):
                _add_chain(v, tasks)
            if phase != "W":
                _add_turns(v, stage, phase)


def _add_chain(v: Variables, tasks: list[Task]) -> None:
    if all(task.present is True for task in tasks):
        for before, after in pairwise(tasks):
            _add_order(v, before, after, before.end)
        return
    for before, after in pairwise(tasks):  # an absent W is placed, too, but takes no time
        length = v.length("W", before.stage, before.microbatch)
        pairs = v.pairs.partners(before)
        end = before.end if pairs else before.start + length * before.present
        _add_order(v, before, after, end)
        v.cp.add(after.start >= before.start)


def _add_turns(v: Variables, stage: int, phase: Phase) -> None:
    """Run microbatches of different classes in the order that all stages have."""
    tasks = v.tasks[phase][stage]
    for one, other, literal in v.turns.of(v.problem.route_of[stage]) if tasks else ():
        x, y = tasks[one], tasks[other]
        apart = [~pair for pair in v.pairs.together(x, y)]
        v.cp.add(y.start >= x.end).only_enforce_if(literal, *apart)
        v.cp.add(x.start >= y.end).only_enforce_if(~literal, *apart)


def _add_order(v: Variables, before: Task, after: Task, end: cp_model.LinearExprT) -> None:
    """One after the other, unless they run as a pair."""
    order = v.cp.add(after.start >= end)
    if together := v.pairs.together(before, after):
        order.only_enforce_if([~pair for pair in together])
        v.cp.add(after.start >= before.start)


def add_memory(v: Variables, *, staircase: bool = True) -> None:
    """Memory of each device stays within its capacity, by the encoding that suits the device."""
    for device in range(len(v.problem.devices)):
        stages = v.problem.stages_on[device]
        if v.problem.devices[device].room is None or not v.kept.issuperset(stages):
            continue
        if staircase and staircase_applies(v.problem, device):
            add_memory_by_staircase(v, device)
            add_memory_of_backwards(v, device)
        else:
            add_memory_by_order(v, device)
