"""A plan whose stages may recompute, as a problem with memory modes and a schedule in them."""

from __future__ import annotations

from dataclasses import replace

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.checker import check
from pipesat.core.claims import Bound
from pipesat.core.errors import Fault
from pipesat.core.ops import Item, Op, Pair, Unreadable, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Schedule
from pipesat.layers.layer import Layers
from pipesat.layers.stages import problem_with_recompute
from pipesat.plan.candidate import Candidate
from pipesat.plan.recompute import Flags


def with_modes(layers: Layers, candidate: Candidate) -> tuple[Problem, Schedule]:
    """Return a candidate's partition with recomputing as a mode, and its best schedule there.

    Each op runs as long and holds as much as in the candidate's own problem, in which what
    recomputes is part of the stages' amounts.

    Raises
    ------
    Fault
        If the checker disagrees.
    """
    problem = problem_with_recompute(layers, candidate.partition, candidate.shape)
    schedule = _in_modes(candidate.schedules[0], candidate.flags)
    if violations := check(problem, schedule):
        raise Fault(f"with recomputing as a mode, a plan is not valid: {violations[0]}")
    return problem, schedule


def bound_with_modes(problem: Problem, of_all: Bound | None, objective: Objective) -> Bound:
    """What no schedule of the problem is below: its closed forms, or what holds of all splits."""
    own = closed_form_bound(problem, objective)
    return own if of_all is None or of_all.value < own.value else of_all


def _in_modes(schedule: Schedule, flags: Flags) -> Schedule:
    def op_of(op: Op) -> Op:
        return op._replace(mode=int(flags[op.stage]))

    def item_of(item: Item | Unreadable) -> Item | Unreadable:
        if isinstance(item, Pair):
            return Pair(*map(op_of, members(item)))
        return op_of(item) if isinstance(item, Op) else item

    rows = (tuple(t._replace(item=item_of(t.item)) for t in row) for row in schedule.devices)
    return replace(schedule, devices=tuple(rows))
