"""Questions whether a schedule of at most some length exists; "no" is a bound."""

from __future__ import annotations

from ortools.sat.python import cp_model

from pipesat.core.claims import Bound
from pipesat.problem.problem import Problem
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import PROOFS, Runner, Share


class Questions:
    """Raises an incumbent's bound by questions for a share of the gap; "no" is a bound."""

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, runner: Runner, seed: int
    ) -> None:
        self.problem, self.incumbent, self.runner, self.seed = problem, incumbent, runner, seed
        self.tried = self.better = self.refuted = 0

    def solve(
        self, cp: cp_model.CpModel, limit: float
    ) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        """Solve a model within so many seconds."""
        self.tried += 1
        return self.runner.solve(
            cp, limit=limit, seed=self.seed + self.tried, strong=True, linear=False
        )

    def refute(self, target: int, share: Share, source: str) -> None:
        """There is no schedule as short as that."""
        self.refuted += 1
        self.incumbent.raise_bound(Bound(target + 1, source), PROOFS)
        share.refuted()
