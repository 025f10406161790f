"""The proving half of the search: relaxations of growing size, up to the whole model; short runs.

A relaxation keeps the ops and the memory of some devices and lets all others never be busy. Its
optimum, and any bound CP-SAT proves for it, bounds the whole problem. Relaxations of few devices
are small, and devices that lie apart often prove as much as all of them.
"""

from __future__ import annotations

import math
import threading

from ortools.sat.python import cp_model

from pipesat.core.problem import Problem
from pipesat.core.result import Bound
from pipesat.solver.attempts import Attempt, Attempts, Devices
from pipesat.solver.cpsat import FOUND, PROOFS, Runner, proven_bound, whole
from pipesat.solver.incumbent import Incumbent
from pipesat.solver.model.model import Model, build_model, model_is_exact
from pipesat.solver.model.size import CONSTRAINTS_PER_SECOND, model_size
from pipesat.solver.model.staircase import staircase_applies
from pipesat.solver.search_parts import ALL_PARTS, Parts
from pipesat.solver.short_runs.search import ShortRuns, is_long

SOURCE = "CP-SAT"
LARGEST_MODEL = 400_000  # constraints; beyond, nothing is found in minutes
_WAIT = 0.1  # seconds for another thread's short run, if there is nothing else to do
_SHORT_RUNS = 3.0  # their time, as a multiple of that for relaxations, which prove less there


class ProofSearch:
    """Raises an incumbent's bound, relaxation by relaxation; several threads may take steps.

    What they share and change is in ``attempts`` and in ``short_runs``, each behind its own lock;
    a bound of CP-SAT's that a checked schedule refutes ends both.
    """

    def __init__(
        self,
        problem: Problem,
        incumbent: Incumbent,
        *,
        seed: int,
        parts: Parts = ALL_PARTS,
    ) -> None:
        self.problem, self.incumbent = problem, incumbent
        self.seed, self.parts = seed, parts
        self.all = frozenset(d for d, stages in enumerate(problem.stages_on) if stages)
        singles = self._tightest_first() if parts.relaxations else []
        self.attempts = Attempts(self.all, singles, problem.op_count, seed=seed, fits=self._fits)
        exact = model_is_exact(problem)
        if not exact:
            self.attempts.end("the model is stricter than the problem: no proof tried")
        self.short_runs = self._short_runs() if exact else None
        self.one_short_run = threading.Lock()
        self.spent = Spent()

    @property
    def report(self) -> str:
        """What it did, in a few words."""
        tried = [f"proofs: {self.attempts.tried} relaxations"]
        if self.short_runs is not None:
            tried.append(f"{self.short_runs.tried} short runs")
        why_ended = self.attempts.why_ended
        return ", ".join(tried if why_ended is None else [*tried, why_ended])

    @property
    def finished(self) -> bool:
        """Whether nothing is left to try."""
        if not self.incumbent.trusts(PROOFS):
            return True
        ended = self.attempts.why_ended is not None
        return ended and (self.short_runs is None or self.short_runs.finished)

    def step(self, runner: Runner) -> None:
        """Solve one model, of a short run or of a relaxation."""
        exhausted = self.attempts.why_ended is not None
        short = self.short_runs
        if short is not None and not short.finished:
            its_turn = exhausted or short.spent <= _SHORT_RUNS * self.spent.time
            if its_turn and self.one_short_run.acquire(timeout=_WAIT if exhausted else 0):
                try:
                    short.step(runner)
                finally:
                    self.one_short_run.release()
                return
        if not exhausted:
            before = runner.spent
            attempt = self.attempts.take(self.incumbent.bound_value or 0)
            if attempt is not None:
                self._try(attempt, runner)
            self.spent.add(runner.spent - before)

    def _short_runs(self) -> ShortRuns | None:
        makespan = self.incumbent.objective == "makespan"
        if not makespan or not self.parts.short_runs or not is_long(self.problem):
            return None
        return ShortRuns(
            self.problem, self.incumbent, seed=self.seed, staircase=self.parts.staircase
        )

    def _tightest_first(self) -> list[int]:
        """Devices by the number of microbatches that their memory admits."""

        def admitted(device: int) -> float:
            room = self.problem.devices[device].room
            held = sum(self.problem.stages[s].held_after_F for s in self.problem.stages_on[device])
            return math.inf if room is None or not held else room / held

        return sorted(self.all, key=lambda d: (admitted(d), d))

    def _fits(self, devices: Devices) -> bool:
        size = model_size(self.problem, devices)
        return size <= min(LARGEST_MODEL, CONSTRAINTS_PER_SECOND * self.incumbent.clock.left)

    def _try(self, attempt: Attempt, runner: Runner) -> None:
        incumbent = self.incumbent
        bound, value = incumbent.bound_value, incumbent.value
        if bound is None or value is None:
            return
        target = min(value, bound + round(self.attempts.share_of(attempt) * (value - bound)))
        whole_problem = attempt.devices == self.all
        model = build_model(
            self.problem,
            incumbent.objective,
            bound,
            target,
            attempt.devices,
            staircase=self.parts.staircase,
        )
        solutions = Solutions(model, incumbent) if whole_problem else None
        solver, status = runner.solve(
            model.cp,
            limit=attempt.limit,
            seed=self.seed,
            strong=all(staircase_applies(self.problem, device) for device in attempt.devices),
            on_solution=solutions,
            on_bound=lambda found: self._raise(attempt, model.bound(whole(found))),
        )
        if solutions is not None and solutions.failure:
            raise solutions.failure[0]
        reach = None
        if status == cp_model.INFEASIBLE:
            self._raise(attempt, model.beyond)
        elif status in FOUND:
            self._raise(attempt, model.bound(proven_bound(solver)))
            reach = model.bound(round(solver.objective_value))
        self.attempts.learn(
            attempt,
            reach=reach,
            infeasible=status == cp_model.INFEASIBLE,
            raised=(incumbent.bound_value or 0) > bound,
            proven=incumbent.proven,
        )

    def _raise(self, attempt: Attempt, bound: int) -> None:
        source = SOURCE
        if attempt.devices != self.all:
            names = ", ".join(self.problem.device_name(d) for d in sorted(attempt.devices))
            source = f"{SOURCE} on {names} alone"
        self.incumbent.raise_bound(Bound(bound, source), PROOFS)


class Spent:
    """Time that all lanes together have spent."""

    def __init__(self) -> None:
        self.time = 0.0
        self._lock = threading.Lock()

    def add(self, time: float) -> None:
        """Count more of it."""
        with self._lock:
            self.time += time


class Solutions(cp_model.CpSolverSolutionCallback):
    """Offers every solution of the whole model to the incumbent; keeps an exception for later."""

    def __init__(self, model: Model, incumbent: Incumbent) -> None:
        super().__init__()
        self.model, self.incumbent = model, incumbent
        self.failure: list[BaseException] = []
        self.rejected = 0

    def on_solution_callback(self) -> None:
        """Take a solution over (CP-SAT calls this)."""
        try:
            if self.incumbent.offer(self.model.order(self.value), SOURCE) is None:
                self.rejected += 1
        except BaseException as error:
            self.failure.append(error)
