"""CP-SAT solves: their settings, what runs and ends them, and how much of a gap to ask for."""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ortools.sat.python import cp_model

from pipesat.core.errors import Fault
from pipesat.solver.lanes.clock import BUILT_PER_SECOND, Clock
from pipesat.solver.lanes.incumbent import failure_note

_OVERHEAD = 0.01  # deterministic time of a small model, beside what CP-SAT counts
PROOFS = "CP-SAT's proofs"
"""Origin of all bounds that CP-SAT proves: one that is refuted ends them all."""
FOUND = (cp_model.OPTIMAL, cp_model.FEASIBLE)
T = TypeVar("T")


def new_solver(seed: int) -> cp_model.CpSolver:
    """Return a solver without probing, which costs our models a good part of their time.

    With it, many windows do not even come back with the schedule that they were given as a hint.
    """
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
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


class _Guard(cp_model.CpSolverSolutionCallback):
    """Calls what wants to hear of solutions and bounds; what it raises ends the solve.

    An exception that passes through CP-SAT is lost, or ends the process.
    """

    def __init__(
        self,
        solver: cp_model.CpSolver,
        on_solution: Callable[[Callable[[cp_model.IntVar], int]], object] | None,
        on_bound: Callable[[float], object] | None,
    ) -> None:
        super().__init__()
        self.solver, self.on_solution, self.on_bound = solver, on_solution, on_bound
        self.failure: BaseException | None = None

    def on_solution_callback(self) -> None:
        """Take note of a solution (CP-SAT calls this)."""
        if self.on_solution is not None:
            self._call(self.on_solution, self.value)

    def hear_bound(self, bound: float) -> None:
        """Take note of a bound (CP-SAT calls this)."""
        if self.on_bound is not None:
            self._call(self.on_bound, bound)

    def _call(self, function: Callable[[T], object], argument: T) -> None:
        if self.failure is None:
            try:
                function(argument)
            except BaseException as error:
                self.failure = error
                self.solver.stop_search()


def _hint_once(model: cp_model.CpModel) -> None:
    """Keep the first hint of each variable: a second one would make the model invalid."""
    hint = model.proto.solution_hint
    names, values = list(hint.vars), list(hint.values)
    if len(set(names)) < len(names):
        once = dict(zip(reversed(names), reversed(values), strict=True))
        model.clear_hints()  # type: ignore[no-untyped-call]
        for name, value in once.items():
            model.add_hint(model.get_int_var_from_proto_index(name), value)


def _invalid(model: cp_model.CpModel) -> Fault:
    """Say why CP-SAT takes a model for none, and keep it."""
    with tempfile.NamedTemporaryFile(prefix="pipesat-model-", suffix=".txt", delete=False) as file:
        kept = Path(file.name)
    model.export_to_file(str(kept))
    why = " ".join(model.validate().split()) or "it does not say why"
    return Fault(f"CP-SAT calls a model invalid: {why}; the model is in {kept}")


def whole(bound: float) -> int:
    """Return a bound that CP-SAT reports as the integer it stands for; 0 if it says nothing."""
    return round(bound) if math.isfinite(bound) and bound > 0 else 0


