"""Which part of a long run to try next: longer and longer ones, then again with more time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from ortools.sat.python import cp_model

from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import PROOFS, Runner
from pipesat.solver.model.memory import staircase_applies
from pipesat.solver.model.variables import Variables

_FIRST_LIMIT = 1.0  # seconds for one model
_MORE_TIME = 3.0  # times as much from one round to the next

KindT = TypeVar("KindT")


class Rounds(Generic[KindT]):
    """Rounds through all parts that are not ``settled``, each with more time (``limit``).

    Parameters
    ----------
    lengths
        In microbatches, of each kind of part: what there is to try.
    patience
        Parts of a kind in a row without an outcome that end it for this round.
    last
        The part that says it all: with it, rounds end.
    pays
        Whether anything may follow from a part by now; others wait.
    """

    def __init__(
        self,
        lengths: Mapping[KindT, Sequence[int]],
        patience: int,
        last: tuple[KindT, int] | None = None,
        pays: Callable[[KindT, int], bool] = lambda *_: True,
    ) -> None:
        self.lengths, self.patience, self.last, self.pays = lengths, patience, last, pays
        self.settled: set[tuple[KindT, int]] = set()
        self.limit = _FIRST_LIMIT
        self.tried = 0  # models that were solved
        self._left = 0.0
        self._parts = self._longer_and_longer()

    def next(self, left: float) -> tuple[KindT, int] | None:
        """Return the next part, or ``None`` if all models are too large for the time left."""
        self._left = left
        return next(self._parts, None)

    def _longer_and_longer(self) -> Iterator[tuple[KindT, int]]:
        while self.last not in self.settled:
            before = self.tried, len(self.settled)
            patience = dict.fromkeys(self.lengths, self.patience)
            for n in sorted({n for lengths in self.lengths.values() for n in lengths}):
                for kind, lengths in self.lengths.items():
                    if (kind, n) in self.settled or not patience[kind] or n not in lengths:
                        continue
                    if not self.pays(kind, n):
                        continue
                    yield kind, n
                    settled = (kind, n) in self.settled
                    patience[kind] = self.patience if settled else patience[kind] - 1
                if not any(patience.values()):
                    break
            if before == (self.tried, len(self.settled)) and self.limit > self._left:
                return
            self.limit *= _MORE_TIME


class InRounds(Generic[KindT]):
    """Raises the bound of a long run by parts of it, a model at a time. Needs a schedule."""

    rounds: Rounds[KindT]

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, seed: int, staircase: bool = True
    ) -> None:
        self.problem, self.incumbent, self.seed = problem, incumbent, seed
        self.staircase = staircase
        self.stairs = staircase and all(staircase_applies(problem, d) for d in problem.busy)
        self.microbatches = problem.routes[0].microbatches
        self.finished = False

    def step(self, runner: Runner) -> None:
        """Ask about one part, and raise the bound by what follows."""
        part = self.rounds.next(self._left)
        if part is None:
            self.finished = True
            return
        if self._settle(*part, runner):
            self.rounds.settled.add(part)
        self.finished = self.finished or not self.incumbent.trusts(PROOFS)

    def _settle(self, kind: KindT, n: int, runner: Runner) -> bool:
        """Learn about a part, and return whether all is known of it that matters."""
        raise NotImplementedError

    def _solve(
        self, v: Variables, runner: Runner, *, linear: bool = True, upwards: bool = False
    ) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        """Solve a model; see :meth:`Runner.solve` for ``dynamic`` and ops of length zero."""
        dynamic = self.stairs and all(map(min, v.times.duration.values()))
        self.rounds.tried += 1
        return runner.solve(
            v.cp,
            limit=self.rounds.limit,
            seed=self.seed,
            strong=self.stairs and not dynamic,
            dynamic=dynamic,
            linear=linear,
            upwards=upwards,
        )

    @property
    def tried(self) -> int:
        """Models that were solved."""
        return self.rounds.tried

    @property
    def _left(self) -> float:
        return self.incumbent.clock.left

    def _schedule(self) -> Schedule:
        if self.incumbent.schedule is None:
            raise ValueError("parts of a long run need a schedule to start from")
        return self.incumbent.schedule
