"""One CP-SAT solve at a time, with the settings that every part of the search shares."""

from __future__ import annotations

import math
from collections.abc import Callable

from ortools.sat.python import cp_model

from pipesat.solver.run.clock import Clock

_OVERHEAD = 0.01  # deterministic time of building a small model
PROOFS = "CP-SAT's proofs"
"""Origin of all bounds that CP-SAT proves: one that is refuted ends them all."""
FOUND = (cp_model.OPTIMAL, cp_model.FEASIBLE)


def new_solver(seed: int, workers: int = 1) -> cp_model.CpSolver:
    """Return a solver without probing, which costs our models a good part of their time.

    With it, many windows do not even come back with the schedule that they were given as a hint.
    """
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.catch_sigint_signal = False
    solver.parameters.cp_model_probing_level = 0
    return solver


def proven_bound(solver: cp_model.CpSolver) -> int:
    """Return the bound of a model's objective that was proven, 0 if there is none yet.

    CP-SAT reports it as a double, which is exact for all numbers that our models have
    (:mod:`pipesat.solver.model.times`).
    """
    return whole(solver.best_objective_bound)


def whole(bound: float) -> int:
    """Return a bound that CP-SAT reports as the integer it stands for; 0 if it says nothing."""
    return round(bound) if math.isfinite(bound) and bound > 0 else 0


class Runner:
    """Runs models one after the other on one thread; :meth:`interrupt` ends the present one.

    ``spent`` is the time it took, in the clock's terms. A deterministic clock is limited by, and
    told, CP-SAT's own deterministic time.
    """

    def __init__(self, clock: Clock, workers: int = 1) -> None:
        self.clock, self.workers = clock, workers
        self.spent = 0.0
        self._running: cp_model.CpSolver | None = None

    def solve(
        self,
        model: cp_model.CpModel,
        *,
        limit: float,
        seed: int,
        strong: bool = False,
        dynamic: bool = False,
        linear: bool = True,
        on_solution: cp_model.CpSolverSolutionCallback | None = None,
        on_bound: Callable[[float], None] | None = None,
    ) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        """Solve within ``limit``, and within what is left on the clock.

        ``strong`` propagation of no-overlap proves chains at tight memory many times faster, and
        other models more slowly. ``dynamic`` precedences prove short runs faster still, but with
        them OR-Tools 9.15 aborts on some models with ops of length zero. Without ``linear``, models
        with optional intervals and memory over time are solved many times faster: their linear
        relaxation costs much and says little.
        """
        solver = new_solver(seed, self.workers)
        solver.parameters.use_strong_propagation_in_disjunctive = strong
        solver.parameters.use_dynamic_precedence_in_disjunctive = dynamic
        if not linear:
            solver.parameters.linearization_level = 0
        limit = max(0.01, min(limit, self.clock.left))
        if self.clock.deterministic:
            solver.parameters.max_deterministic_time = limit
        else:
            solver.parameters.max_time_in_seconds = limit
        if on_bound is not None:
            solver.best_bound_callback = on_bound
        self._running = solver
        try:
            status = solver.solve(model, on_solution)
        finally:
            self._running = None
        taken = solver.wall_time
        if self.clock.deterministic:
            taken = solver.response_proto.deterministic_time + _OVERHEAD
            self.clock.count(taken)
        self.spent += taken
        return solver, status

    def interrupt(self) -> None:
        """Stop the solve under way, if there is one."""
        if (solver := self._running) is not None:
            solver.stop_search()
