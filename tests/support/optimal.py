"""Solving a CP-SAT model of ours to its optimum, by one worker."""

from __future__ import annotations

from ortools.sat.python import cp_model


def solved(cp: cp_model.CpModel) -> cp_model.CpSolver:
    """Return the solver with the optimum, without which the test fails."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(cp) == cp_model.OPTIMAL
    return solver
