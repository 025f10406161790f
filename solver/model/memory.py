"""Memory in whole models: a staircase where one stage's backwards free it, else order literals.

**Staircase.** With the microbatch order fixed, memory before forward k depends on two counts: b
backwards and j weight gradients have ended. With a = held_after_F and w = held_after_B <= a,
forward k fits iff

    a (k + 1 - b) + w (b - j) <= slack.

The pairs (j, b) that fit form a staircase: for each j a least b, falling as j grows. Forward k
waits for the two ops of one chosen stair; whatever the choice, it waits for the lowest of each.
That forward k has no backward before it holds unless all its way takes no time; memory counts at
instants, and such a forward may share one with its own backward. Order literals know that case.

**Order literals.** Memory can exceed the capacity only where an op takes some: at the start of an
F, and at the start of a backward that holds more than its F has left. For each such event, every
other op of the device is before it or after it; one linear inequality adds up what those before it
have taken and freed. Microbatch order and data flow decide most pairs beforehand; the rest get a
literal each, in chains (if an op is before the event, so are its predecessors). An op and an event
that may both have length zero can share an instant; the op then counts as before, whichever waits
for the other: the inequality is that of the instant's end.
"""

from __future__ import annotations

from collections.abc import Iterator

from ortools.sat.python import cp_model
from ortools.sat.python.cp_model import IntVar

from pipesat.bounds.feasibility import passes_in_an_instant
from pipesat.problem.problem import Problem
from pipesat.problem.variants import variants
from pipesat.solver.model.alternatives import Literal
from pipesat.solver.model.before import Before, changed_by, taken_at
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.turns import follows, precedes
from pipesat.solver.model.variables import Task, Variables, splits


def staircase_applies(problem: Problem, device: int) -> bool:
    """One stage whose way takes time, a fixed backward mode, no memory taken at the start of B.

    And microbatches that are not a list: a stair counts them.
    """
    stages = problem.stages_on[device]
    ordinary = problem.plain and problem.chains_only
    if not ordinary or len(stages) != 1 or passes_in_an_instant(problem, stages[0]):
        return False
    stage = problem.stages[stages[0]]
    mode = splits(problem, stages[0], gains(problem))
    return mode is False or (mode is True and stage.held_after_B <= stage.held_after_F)


