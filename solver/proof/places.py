"""Bounds from which class stands at which place of the one order of a chain's stages."""

from __future__ import annotations

import math
from collections import deque

from ortools.sat.python import cp_model

from pipesat.core.claims import Bound
from pipesat.problem.problem import Problem
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import FOUND, PROOFS, Runner, Share
from pipesat.solver.model.places import places_apply, places_model

SOURCE = "CP-SAT on places of microbatches"
_LIMIT, _MORE_TIME = 15.0, 1.5  # seconds of the first attempts; from one round to the next
_SHARE, _MORE, _LESS = 0.2, 1.4, 0.6  # of the gap that is asked for, and its change
_FEWEST_OPS = 200  # of fewer, the whole model says more


class PlacesProofs:
    """Raises the makespan's bound where ``places_apply``; for one lane at a time."""

    def __init__(self, problem: Problem, incumbent: Incumbent, *, seed: int) -> None:
        self.problem, self.incumbent, self.seed = problem, incumbent, seed
        last = len(problem.stages) - 1
        kept = dict.fromkeys(((0,), (0, last), (last,), tuple(range(last + 1))))
        self.queue: deque[tuple[int, ...]] = deque(kept)
        self.share = Share(
            _SHARE, _LIMIT, more_by=_MORE, less_by=_LESS, longer_by=_MORE_TIME, longest=math.inf
        )
        self.spent, self.tried = 0.0, 0

    @staticmethod
    def apply(problem: Problem, incumbent: Incumbent) -> bool:
        """Whether they say anything of a problem and its objective."""
        long = problem.op_count >= _FEWEST_OPS
        return long and incumbent.objective == "makespan" and places_apply(problem)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to try."""
        return not self.queue

    def step(self, runner: Runner) -> None:
        """Ask whether a schedule closes a share of the gap; if not, that is a bound."""
        bound, value = self.incumbent.bound.value, self.incumbent.value
        if value is None or bound >= value:
            return
        before = runner.spent
        upper = self.share.target(bound, value)
        kept = self.queue[0]
        model = places_model(self.problem, kept, upper)
        _, status = runner.solve(model.cp, limit=self.share.limit, seed=self.seed)
        self.spent += runner.spent - before
        self.tried += 1
        if status == cp_model.INFEASIBLE:
            self.incumbent.raise_bound(Bound(model.beyond, SOURCE), PROOFS)
            self.share.refuted()
            return
        self.queue.rotate(-1)
        if status in FOUND:
            if self.share.share <= self.share.least:
                self.queue.remove(kept)
            self.share.less()
            return
        if self.share.in_vain(of=len(self.queue)):
            self.share.less()
