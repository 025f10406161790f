"""The proving half of the search: relaxations of growing size, up to the whole model; short runs.

A relaxation keeps the ops and the memory of some devices and lets all others never be busy. Its
optimum, and any bound CP-SAT proves for it, bounds the whole problem. Relaxations of few devices
are small, and devices that lie apart often prove as much as all of them.
"""

from __future__ import annotations

import math
import random
import threading
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from ortools.sat.python import cp_model

from pipesat.problem import Problem
from pipesat.result import Bound
from pipesat.solver.cpsat import FOUND, Runner
from pipesat.solver.incumbent import Incumbent
from pipesat.solver.model.model import Model, build_model, model_is_exact
from pipesat.solver.model.size import CONSTRAINTS_PER_SECOND, model_size
from pipesat.solver.model.staircase import staircase_applies
from pipesat.solver.parts import ALL_PARTS, Parts
from pipesat.solver.short_runs.search import ShortRuns, is_long

SOURCE = "CP-SAT"
LARGEST_MODEL = 400_000  # constraints; beyond, nothing is found in minutes
LARGEST_TIME = 1 << 52  # CP-SAT reports bounds as doubles: exact up to here
_FIRST_LIMIT = 1.0  # seconds for one device
_WHOLE = 4.0  # times as much for the whole model
_MORE_TIME = 1.5  # from one round of attempts to the next
_DRAWS = 3  # relaxations per round
_MOST_SKIPPED = 100  # attempts in a row that could not help, or were too large
_SHARE = 0.25  # of the gap that a relaxation is asked to close at a time, at first
_SHARES = (0.03, 0.5)  # least and largest
_MORE, _LESS = 1.4, 0.7  # its change after a proof, and after an attempt without an outcome
_WAIT = 0.1  # seconds for another thread's short run, if there is nothing else to do
_SHORT_RUNS = 3.0  # their time, as a multiple of that for relaxations, which prove less there
_OPS_PER_ROUND = 400  # rounds between two attempts at the whole model, per so many ops

Devices: TypeAlias = frozenset[int]


@dataclass(frozen=True)
class Attempt:
    """A relaxation that is worth a try.

    It asks for a schedule of the kept devices whose objective is at most ``bound + share (value -
    bound)``: if there is none, that is the new bound. With share 1 it looks for the optimum,
    with ``None`` it takes the share that has served so far. ``limit`` is in seconds.
    """

    devices: Devices
    share: float | None
    limit: float


