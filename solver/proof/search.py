"""The proving half of the search: relaxations and short runs take turns."""

from __future__ import annotations

import threading

from pipesat.core.problem import Problem
from pipesat.solver.model.model import why_not_exact
from pipesat.solver.model.times import latest_end, unit_for
from pipesat.solver.proof.relaxations import Relaxations
from pipesat.solver.proof.short_runs.search import ShortRuns, is_long
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import PROOFS, Runner
from pipesat.solver.search_parts import ALL_PARTS, SearchParts

_WAIT = 0.1  # seconds for another lane's short run, if there is nothing else to do
_SHORT_RUNS = 3.0  # their time, as a multiple of that for relaxations, which prove less there


class ProofSearch:
    """Raises an incumbent's bound; several lanes may take steps.

    Relaxations are for any number of lanes, short runs for one at a time. A bound of CP-SAT's that
    a checked schedule refutes ends both.
    """

    def __init__(
        self,
        problem: Problem,
        incumbent: Incumbent,
        *,
        seed: int,
        parts: SearchParts = ALL_PARTS,
    ) -> None:
        self.incumbent = incumbent
        self.relaxations = Relaxations(problem, incumbent, seed=seed, parts=parts)
        self.short_runs: ShortRuns | None = None
        self.one_short_run = threading.Lock()
        if why_not := why_not_exact(problem):
            self.relaxations.queue.end(f"CP-SAT cannot model {why_not}: no proof tried")
        elif not _proofs_apply(problem, incumbent):
            self.relaxations.queue.end("times are too large for proofs with pairs: none tried")
        elif parts.short_runs and incumbent.objective == "makespan" and is_long(problem):
            self.short_runs = ShortRuns(problem, incumbent, seed=seed, staircase=parts.staircase)

    @property
    def report(self) -> str:
        """What it did, in a few words."""
        tried = [f"proofs: {self.relaxations.queue.tried} relaxations"]
        if self.short_runs is not None:
            tried.append(f"{self.short_runs.tried} short runs")
        why_ended = self.relaxations.queue.why_ended
        return ", ".join(tried if why_ended is None else [*tried, why_ended])

    @property
    def finished(self) -> bool:
        """Whether nothing is left to try."""
        if not self.incumbent.trusts(PROOFS):
            return True
        return self.relaxations.finished and (self.short_runs is None or self.short_runs.finished)

    def step(self, runner: Runner) -> None:
        """Solve one model, of a short run or of a relaxation."""
        exhausted = self.relaxations.finished
        short = self.short_runs
        if short is not None and not short.finished:
            its_turn = exhausted or short.spent <= _SHORT_RUNS * self.relaxations.spent.time
            if its_turn and self.one_short_run.acquire(timeout=_WAIT if exhausted else 0):
                try:
                    short.step(runner)
                finally:
                    self.one_short_run.release()
                return
        if not exhausted:
            self.relaxations.step(runner)


def _proofs_apply(problem: Problem, incumbent: Incumbent) -> bool:
    """Whether no times are rounded, or none of them are of pairs (docs/model.md, Pairs)."""
    longest = latest_end(problem, incumbent.objective, incumbent.value or 0)
    return problem.overlap is None or unit_for(longest) == 1
