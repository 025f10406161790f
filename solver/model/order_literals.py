"""Memory of any device: exact counting with Booleans "this op is before that one".

Memory can exceed the capacity only where an op takes some: at the start of an F, and at the start
of a B whose held_after_B exceeds its held_after_F. For each such event, every other op of the
device is before it or after it; one linear inequality adds up what those before it have taken and
freed. Microbatch order and data flow decide most pairs beforehand; the rest get a literal each, in
chains (if an op is before the event, so are its predecessors).

Memory counts at instants. An op and an event that may both have length zero can share one; the op
then counts as before, whichever waits for the other: the inequality is that of the instant's end.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.rules import memory_change
from pipesat.solver.model.before import Before
from pipesat.solver.model.literals import Literal, Sum, conjunction
from pipesat.solver.model.order_facts import precedes
from pipesat.solver.model.times import KINDS
from pipesat.solver.model.variables import Task, Variables


def add_memory_by_order(v: Variables, device: int) -> None:
    """Bound memory at every event of the device."""
    if _always_fits(v.problem, device):
        return
    literals = _Before(v)
    for stage in v.problem.stages_on[device]:
        data = v.problem.stages[stage]
        if data.held_after_F:
            for task in v.tasks["F"][stage]:
                _bound_at(v, device, literals, task, data.held_after_F, True)
        if data.held_after_B > data.held_after_F and data.may_split:
            excess = data.held_after_B - data.held_after_F
            for task, split in zip(v.tasks["B"][stage], v.split[stage], strict=True):
                _bound_at(v, device, literals, task, excess, split)


def _always_fits(problem: Problem, device: int) -> bool:
    room = problem.devices[device].room
    everything = sum(
        max(problem.stages[s].held_after_F, problem.stages[s].held_after_B)
        * problem.microbatches[s]
        for s in problem.stages_on[device]
    )
    return room is None or everything <= room


def _bound_at(
    v: Variables, device: int, before: _Before, event: Task, taken: int, condition: Literal
) -> None:
    """``held before the event + what it takes <= room``, if ``condition`` holds."""
    room = v.problem.devices[device].room
    if room is None:
        return
    held = Sum(taken)
    for choice, partner, kind in v.pairs.partners(event):
        held.add(memory_change(v.problem, Op(partner.stage, kind, 0)).at_start, choice.literal)
    for stage in v.problem.stages_on[device]:
        changes = {kind: memory_change(v.problem, Op(stage, kind, 0)).net for kind in KINDS}
        for m, split in enumerate(v.split[stage]):
            f, b = v.tasks["F"][stage][m], v.tasks["B"][stage][m]
            if f is not event:
                held.add(changes["F"], before(f, event))
            if b is event:
                if split is not False:
                    held.add(changes["W"], before(v.tasks["W"][stage][m], event))
                continue
            b_before = before(b, event)
            held.add(changes["BW"], b_before)
            if b_before is not False and split is not False:
                # a finished B leaves behind what a finished BW would have freed
                held.add(changes["B"] - changes["BW"], conjunction(v.cp, split, b_before))
                held.add(changes["W"], before(v.tasks["W"][stage][m], event))
    held.at_most(v.cp, room, condition)


class _Before(Before[Task]):
    """The literals of one device's tasks."""

    def __init__(self, v: Variables) -> None:
        super().__init__(v.cp, v.pairs)
        self.v = v

    def fixed(self, x: Task, event: Task) -> bool | None:
        """What microbatch order and data flow say."""
        if precedes(self.v.problem, x.name, event.name):
            sure = x.present is True and not self.choices.together(x, event)
            return True if sure else None
        turned = precedes(self.v.problem, event.name, x.name)
        return False if turned and not self.share(x, event) else None

    def share(self, x: Task, event: Task) -> bool:
        """Whether both may have length zero, and so run in one instant."""
        return self._may_take_no_time(x) and self._may_take_no_time(event)

    def _may_take_no_time(self, x: Task) -> bool:
        duration = self.v.times.duration
        if x.phase != "B":
            return not duration[x.phase][x.stage]
        split = self.v.split[x.stage][x.microbatch]
        may_run_b = split is not False and not duration["B"][x.stage]
        return may_run_b or (split is not True and not duration["BW"][x.stage])

    def link(self, x: Task, event: Task, literal: cp_model.IntVar) -> None:
        """What is before x is before the event too; x is before what comes after the event."""
        v = self.v
        if x.microbatch and x.present is True:
            earlier = self(v.tasks[x.phase][x.stage][x.microbatch - 1], event)
            if earlier is False:
                v.cp.add_bool_or([~literal])
            elif earlier is not True:
                v.cp.add_implication(literal, earlier)
        if event.microbatch:
            before_event = v.tasks[event.phase][event.stage][event.microbatch - 1]
            if x is before_event:  # they may run as a pair
                return
            sooner = self(x, before_event)
            if sooner is True:
                v.cp.add_bool_or([literal])
            elif sooner is not False:
                v.cp.add_implication(sooner, literal)