def stairs(a: int, w: int, slack: int, forward: int) -> list[tuple[int, int]]:
    """Minimal pairs (weight gradients ended, backwards ended) before forward number ``forward``.

    Empty if no pair with at most ``forward`` backwards fits; ``[(0, 0)]`` if nothing is needed.
    With w = 0, as where backwards are fused, weight gradients free nothing: there is one stair.
    """
    result: list[tuple[int, int]] = []
    for j in range(forward + 1):
        missing = a * (forward + 1) - slack - w * j
        if missing <= j * (a - w):
            b = j
        elif a == w:
            continue
        else:
            b = -(-missing // (a - w))
        if b > forward:
            continue
        if not result or b < result[-1][1]:
            result.append((j, b))
        if b == j or not w:
            break
    return result


def add_memory_by_staircase(v: Variables, device: int) -> None:
    """Make every forward wait for one stair."""
    (number,) = v.problem.stages_on[device]
    stage, slack = v.problem.stages[number], v.problem.devices[device].slack
    backwards, weights = v.tasks["B"][number], v.tasks["W"][number]
    a, w = stage.held_after_F, stage.held_after_B if weights else 0
    if not a or slack is None:
        return
    for k, forward in enumerate(v.tasks["F"][number]):
        steps = stairs(a, w, slack, k)
        if not steps:
            v.cp.add_bool_or([])  # no memory for this forward at all
            return
        lowest_w, lowest_b = min(j for j, _ in steps), min(b for _, b in steps)
        if lowest_b:
            v.cp.add(forward.start >= backwards[lowest_b - 1].end)
        if weights and lowest_w:
            v.cp.add(forward.start >= weights[lowest_w - 1].end)
        if len(steps) == 1:
            continue
        choices: list[IntVar] = []
        for j, b in steps:
            needed = [backwards[b - 1]] if b > lowest_b else []
            if j > lowest_w:
                needed.append(weights[j - 1])
            choice = v.cp.new_bool_var("")
            for task in needed:
                v.cp.add(forward.start >= task.end).only_enforce_if(choice)
            choices.append(choice)
        v.cp.add_exactly_one(choices)


def add_memory_by_order(v: Variables, device: int) -> None:
    """Bound memory at every event of the device."""
    if _always_fits(v.problem, device):
        return
    literals = _Before(v)
    for stage in v.problem.stages_on[device]:
        for task in v.tasks["F"][stage]:
            _bound_at(v, device, literals, task)
    add_memory_of_backwards(v, device, literals)


def add_memory_of_backwards(v: Variables, device: int, literals: _Before | None = None) -> None:
    """Bound memory at every backward of the device that takes some."""
    literals = literals or _Before(v)
    for stage in v.problem.stages_on[device]:
        for task in v.tasks["B"][stage]:
            _bound_at(v, device, literals, task)


def _always_fits(problem: Problem, device: int) -> bool:
    slack = problem.devices[device].slack
    most = sum(
        max(v.most for v in variants(problem, stage, problem.class_of(stage, microbatch)))
        for stage in problem.stages_on[device]
        for microbatch in range(problem.microbatches[stage])
    )
    return slack is None or most <= slack


def _bound_at(v: Variables, device: int, before: _Before, event: Task) -> None:
    """``held before the event + what it takes <= slack``, wherever it takes some."""
    slack = v.problem.devices[device].slack
    if slack is None:
        return
    for held, condition in taken_at(event, v.pairs):
        for stage in v.problem.stages_on[device]:
            for m in range(v.problem.microbatches[stage]):
                for change, literal in _changes(v, before, event, stage, m):
                    held.add(change, literal)
        held.at_most(v.cp, slack, condition)


def _changes(
    v: Variables, before: _Before, event: Task, stage: int, microbatch: int
) -> Iterator[tuple[int, Literal]]:
    """Yield what a microbatch has taken and freed on a stage before the event."""
    f = v.tasks["F"][stage][microbatch]
    if f is not event:
        yield from changed_by(v.cp, f, before(f, event))
    if not v.tasks["B"][stage]:
        return
    b = v.tasks["B"][stage][microbatch]
    ended: Literal = True
    if b is not event:
        ended = before(b, event)
        yield from changed_by(v.cp, b, ended)
    if ended is not False and v.split[stage][microbatch] is not False:
        weight = v.tasks["W"][stage][microbatch]
        yield from changed_by(v.cp, weight, before(weight, event))


class _Before(Before[Task]):
    """The literals of one device's tasks."""

    def __init__(self, v: Variables) -> None:
        super().__init__(v.cp, v.pairs)
        self.v = v

    def fixed(self, x: Task, event: Task) -> Literal | None:
        """What microbatch order and data flow say."""
        alike = x.phase != "W" and x.name[:2] == event.name[:2]
        if alike and (turn := self._turn(x, event)) is not None:
            shared = self.share(x, event) or self.choices.together(x, event)
            return None if shared else turn
        if precedes(self.v.problem, x.name, event.name):
            sure = x.present is True and not self.choices.together(x, event)
            return True if sure else None
        turned = precedes(self.v.problem, event.name, x.name)
        return False if turned and not self.share(x, event) else None

    def share(self, x: Task, event: Task) -> bool:
        """Whether both may have length zero, and so run in one instant."""
        return all(any(not one.length for one in task.alternatives) for task in (x, event))

    def _turn(self, x: Task, event: Task) -> Literal | None:
        """Literal for "x's microbatch comes first", where all stages have one order."""
        route = self.v.problem.route_of
        if route[x.stage] != route[event.stage]:
            return None
        return self.v.turns.first(route[x.stage], x.microbatch, event.microbatch)

    def link(self, x: Task, event: Task, literal: cp_model.IntVar) -> None:
        """What is before x is before the event too; x is before what comes after the event."""
        v = self.v
        if (turn := self._turn(x, event)) is not None:
            if x.present is True and follows(v.problem, x.name, event.name):
                v.cp.add_bool_or([~turn, literal, *self.choices.together(x, event)])
            if follows(v.problem, event.name, x.name) and not self.share(x, event):
                v.cp.add_bool_or([turn, ~literal])
        if id(x) in v.earlier and x.present is True:
            earlier = self(v.earlier[id(x)], event)
            if earlier is False:
                v.cp.add_bool_or([~literal])
            elif earlier is not True:
                v.cp.add_implication(literal, earlier)
        if (before_event := v.earlier.get(id(event))) is not None:
            if x is before_event:  # they may run as a pair
                return
            sooner = self(x, before_event)
            if sooner is True:
                v.cp.add_bool_or([literal])
            elif sooner is not False:
                v.cp.add_implication(sooner, literal)
