"""Constraint families of the cyclic model, each one function: what a repetend must keep."""

from __future__ import annotations

from itertools import pairwise

from pipesat.core.ops import Op
from pipesat.core.rules import awaited
from pipesat.solver.steady.memory import add_memory
from pipesat.solver.steady.variables import PHASES, Cycle, PeriodOp


def add_constraints(v: Cycle) -> None:
    """Add all of them."""
    add_one_op_at_a_time(v)
    add_dataflow(v)
    add_microbatch_order(v)
    for device in range(len(v.problem.devices)):
        add_memory(v, device)


def add_one_op_at_a_time(v: Cycle) -> None:
    """Ops of a device do not overlap within the period; none lies across its end."""
    for stages in v.problem.stages_on:
        slots = [PeriodOp(s, phase, j) for s in stages for phase in PHASES for j in v.per_period(s)]
        intervals = [interval for slot in slots for interval in v.tasks[slot].intervals]
        if len(intervals) > 1:
            v.cp.add_no_overlap(intervals)


def add_dataflow(v: Cycle) -> None:
    """Every op waits for its input and the input's travel, within one microbatch."""
    for slot, task in v.tasks.items():
        need = awaited(v.problem, Op(*slot))
        if need is None or not task.intervals:
            continue
        source = v.tasks[PeriodOp(*need.event)]
        arrival = source.end + need.delay // v.times.unit
        v.cp.add(task.time >= arrival)


def add_microbatch_order(v: Cycle) -> None:
    """Run each phase of a stage in microbatch order, from period to period as well.

    No loss: sorting, as proofs/model.md does it for finite schedules, works for infinite ones too,
    with "number started by time t" counted from any fixed microbatch on. Where W's may be absent,
    only the starts are ordered.
    """
    for stage in range(len(v.problem.stages)):
        for phase in PHASES:
            tasks = [v.tasks[PeriodOp(stage, phase, j)] for j in v.per_period(stage)]
            if len(tasks) < 2 or not tasks[0].intervals:
                continue
            for before, after in pairwise(tasks):
                v.cp.add(after.time >= before.end)
            v.cp.add(tasks[0].time + v.period >= tasks[-1].end)