class ProofSearch:
    """Raises an incumbent's bound, relaxation by relaxation; several threads may take steps."""

    def __init__(
        self,
        problem: Problem,
        incumbent: Incumbent,
        *,
        seed: int,
        parts: Parts = ALL_PARTS,
    ) -> None:
        self.problem, self.incumbent = problem, incumbent
        self.rng = random.Random(seed)  # noqa: S311
        self.seed, self.parts = seed, parts
        self.all = frozenset(d for d, stages in enumerate(problem.stages_on) if stages)
        self.reach: dict[Devices, int] = {}  # value of a schedule of these devices: they prove less
        self.strongest: Devices = frozenset()
        self.size, self.limit, self.share, self.rounds = 1, _FIRST_LIMIT, _SHARE, 0
        self.tried = self.skipped = 0
        self.notes: list[str] = []
        if (incumbent.value or 0) > LARGEST_TIME:
            self.notes.append("times beyond 2^52 are not exact in CP-SAT's reports: no proof tried")
        if not model_is_exact(problem):
            self.notes.append("the model is stricter than the problem: no proof tried")
        self.exhausted = bool(self.notes)
        singles = self._tightest_first() if parts.relaxations else []
        self.lock = threading.Lock()
        self.short_runs = self._short_runs()
        self.one_short_run = threading.Lock()
        self.spent = 0.0  # on relaxations
        self.queue = deque(Attempt(frozenset({d}), 1.0, _FIRST_LIMIT) for d in singles)

    @property
    def report(self) -> str:
        """What it did, in a few words."""
        tried = [f"proofs: {self.tried} relaxations"]
        if self.short_runs is not None:
            tried.append(f"{self.short_runs.tried} short runs")
        return ", ".join(tried + self.notes)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to try."""
        return self.exhausted and (self.short_runs is None or self.short_runs.finished)

    def step(self, runner: Runner) -> None:
        """Solve one model, of a short run or of a relaxation."""
        short = self.short_runs
        if short is not None and not short.finished:
            its_turn = self.exhausted or short.spent <= _SHORT_RUNS * self.spent
            if its_turn and self.one_short_run.acquire(timeout=_WAIT if self.exhausted else 0):
                try:
                    short.step(runner)
                finally:
                    self.one_short_run.release()
                return
        if not self.exhausted:
            before = runner.spent
            self._relax(runner)
            self.spent += runner.spent - before

    def _short_runs(self) -> ShortRuns | None:
        makespan = self.incumbent.objective == "makespan"
        if self.exhausted or not makespan or not self.parts.short_runs or not is_long(self.problem):
            return None
        return ShortRuns(
            self.problem, self.incumbent, seed=self.seed, staircase=self.parts.staircase
        )

    def _relax(self, runner: Runner) -> None:
        """Try one relaxation."""
        with self.lock:
            if not self.queue:
                self._refill()
            attempt = self.queue.popleft() if self.queue else None
        if attempt and self._may_help(attempt.devices) and self._fits(attempt.devices):
            self.skipped = 0
            self._try(attempt, runner)
        else:
            self.skipped += 1
            if self.skipped > _MOST_SKIPPED:
                self.exhausted = True
                self.notes.append("no relaxation left that could help")

    def _tightest_first(self) -> list[int]:
        """Devices by the number of microbatches that their memory admits."""

        def admitted(device: int) -> float:
            room = self.problem.devices[device].room
            held = sum(self.problem.stages[s].held_after_F for s in self.problem.stages_on[device])
            return math.inf if room is None or not held else room / held

        return sorted(self.all, key=lambda d: (admitted(d), d))

    def _refill(self) -> None:
        """Queue the whole model and larger relaxations, with more time than before."""
        self.limit *= _MORE_TIME
        self.size = self.size % max(1, len(self.all) - 1) + 1
        drawn = (
            [self._draw() for _ in range(_DRAWS)]
            if self.parts.relaxations and len(self.all) > 1
            else []
        )
        if self.rounds % (1 + self.problem.op_count // _OPS_PER_ROUND) == 0 or not drawn:
            self.queue.append(Attempt(self.all, 1.0, _WHOLE * self.limit))
        self.rounds += 1
        self.queue += [Attempt(d, None, self.limit) for d in dict.fromkeys(drawn)]
        if not any(self._fits(attempt.devices) for attempt in self.queue):
            self.notes.append(
                f"{self.problem.op_count} ops make too large a model for the time left"
            )
            self.exhausted = True

    def _draw(self) -> Devices:
        """Draw some of the strongest relaxation so far, and others that lie apart from it."""
        kept = sorted(self.strongest)
        chosen = set(self.rng.sample(kept, min(len(kept), max(1, self.size - 1))))
        rest = sorted(self.all - chosen)
        while len(chosen) < self.size and rest:
            apart = [min((abs(d - c) for c in chosen), default=1) for d in rest]
            (device,) = self.rng.choices(rest, apart)
            chosen.add(device)
            rest.remove(device)
        return frozenset(chosen)

    def _may_help(self, devices: Devices) -> bool:
        bound = self.incumbent.bound
        return bound is not None and not any(
            devices <= known and value <= bound.value for known, value in self.reach.items()
        )

    def _fits(self, devices: Devices) -> bool:
        size = model_size(self.problem, devices)
        return size <= min(LARGEST_MODEL, CONSTRAINTS_PER_SECOND * self.incumbent.clock.left)

    def _try(self, attempt: Attempt, runner: Runner) -> None:
        incumbent = self.incumbent
        if incumbent.bound is None or incumbent.value is None:
            return
        bound, value = incumbent.bound.value, incumbent.value
        share = self.share if attempt.share is None else attempt.share
        target = bound + round(share * (value - bound))
        whole = attempt.devices == self.all
        model = build_model(
            self.problem,
            incumbent.objective,
            bound,
            target,
            attempt.devices,
            staircase=self.parts.staircase,
        )
        solutions = Solutions(model, incumbent) if whole else None
        solver, status = runner.solve(
            model.cp,
            limit=attempt.limit,
            seed=self.seed,
            strong=all(staircase_applies(self.problem, device) for device in attempt.devices),
            on_solution=solutions,
            on_bound=lambda value: self._raise(attempt, model.unit * round(value)),
        )
        self.tried += 1
        if solutions is not None and solutions.failure:
            raise solutions.failure[0]
        self._conclude(attempt, status, solver, model, target)
        if incumbent.bound.value > bound:
            self.strongest = attempt.devices
            if not incumbent.proven and share < 1:
                self.queue.appendleft(attempt)  # it may prove the next share as well

    def _conclude(
        self,
        attempt: Attempt,
        status: cp_model.CpSolverStatus,
        solver: cp_model.CpSolver,
        model: Model,
        target: int,
    ) -> None:
        if status == cp_model.INFEASIBLE:
            self._raise(attempt, model.unit * (target // model.unit + 1))
        elif status in FOUND:
            self._raise(attempt, model.unit * round(solver.best_objective_bound))
            self.reach[attempt.devices] = model.unit * round(solver.objective_value)
        if attempt.share is None and status not in FOUND:
            factor = _MORE if status == cp_model.INFEASIBLE else _LESS
            self.share = min(max(self.share * factor, _SHARES[0]), _SHARES[1])

    def _raise(self, attempt: Attempt, bound: int) -> None:
        source = SOURCE
        if attempt.devices != self.all:
            names = ", ".join(self.problem.device_name(d) for d in sorted(attempt.devices))
            source = f"{SOURCE} on {names} alone"
        self.incumbent.raise_bound(Bound(bound, source))


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
