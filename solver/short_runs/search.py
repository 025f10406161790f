"""Longer and longer runs, each with what the shorter ones have proven."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from ortools.sat.python import cp_model

from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.result import Bound
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.solver.cpsat import FOUND, PROOFS, Runner, proven_bound
from pipesat.solver.fewer_microbatches import first_microbatches, with_microbatches
from pipesat.solver.incumbent import Incumbent
from pipesat.solver.model.size import CONSTRAINTS_PER_SECOND, model_size
from pipesat.solver.model.staircase import staircase_applies
from pipesat.solver.model.times import KINDS
from pipesat.solver.model.variables import Variables
from pipesat.solver.short_runs.known import Known
from pipesat.solver.short_runs.models import makespan_model, step_model

SOURCE = "CP-SAT on fewer microbatches"
_PER_DEVICE = 2  # a run is long if it has more microbatches per device
_FIRST_LIMIT = 1.0  # seconds for one model
_MORE_TIME = 3.0  # times as much from one round to the next
_PATIENCE = 3  # models of a kind in a row without an outcome that end it for this round

Kind: TypeAlias = Literal["step", "makespan"]
_KINDS: Final[tuple[Kind, ...]] = ("makespan", "step")


def is_long(problem: Problem) -> bool:
    """Whether a single route has many microbatches, whose memory may slow them down."""
    if len(problem.routes) > 1 or all(device.room is None for device in problem.devices):
        return False
    return problem.routes[0].microbatches > _PER_DEVICE * len(problem.devices)


class ShortRuns:
    """Raises the makespan's bound of a long run; see :func:`is_long`. Needs a schedule."""

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, seed: int, staircase: bool = True
    ) -> None:
        self.problem, self.incumbent, self.seed = problem, incumbent, seed
        self.staircase = staircase
        self.microbatches = problem.routes[0].microbatches
        devices = range(len(problem.devices))
        self.stairs = staircase and all(staircase_applies(problem, d) for d in devices)
        self.known = Known(problem)
        self.settled: set[tuple[Kind, int]] = set()
        self.limit = _FIRST_LIMIT
        self.spent = 0.0
        self.tried = 0
        self.finished = False
        self._attempts = self._longer_and_longer()

    def step(self, runner: Runner) -> None:
        """Solve the model of one short run, and raise the bound by what follows."""
        attempt = next(self._attempts, None)
        if attempt is None:
            self.finished = True
            return
        kind, n = attempt
        before = runner.spent
        settle = self._settle_step if kind == "step" else self._settle_makespan
        if settle(n, runner):
            self.settled.add(attempt)
        self.spent += runner.spent - before
        self.incumbent.raise_bound(Bound(self.known.makespan(self.microbatches), SOURCE), PROOFS)
        self.finished = self.finished or not self.incumbent.trusts(PROOFS)

    def _longer_and_longer(self) -> Iterator[tuple[Kind, int]]:
        """Yield runs of more and more microbatches; then what is not settled, with more time."""
        while ("makespan", self.microbatches) not in self.settled:
            before = self.tried, len(self.settled)
            patience = dict.fromkeys(_KINDS, _PATIENCE)
            for n in range(1, self.microbatches + 1):
                for kind in _KINDS:
                    longest = self.microbatches - (kind == "step")
                    if (kind, n) in self.settled or not patience[kind] or n > longest:
                        continue
                    yield kind, n
                    settled = (kind, n) in self.settled
                    patience[kind] = _PATIENCE if settled else patience[kind] - 1
                if not any(patience.values()):
                    break
            if before == (self.tried, len(self.settled)) and self.limit > self._left:
                return  # all models are too large for the time that is left
            self.limit *= _MORE_TIME

    def _settle_makespan(self, n: int, runner: Runner) -> bool:
        few = with_microbatches(self.problem, [n])
        if not self._fits(few):
            return False
        order = first_microbatches(self._schedule(), few)
        upper = time_order(few, order).makespan
        if self._meets(self.known.makespan(n), upper, f"the makespan of {n} microbatches"):
            return True
        model = makespan_model(few, self.known, upper, staircase=self.staircase)
        solver, status = self._solve(model.variables, runner)
        if status == cp_model.INFEASIBLE:
            self._refute(upper + 1, f"the makespan of {n} microbatches", upper)
            return False
        self.known.learn_makespan(n, model.bound(proven_bound(solver)))
        if status in FOUND and n == self.microbatches:
            self.incumbent.offer(model.order(solver.value), SOURCE)
        return status == cp_model.OPTIMAL

    def _settle_step(self, n: int, runner: Runner) -> bool:
        upper = _least_step(self.problem, self._schedule(), n)
        if self._meets(self.known.step(n), upper, f"the step of {n} microbatches"):
            return True
        few = with_microbatches(self.problem, [n + 1])
        if not self._fits(few):
            return False
        v = step_model(few, self.known, upper, staircase=self.staircase)
        solver, status = self._solve(v, runner)
        if status == cp_model.INFEASIBLE:
            self._refute(upper + 1, f"the step of {n} microbatches", upper)
            return False
        self.known.learn_step(n, v.times.bound(proven_bound(solver)))
        return status == cp_model.OPTIMAL

    def _fits(self, few: Problem) -> bool:
        """Whether a model can be built in the time that it may take."""
        return model_size(few) <= CONSTRAINTS_PER_SECOND * min(self.limit, self._left)

    @property
    def _left(self) -> float:
        return self.incumbent.clock.left

    def _schedule(self) -> Schedule:
        if self.incumbent.schedule is None:
            raise ValueError("short runs need a schedule to start from")
        return self.incumbent.schedule

    def _meets(self, bound: int, value: int, what: str) -> bool:
        if bound > value:
            self._refute(bound, what, value)
        return bound == value

    def _refute(self, bound: int, what: str, value: int) -> None:
        """Stop, and drop what CP-SAT has proven: a checked schedule is better than it allows."""
        self.incumbent.refute(PROOFS, Bound(bound, SOURCE), what, value)
        self.finished = True

    def _solve(
        self, v: Variables, runner: Runner
    ) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        """Solve a model; see :meth:`Runner.solve` for ``dynamic`` and ops of length zero."""
        dynamic = self.stairs and all(min(v.times.duration[kind]) > 0 for kind in KINDS)
        solver, status = runner.solve(
            v.cp,
            limit=self.limit,
            seed=self.seed,
            strong=self.stairs and not dynamic,
            dynamic=dynamic,
        )
        self.tried += 1
        return solver, status


def _least_step(problem: Problem, schedule: Schedule, n: int) -> int:
    """Return the least step of n + 1 microbatches in a schedule."""
    first = problem.routes[0].stages[0]
    starts = sorted(
        timed.start
        for _, timed in schedule
        if isinstance(timed.item, Op) and (timed.item.stage, timed.item.kind) == (first, "F")
    )
    return min(later - earlier for earlier, later in zip(starts, starts[n:], strict=False))
