"""The search for short periods: halving the interval, and reworking some devices at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ortools.sat.python import cp_model

from pipesat.core.problem import Problem
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.runner import FOUND, Runner
from pipesat.solver.steady.model import CyclicModel, build_cyclic_model
from pipesat.solver.steady.modulo import greedy_repetend, random_repetend
from pipesat.solver.steady.period import microbatches_per_period, period_bound, why_not
from pipesat.solver.steady.repetend import Repetend, tightened

_CLOSE = 1.003  # a period this close to what is ruled out is not shortened further
_TURNS = 6  # each with twice the time of the one before
_FIRST_SECONDS = 0.4  # for one solve of the first turn
_FEWEST_DEVICES = 3  # that are reworked at a time; more after failures
_REWORKS = 4  # in a row
_STEP = 0.03  # of the period, that a rework of some devices tries to gain
_GUESSES = 1000  # random greedy repetends without success, before the models are asked
_GUESS = (0.95, 0.999)  # of the best period, which these try
_GUESSING = 0.3  # of the time left, for all of them


def shorter_and_shorter(
    problem: Problem, least: int, *, runner: Runner, clock: Clock, seed: int = 0
) -> Iterator[Repetend]:
    """Yield repetends of shorter and shorter periods; see :func:`microbatches_per_period`.

    A greedy repetend comes first, then the bound itself is tried, then many random greedy ones.
    The best is improved, by turns as a whole (halving between what works and what does not) and in
    parts (all but some neighbouring devices keep their order). Feasible periods have no gaps: the
    same cyclic order works for every longer period, so a period that is infeasible rules out all
    shorter ones. One that was not decided in time is tried again with another seed and more time.
    Nothing is proven by this search ending.
    """
    if not why_not(problem, least):
        counts = microbatches_per_period(problem, least)
        yield from _PeriodSearch(problem, counts, runner, clock, seed).run()


class _PeriodSearch:
    """No period below ``proven`` is feasible; ``step`` is what a part's rework shall gain."""

    def __init__(
        self, problem: Problem, counts: tuple[int, ...], runner: Runner, clock: Clock, seed: int
    ) -> None:
        self.problem, self.counts = problem, counts
        self.runner, self.clock, self.seed = runner, clock, seed
        self.bound = self.proven = max(1, period_bound(problem, counts))
        self.chance = random.Random(seed)  # noqa: S311 (chance, not secrecy)
        self.devices = _FEWEST_DEVICES
        self.step, self.failed = _STEP, 0

    def run(self) -> Iterator[Repetend]:
        """Yield shorter and shorter repetends."""
        best = greedy_repetend(self.problem, self.counts, self.bound, self.give_up)
        if best is not None:
            best = self.tight(best)
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
            while best.period > max(low, self.proven) * _CLOSE and not self.clock.over:
                seconds = _FIRST_SECONDS * 2**turn
                period = (max(low, self.proven) + best.period) // 2
                found = self.find(period, seconds, turn)
                if found is None:
                    low = period + 1
                    found = self.reworked(best, seconds, turn)
                if found is not None:
                    best = found
                    yield best

    def give_up(self) -> bool:
        """Whether to end, asked before every greedy pass."""
        self.count_a_pass()
        return self.clock.over

    def count_a_pass(self) -> None:
        """Count a pass over the ops of a period."""
        stages = (len(route.stages) for route in self.problem.routes)
        ops = sum(3 * length * count for length, count in zip(stages, self.counts, strict=True))
        self.clock.count_ops(ops)

    def tight(self, repetend: Repetend) -> Repetend:
        """Shorten the period as far as the order allows: some passes, each for one period."""
        for _ in range(repetend.period.bit_length()):
            self.count_a_pass()
        return tightened(self.problem, repetend, self.bound)

    def find(
        self, period: int, seconds: float, turn: int, rest: Repetend | None = None
    ) -> Repetend | None:
        """Return a repetend of at most this period, tightened, or ``None`` if none was found.

        With ``rest``, only some devices are free to choose their order.
        """
        if self.clock.over:
            return None
        model = build_cyclic_model(self.problem, period, self.counts)
        if rest is not None:
            first = self.chance.randrange(len(self.problem.devices) - self.devices + 1)
            model.keep(rest, range(first, first + self.devices))
        limit = min(seconds, self.clock.left)
        status, repetend = solve(model, self.runner, limit, self.seed + turn)
        if status == cp_model.INFEASIBLE and rest is None:
            self.proven = max(self.proven, period + 1)
        return None if repetend is None else self.tight(repetend)

    def guessed(self, best: Repetend) -> Repetend | None:
        """Return the shortest of many random greedy repetends, if it is shorter than the best."""
        result = None
        clock = self.clock.part(_GUESSING * self.clock.left)
        tries = 0
        while tries < _GUESSES and best.period > self.proven and not clock.over:
            tries += 1
            self.count_a_pass()
            period = max(self.proven, int(best.period * self.chance.uniform(*_GUESS)))
            found = random_repetend(self.problem, self.counts, period, self.chance)
            if found is not None:
                found = self.tight(found)
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
            if period >= best.period or self.clock.over:
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


def shortened(
    problem: Problem, repetend: Repetend, *, runner: Runner, clock: Clock, seed: int
) -> Repetend | None:
    """Return a repetend of the same period and the least length that the clock allows."""
    if clock.over:
        return None
    model = build_cyclic_model(problem, repetend.period, repetend.microbatches)
    model.shorten(repetend)
    _, shorter = solve(model, runner, clock.left, seed)
    return shorter


def solve(
    model: CyclicModel, runner: Runner, limit: float, seed: int
) -> tuple[cp_model.CpSolverStatus, Repetend | None]:
    """Solve a model and read the repetend out of its solution, if there is one."""
    solver, status = runner.solve(model.cp, limit=limit, seed=seed)
    return status, model.repetend(solver.value) if status in FOUND else None
