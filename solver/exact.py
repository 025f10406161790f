"""The exact search: the finite model given to CP-SAT, its solutions checked as they come."""

from __future__ import annotations

import threading

from ortools.sat.python import cp_model

from pipesat.problem import Problem
from pipesat.result import Bound
from pipesat.solver.incumbent import Incumbent
from pipesat.solver.model.model import Model, build_model, model_is_exact
from pipesat.solver.model.size import model_size

SOURCE = "CP-SAT"
LARGEST_MODEL = 400_000  # constraints; beyond, nothing is found in minutes
MODEL_PER_SECOND = 8_000  # constraints that can be built and presolved in a part of each second
LARGEST_TIME = 1 << 52  # CP-SAT reports bounds as doubles: exact up to here
_POLL = 0.05  # seconds between looks at the clock and the stop flag
_RESERVE = 0.3  # seconds that CP-SAT may take to stop


def is_too_large(problem: Problem, seconds: float) -> bool:
    """Whether the model would be too large to be of use within so many seconds."""
    return model_size(problem) > min(LARGEST_MODEL, MODEL_PER_SECOND * seconds)


def search(
    problem: Problem, incumbent: Incumbent, *, workers: int, seed: int, stop: threading.Event
) -> str:
    """Improve an incumbent and its bound until proven, out of time or stopped; say what happened.

    Needs an incumbent: the model covers the schedules at least as good as it.
    """
    if incumbent.value is None or incumbent.bound is None:
        return "exact search: nothing to start from"
    if is_too_large(problem, incumbent.clock.left):
        return (
            f"exact search: left out, {problem.op_count} ops make too large a model for "
            f"{incumbent.clock.left:.0f} s"
        )
    if incumbent.value > LARGEST_TIME:
        return "exact search: left out, times beyond 2^52 are not exact in CP-SAT's reports"
    model = build_model(problem, incumbent.objective, incumbent.bound.value, incumbent.value)
    if incumbent.schedule is not None:
        model.hint(incumbent.schedule)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.catch_sigint_signal = False
    solver.parameters.max_time_in_seconds = max(0.01, incumbent.clock.left - _RESERVE)
    exact = model_is_exact(problem)

    def raise_bound(value: float) -> None:
        if exact:
            incumbent.raise_bound(Bound(model.unit * round(value), SOURCE))

    solver.best_bound_callback = raise_bound
    solutions = _Solutions(model, incumbent)
    status = _solve(solver, model, solutions, incumbent, stop)
    report = _conclude(solver, status, model, incumbent, exact)
    if solutions.rejected:
        report += f", {solutions.rejected} solutions refused by the checker"
    return report if exact else f"{report}; the model is stricter than the problem, no bound taken"


def _solve(
    solver: cp_model.CpSolver,
    model: Model,
    solutions: _Solutions,
    incumbent: Incumbent,
    stop: threading.Event,
) -> cp_model.CpSolverStatus:
    """Run CP-SAT in a thread of its own, so that signals and the clock are heard meanwhile."""
    outcome: list[cp_model.CpSolverStatus] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(solver.solve(model.cp, solutions))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="cp-sat", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL)
        if stop.is_set() or incumbent.proven or solutions.failure or not incumbent.clock.left:
            solver.stop_search()
    for error in (*failure, *solutions.failure):
        raise error
    return outcome[0]


def _conclude(
    solver: cp_model.CpSolver,
    status: cp_model.CpSolverStatus,
    model: Model,
    incumbent: Incumbent,
    exact: bool,
) -> str:
    """Take over the proof, if there is one, and say how the search ended."""
    name = solver.status_name(status)
    if status == cp_model.INFEASIBLE and exact:
        incumbent.faults.append("CP-SAT calls the model infeasible against a checked schedule")
    elif status in (cp_model.OPTIMAL, cp_model.FEASIBLE) and exact:
        bound = model.unit * round(solver.best_objective_bound)
        incumbent.raise_bound(Bound(bound, SOURCE))
    return f"exact search: {name}, {len(model.cp.proto.constraints)} constraints"


class _Solutions(cp_model.CpSolverSolutionCallback):
    """Offers every solution to the incumbent; an exception is kept for the caller."""

    def __init__(self, model: Model, incumbent: Incumbent) -> None:
        super().__init__()
        self.model, self.incumbent = model, incumbent
        self.failure: list[BaseException] = []
        self.rejected = 0

    def on_solution_callback(self) -> None:
        try:
            if self.incumbent.offer(self.model.order(self.value), SOURCE) is None:
                self.rejected += 1
        except BaseException as error:
            self.failure.append(error)
