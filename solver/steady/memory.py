"""Memory of the cyclic model: one inequality per start that takes memory.

When op e of a period n starts, of the ops x (one per period) as many have started as count(e) -
count(x) + n, and one more if x lies before e within the period. Periods n cancel in differences, so
with ``before(x, e)`` in {0, 1}, of one microbatch j of the period and stage s

    held_s = a (count(B) - count(F) + before(F, e) - before(B, e))
           + w (count(W) - count(B) + before(B, e) - before(W, e))

in units of whole microbatches: a while F has started and the backward has not ended, w from then to
the end of W. ``sum of held_s + what e takes <= room``.
"""

from __future__ import annotations

from typing import cast

from ortools.sat.python import cp_model

from pipesat.core.ops import Op
from pipesat.core.rules import memory_change
from pipesat.solver.model.variants import Literal, either
from pipesat.solver.steady.variables import PHASES, Cycle, Linear, PeriodOp


def add_memory(v: Cycle, device: int) -> None:
    """Bound what a device holds, at every start that takes memory and on average."""
    room = v.problem.devices[device].room
    stages = v.problem.stages_on[device]
    if room is None or not stages:
        return
    _add_average(v, device, room)
    before = _Before(v, device)
    for stage in stages:
        data = v.problem.stages[stage]
        for j in v.per_period(stage):
            if data.held_after_F:
                held = _held(v, device, before, PeriodOp(stage, "F", j))
                v.cp.add(held + data.held_after_F <= room)
            split = v.split[stage, j]
            for kind, condition in either(split):
                taken = memory_change(v.problem, Op(stage, kind, 0)).at_start
                if taken and condition is not False:
                    held = _held(v, device, before, PeriodOp(stage, "B", j))
                    constraint = v.cp.add(held + taken <= room)
                    if not isinstance(condition, bool):
                        constraint.only_enforce_if(condition)


def _held(v: Cycle, device: int, before: _Before, event: PeriodOp) -> Linear:
    """Everything that the device holds just before an event."""
    terms: list[Linear] = []
    for stage in v.problem.stages_on[device]:
        a, w = v.problem.stages[stage].held_after_F, v.problem.stages[stage].held_after_B
        for j in v.per_period(stage):
            f, b, weight = (PeriodOp(stage, phase, j) for phase in PHASES)
            counts = v.tasks[b].count - v.tasks[f].count
            terms.append(a * (counts + before(f, event) - before(b, event)))
            if w and v.split[stage, j] is not False:
                counts = v.tasks[weight].count - v.tasks[b].count
                terms.append(w * (counts + before(b, event) - before(weight, event)))
    return cp_model.LinearExpr.sum(terms)


def _add_average(v: Cycle, device: int, room: int) -> None:
    """Memory x time of a period is at most room x period: implied, but linear in the times."""
    terms: list[Linear] = []
    for stage in v.problem.stages_on[device]:
        data = v.problem.stages[stage]
        a, w = data.held_after_F, data.held_after_B
        for j in v.per_period(stage):
            f, b, weight = (v.tasks[PeriodOp(stage, phase, j)] for phase in PHASES)
            terms.append(a * (b.end - f.time))
            if v.split[stage, j] is not False:
                terms.append(w * (weight.end - b.end))
                excess = max(0, w - a) * v.times.duration["B"][stage]
                terms.append(excess * v.split[stage, j])
    v.cp.add(cp_model.LinearExpr.sum(terms) <= room * v.period)


class _Before:
    """``before(x, event)``: x ends before the event starts within the period, or else after it.

    An op is not before itself. A fused backward's W stands where the BW does.
    """

    def __init__(self, v: Cycle, device: int) -> None:
        self.v = v
        self.known: dict[tuple[PeriodOp, PeriodOp], Literal] = {}
        self.origin = PeriodOp(v.problem.stages_on[device][0], "F", 0)

    def __call__(self, x: PeriodOp, event: PeriodOp) -> Literal:
        if event in (x, self.origin):
            return False
        if x == self.origin:
            return True
        if (x, event) not in self.known:
            self._create(x, event)
        return self.known[x, event]

    def _create(self, x: PeriodOp, event: PeriodOp) -> None:
        v, task, other = self.v, self.v.tasks[x], self.v.tasks[event]
        literal = v.cp.new_bool_var("")
        self.known[x, event] = literal
        split = v.split[x.stage, x.microbatch]
        may_be_absent = x.phase == "W" and not isinstance(split, bool)
        v.cp.add(task.offset + task.length <= other.offset).only_enforce_if(literal)
        apart = v.cp.add(other.offset + other.length <= task.offset)
        if not may_be_absent:
            self.known[event, x] = cast(Literal, ~literal)
            apart.only_enforce_if(~literal)
            return
        apart.only_enforce_if(~literal, split)
        backward = self(x._replace(phase="B"), event)
        if isinstance(backward, bool):
            v.cp.add_bool_or([literal if backward else ~literal, split])
        else:
            v.cp.add_bool_or([~literal, backward, split])
            v.cp.add_bool_or([literal, ~backward, split])
