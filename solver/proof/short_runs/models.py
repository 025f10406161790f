"""The models of short runs: those of few microbatches, with what is known of shorter runs."""

from __future__ import annotations

from ortools.sat.python import cp_model

from pipesat.core.problem import Problem
from pipesat.solver.model.constraints import add_constraints
from pipesat.solver.model.left_out import one_by_one
from pipesat.solver.model.model import Model, build_model
from pipesat.solver.model.times import model_times
from pipesat.solver.model.variables import Variables, add_variables
from pipesat.solver.proof.short_runs.run_bounds import RunBounds


def makespan_model(few: Problem, known: RunBounds, upper: int, *, staircase: bool = True) -> Model:
    """Model f(n) for the n microbatches of ``few``, at most ``upper``.

    After the start of microbatch k, the n - k last ones take at least f(n - k).
    """
    n = few.routes[0].microbatches
    model = build_model(few, "makespan", known.makespan(n), upper, staircase=staircase)
    starts = _starts_with_known_steps(model.variables, known)
    for k in range(1, n):
        rest = model.variables.times.at_least(known.makespan(n - k))
        model.cp.add(model.value - starts[k] >= rest)
    return model


def step_model(few: Problem, known: RunBounds, upper: int, *, staircase: bool = True) -> Variables:
    """Model e(n) for the n + 1 microbatches of ``few``, at most ``upper``.

    The horizon leaves time to run everything one op after the other once microbatch n has started,
    in the order of whatever schedule attains e(n): it cuts off none.
    """
    n = few.routes[0].microbatches - 1
    all_of_them = few.routes[0].microbatches * one_by_one(few)
    times = model_times(few, upper + all_of_them)
    horizon = times.at_most(upper) + -(-all_of_them // times.unit)
    v = add_variables(cp_model.CpModel(), few, times, horizon)
    add_constraints(v, staircase=staircase)
    starts = _starts_with_known_steps(v, known)
    v.cp.add(starts[0] == 0)
    v.cp.add_linear_constraint(starts[n], times.at_least(known.step(n)), times.at_most(upper))
    v.cp.minimize(starts[n])
    return v


def _starts_with_known_steps(v: Variables, known: RunBounds) -> list[cp_model.IntVar]:
    """Add the known steps; return the starts of the route's first forwards."""
    starts = [task.start for task in v.tasks["F"][v.problem.routes[0].stages[0]]]
    for n, step in known.sharp_steps(len(starts) - 1):
        for earlier, later in zip(starts, starts[n:], strict=False):
            v.cp.add(later - earlier >= v.times.at_least(step))
    return starts
