"""Bounds of long runs from stretches of them, with what is left to do counted.

With X_k the start of microbatch k's first F, and D_k the work that one device has not begun then of
the microbatches shortly before k (its *debt*), X_k + D_k grows by some least amount from k to k + n
(docs/proofs/search.md, Stretches). Models of stretches say by how much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ortools.sat.python import cp_model

from pipesat.problem.problem import Problem
from pipesat.problem.rules import round_trip
from pipesat.schedule.schedule import Objective
from pipesat.solver.model.constraints import add_constraints
from pipesat.solver.model.left_out import one_by_one, tail_after, with_microbatches
from pipesat.solver.model.times import model_times
from pipesat.solver.model.variables import Variables, add_variables

Part: TypeAlias = Literal["first", "step", "last", "pace"]
"""The first microbatches, some in the middle, the last ones, or a pace (docs/proofs/search.md)."""


@dataclass(frozen=True)
class Debt:
    """Work of a device that has not begun, of as many microbatches before the present one."""

    device: int
    before: int

    def most(self, problem: Problem) -> int:
        """Return what it is at most."""
        return self.before * one_by_one(problem, self.device)

    def least_step(self, problem: Problem, n: int = 1) -> int:
        """Return what a step of n microbatches takes at least."""
        first = problem.stages[problem.routes[0].stages[0]]
        slack = self._slack_alone(problem)
        if slack is None or (self.before + 1) * first.held_after_F <= slack:
            return -self.most(problem)
        one = first.F + first.least_backward_work - first.W * first.may_split
        return n * one

    def least_ends(self, problem: Problem) -> tuple[int, int, int]:
        """Return a number of first microbatches, and what these, and the last one, take at least.

        As many as fit have come in before the first backward; the last one goes all the way, while
        the device owes no more than memory allows.
        """
        first = problem.stages[problem.routes[0].stages[0]]
        slack, a = self._slack_alone(problem), first.held_after_F
        if slack is None or not (a and first.F and first.shortest_backward):
            return 0, 0, 0
        one, way = (
            first.F + first.least_backward_work,
            round_trip(problem, problem.routes[0].stages[0]),
        )
        n, beside, owed = slack // a, slack - a, 0
        longest = max(first.may_split * (first.B + first.W), first.may_fuse * first.BW)
        for backwards in range(min(self.before, max(0, beside) // a) + 1):
            pending = self.before - backwards
            if first.held_after_B:
                pending = min(pending, (beside - backwards * a) // first.held_after_B)
            owed = max(owed, backwards * longest + max(0, pending) * first.W)
        idle = max(0, first.F + way - n * first.F)
        begun = (n, n * one + idle) if n <= self.before else (0, 0)
        return *begun, max(one, one + way - owed)

    def _slack_alone(self, problem: Problem) -> int | None:
        """Return the memory for the first stage, if it is limited and has the device for itself."""
        alone = problem.stages_on[self.device] == problem.routes[0].stages[:1]
        return problem.devices[self.device].slack if alone else None


@dataclass(frozen=True)
class StretchModel:
    """All stretches of at most some value; ``beyond`` follows if there are none."""

    variables: Variables
    value: cp_model.LinearExprT
    beyond: int


def stretch_model(
    problem: Problem,
    debt: Debt,
    part: Part,
    n: int,
    objective: Objective,
    least: int,
    most: int,
    devices: frozenset[int],
) -> StretchModel | None:
    """Model a stretch of n microbatches whose value is in ``[least, most]`` (time units).

    ``devices`` are those that are kept, the first stage's and the debt's among them. ``None`` if
    times would have to be rounded.
    """
    before = 0 if part == "first" else debt.before
    few = with_microbatches(problem, [before + n + (part != "last")])
    (total,), one = few.microbatches[:1], one_by_one(few)
    longest = (before + total) * one + max(0, most) + debt.most(problem) + 1
    times = model_times(few, longest, objective)
    if not times.exact:
        return None
    unit = times.unit
    v = add_variables(cp_model.CpModel(), few, times, longest // unit + 1, devices)
    add_constraints(v)
    entry = [task.start for task in v.tasks["F"][few.routes[0].stages[0]]]
    # one unit more: what has begun before the stretch is not moved into it by leaving out idle time
    v.cp.add(entry[before] == (before * one // unit + 1 if before else 0))
    begin = entry[before] + _debt(v, debt, entry[before], before)
    least, most = -(-least // unit), most // unit
    value: cp_model.LinearExprT
    if part == "pace":
        value = v.cp.new_int_var(least, most, "pace")
        for j, k in enumerate(range(before + 1, before + n + 1), start=1):
            step = entry[k] + _debt(v, debt, entry[k], k) - begin
            v.cp.add(n * step < j * (value + 1))
    else:
        k = before + n
        last = part == "last"
        end = end_of(v, objective) if last else entry[k] + _debt(v, debt, entry[k], k)
        value = end - begin
        v.cp.add_linear_constraint(value, least, most)
    return StretchModel(v, value, (most + 1) * unit)


def _debt(v: Variables, debt: Debt, now: cp_model.IntVar, k: int) -> cp_model.LinearExpr:
    """Count what has not begun when microbatch k enters, of those before it."""
    counted = [
        (task, one.length, one.chosen)
        for task in v.on_device(debt.device)
        for one in task.alternatives
        if k - debt.before <= task.microbatch < k and one.length and one.chosen is not False
    ]
    terms: list[cp_model.LinearExprT] = [0]
    for task, amount, chosen in counted:
        waits = v.cp.new_bool_var("")
        v.cp.add(task.start >= now).only_enforce_if(waits)
        begun: list[cp_model.LiteralT] = [~waits]
        if not isinstance(chosen, bool):
            v.cp.add_implication(waits, chosen)
            begun.append(chosen)
        v.cp.add(task.start < now).only_enforce_if(begun)
        terms.append(amount * waits)
    return cp_model.LinearExpr.sum(terms)


def end_of(v: Variables, objective: Objective) -> cp_model.IntVar:
    """When all has ended; for the span, all on the device of the route's first stage."""
    problem, end = v.problem, v.cp.new_int_var(0, v.horizon, "end")
    first = problem.stages[problem.routes[0].stages[0]].device
    for stage in v.kept:
        if objective == "span" and problem.stages[stage].device != first:
            continue
        for phase in ("B", "W"):
            for task in v.tasks[phase][stage]:
                end_of = v.cp.add(task.end <= end)
                if not isinstance(task.present, bool):
                    end_of.only_enforce_if(task.present)
        if objective == "makespan" and (tail := tail_after(problem, v.kept, stage)):
            v.cp.add(v.tasks["B"][stage][-1].end + tail // v.times.unit <= end)
    return end
