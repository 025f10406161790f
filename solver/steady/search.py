"""The search for short periods: halving the interval, and reworking some devices at a time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ortools.sat.python import cp_model

from pipesat.core.problem import Problem
from pipesat.solver.cpsat import new_solver
from pipesat.solver.steady.model import CyclicModel, build_cyclic_model
from pipesat.solver.steady.modulo import greedy_repetend, random_repetend
from pipesat.solver.steady.period import microbatches_per_period, period_bound, why_not
from pipesat.solver.steady.repetend import Repetend, tightened

_POLL = 0.02  # seconds between looks at the clock and the stop function
_CLOSE = 1.003  # a period this close to what is ruled out is not shortened further
_TURNS = 6  # each with twice the time of the one before
_FIRST_SECONDS = 0.4  # for one solve of the first turn
_FEWEST_DEVICES = 3  # that are reworked at a time; more after failures
_REWORKS = 4  # in a row
_STEP = 0.03  # of the period, that a rework of some devices tries to gain
_GUESSES = 1000  # random greedy repetends without success, before the models are asked
_GUESS = (0.95, 0.999)  # of the best period, which these try
_GUESSING = 0.3  # of the time left, for all of them
_LEAST = 0.05  # seconds; with less left, no search begins


@dataclass
class Budget:
    """Seconds of wall time, an outside stop, and CP-SAT's threads, seed and deterministic time.

    ``deterministic`` limits every single solve in CP-SAT's deterministic time; with one worker and
    ample seconds, results are then repeated exactly.
    """

    seconds: float
    workers: int = 1
    seed: int = 0
    deterministic: float | None = None
    stop: Callable[[], bool] = lambda: False
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds left; 0 if stopped."""
        if self.stop():
            return 0.0
        return max(0.0, self.seconds - (time.monotonic() - self.began))

    @property
    def spent(self) -> bool:
        """Whether too little is left to begin anything."""
        return self.left < _LEAST

    def part(self, seconds: float) -> Budget:
        """A budget of at most so many seconds of what is left, that begins now."""
        return Budget(
            min(seconds, self.left), self.workers, self.seed, self.deterministic, self.stop
        )


def shorter_and_shorter(problem: Problem, least: int, budget: Budget) -> Iterator[Repetend]:
    """Yield repetends of shorter and shorter periods; see :func:`microbatches_per_period`.

    A greedy repetend comes first, then the bound itself is tried, then many random greedy ones.
    The best is improved, by turns as a whole (halving between what works and what does not) and in
    parts (all but some neighbouring devices keep their order). Feasible periods have no gaps: the
    same cyclic order works for every longer period, so a period that is infeasible rules out all
    shorter ones. One that was not decided in time is tried again with another seed and more time.
    Nothing is proven by this search ending.
    """
    if not why_not(problem, least):
        yield from _Search(problem, microbatches_per_period(problem, least), budget).run()