class Runner:
    """Runs models one after the other on one thread; :meth:`interrupt` ends the present one.

    The only door to CP-SAT. A model that it takes for none is a fault, never "infeasible".

    ``spent`` is the time it took, in the clock's terms. A deterministic clock is limited by, and
    told, CP-SAT's own deterministic time. ``slowness`` is what a second of processor time has taken
    lately by the clock: more than 1 beside other work.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.spent = 0.0
        self.slowness = 1.0
        self._running: cp_model.CpSolver | None = None

    def solve(
        self,
        model: cp_model.CpModel,
        *,
        limit: float,
        seed: int,
        strong: bool = False,
        linear: bool = True,
        presolve: bool = True,
        on_solution: Callable[[Callable[[cp_model.IntVar], int]], object] | None = None,
        on_bound: Callable[[float], object] | None = None,
    ) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        """Solve within ``limit``, and within what is left on the clock.

        ``strong`` propagation of no-overlap proves chains at tight memory many times faster, and
        other models more slowly. Without ``linear``, models
        with optional intervals and memory over time are solved many times faster: their linear
        relaxation costs much and says little. Models that lack what presolve would find do without
        ``presolve``. ``on_solution`` is called with a function that gives every variable's value,
        ``on_bound`` with what is proven; what they raise ends the solve.

        Raises
        ------
        Fault
            If CP-SAT takes the model for invalid: then the model is kept as a file.
        """
        solver = new_solver(seed)
        solver.parameters.use_strong_propagation_in_disjunctive = strong
        solver.parameters.cp_model_presolve = presolve
        if not linear:
            solver.parameters.linearization_level = 0
        limit = max(0.01, min(limit, self.clock.left))
        if self.clock.deterministic:
            solver.parameters.max_deterministic_time = limit
        else:
            solver.parameters.max_time_in_seconds = limit
        guard = _Guard(solver, on_solution, on_bound)
        if on_bound is not None:
            solver.best_bound_callback = guard.hear_bound
        _hint_once(model)
        self._running, used = solver, time.thread_time()
        try:
            status = solver.solve(model, None if on_solution is None else guard)
        finally:
            self._running = None
        taken, used = solver.wall_time, time.thread_time() - used
        if not self.clock.deterministic:
            self.slowness = slowness(taken, used, self.slowness)
        else:
            built = len(model.proto.constraints) / BUILT_PER_SECOND
            taken = solver.response_proto.deterministic_time + _OVERHEAD + built
            self.clock.count(taken)
        self.spent += taken
        if guard.failure is not None:
            raise guard.failure
        if status == cp_model.MODEL_INVALID:
            raise _invalid(model)
        return solver, status

    def interrupt(self) -> None:
        """Stop the solve under way, if there is one."""
        if (solver := self._running) is not None:
            solver.stop_search()


_TELLING = 0.05  # seconds: what takes less says little of the machine
_SLOWEST = 4.0


def slowness(taken: float, used: float, before: float) -> float:
    """Return seconds by the clock per second of processor time, 1 to 4; by half what was before."""
    if taken < _TELLING:
        return before
    now = taken / max(used, taken / _SLOWEST)
    return (before + max(1.0, now)) / 2


class GuardedThread(threading.Thread):
    """A thread that works from now on; what its work raises is the one of its ``failures``."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        super().__init__(target=work, name=name, daemon=True)
        self.failures: list[BaseException] = []
        self.start()

    def run(self) -> None:
        """Work, and keep what that raises."""
        try:
            super().run()
        except BaseException as error:
            self.failures.append(error)


_POLL = 0.05  # seconds between looks at the clock and its stop


class Watched:
    """Runs a part of the search in a thread; its models end when the clock is over.

    So signals and the clock are heard meanwhile.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._runners: list[Runner] = []

    def runner(self) -> Runner:
        """Return a new runner, which is interrupted when the clock is over."""
        self._runners.append(Runner(self.clock))
        return self._runners[-1]

    def run(self, work: Callable[[], object]) -> list[str]:
        """Work to the end; return what failed. What has been found and proven by then stays."""
        thread = GuardedThread(work, "lane")
        while thread.is_alive():
            thread.join(_POLL)
            if self.clock.over:
                for runner in self._runners:
                    runner.interrupt()
        return [failure_note("a part of the search", error) for error in thread.failures]


@dataclass
class Share:
    """A share of the gap between bound and value: more after a "no", less after anything else.

    ``limit`` is in seconds per question.
    """

    share: float = 0.25
    limit: float = 4.0
    more_by: float = 1.5
    less_by: float = 0.5
    least: float = 0.02
    most: float = 1.0
    longer_by: float = 2.0
    longest: float = 60.0
    vain: int = 0  # questions without an answer, one after the other

    def target(self, bound: int, value: int) -> int:
        """Length to ask for: if nothing is that short, one more is a bound."""
        return min(value - 1, bound + int(self.share * (value - bound)))

    def refuted(self) -> None:
        """Ask for more: it was answered no."""
        self.vain = 0
        self.share = min(self.most, self.share * self.more_by)

    def less(self) -> None:
        """Ask for less: it was possible, or not answered in time."""
        self.share = max(self.least, self.share * self.less_by)

    def in_vain(self, of: int) -> bool:
        """Give more time if so many were not answered; return whether."""
        self.vain += 1
        if self.vain < of:
            return False
        self.vain = 0
        self.longer()
        return True

    def longer(self) -> None:
        """Give more time: it was not answered."""
        self.limit = min(self.longest, self.limit * self.longer_by)