class _Search:
    """No period below ``proven`` is feasible; ``step`` is what a part's rework shall gain."""

    def __init__(self, problem: Problem, counts: tuple[int, ...], budget: Budget) -> None:
        self.problem, self.counts, self.budget = problem, counts, budget
        self.bound = self.proven = max(1, period_bound(problem, counts))
        self.chance = random.Random(budget.seed)  # noqa: S311 (chance, not secrecy)
        self.devices = _FEWEST_DEVICES
        self.step, self.failed = _STEP, 0

    def run(self) -> Iterator[Repetend]:
        """Yield shorter and shorter repetends."""
        best = greedy_repetend(self.problem, self.counts, self.bound, lambda: self.budget.spent)
        if best is not None:
            best = tightened(self.problem, best, self.bound)
            yield best
        if best is None or best.period > self.bound:
            found = self.find(self.bound, _FIRST_SECONDS, 0)
            if found is None and best is not None:
                found = self.guessed(best)
            if found is not None:
                best = found
                yield best
        if best is None:
            return
        for turn in range(_TURNS):
            low = self.proven
            while best.period > max(low, self.proven) * _CLOSE and not self.budget.spent:
                seconds = _FIRST_SECONDS * 2**turn
                period = (max(low, self.proven) + best.period) // 2
                found = self.find(period, seconds, turn)
                if found is None:
                    low = period + 1
                    found = self.reworked(best, seconds, turn)
                if found is not None:
                    best = found
                    yield best

    def find(
        self, period: int, seconds: float, turn: int, rest: Repetend | None = None
    ) -> Repetend | None:
        """Return a repetend of at most this period, tightened, or ``None`` if none was found.

        With ``rest``, only some devices are free to choose their order.
        """
        if self.budget.spent:
            return None
        model = build_cyclic_model(self.problem, period, self.counts)
        if rest is not None:
            first = self.chance.randrange(len(self.problem.devices) - self.devices + 1)
            model.keep(rest, range(first, first + self.devices))
        budget = self.budget.part(seconds)
        budget.seed += turn
        if budget.deterministic is not None:
            budget = replace(budget, seconds=self.budget.left)
            budget.deterministic = (self.budget.deterministic or 0.0) * 2**turn
        status, repetend = solve(model, budget)
        if status == cp_model.INFEASIBLE and rest is None:
            self.proven = max(self.proven, period + 1)
        return None if repetend is None else tightened(self.problem, repetend, self.bound)

    def guessed(self, best: Repetend) -> Repetend | None:
        """Return the shortest of many random greedy repetends, if it is shorter than the best."""
        result = None
        enough = self.budget.left * (1 - _GUESSING)
        tries = 0
        while tries < _GUESSES and best.period > self.proven and not self.budget.spent:
            if self.budget.left < enough:
                break
            tries += 1
            period = max(self.proven, int(best.period * self.chance.uniform(*_GUESS)))
            found = random_repetend(self.problem, self.counts, period, self.chance)
            if found is not None:
                found = tightened(self.problem, found, self.bound)
                if found.period < best.period:
                    result, best, tries = found, found, 0
        return result

    def reworked(self, best: Repetend, seconds: float, turn: int) -> Repetend | None:
        """Rework some neighbouring devices at a time, more of them the less it helps."""
        if len(self.problem.devices) <= _FEWEST_DEVICES:
            return None
        result = None
        for _ in range(_REWORKS):
            period = max(self.proven, int(best.period * (1 - self.step)))
            if period >= best.period or self.budget.spent:
                break
            found = self.find(period, seconds, turn, best)
            if found is not None:
                result = best = found
                self.failed, self.step = 0, min(2 * _STEP, self.step * 1.5)
                continue
            self.failed += 1
            if self.failed == _REWORKS:
                self.failed, self.step = 0, max(_STEP / 8, self.step * 0.7)
                self.devices = min(len(self.problem.devices), self.devices + 1)
        return result


def shortened(problem: Problem, repetend: Repetend, budget: Budget) -> Repetend | None:
    """Return a repetend of the same period and the least length that the budget allows."""
    if budget.spent:
        return None
    model = build_cyclic_model(problem, repetend.period, repetend.microbatches)
    model.shorten(repetend)
    _, shorter = solve(model, budget)
    return shorter


def solve(model: CyclicModel, budget: Budget) -> tuple[cp_model.CpSolverStatus, Repetend | None]:
    """Solve in a thread of its own, so that the stop function is heard meanwhile."""
    solver = new_solver(budget.seed, budget.workers)
    solver.parameters.max_time_in_seconds = max(_LEAST, budget.left)
    if budget.deterministic is not None:
        solver.parameters.max_deterministic_time = budget.deterministic
    outcome: list[cp_model.CpSolverStatus] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(solver.solve(model.cp))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="cp-sat steady", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL)
        if not budget.left:
            solver.stop_search()
    for error in failure:
        raise error
    if outcome[0] in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return outcome[0], model.repetend(solver.value)
    return outcome[0], None
