"""The proving half of the search: relaxations take turns with short runs, or with places."""

from __future__ import annotations

import threading

from pipesat.core.problem import Problem
from pipesat.solver.model.model import why_not_exact
from pipesat.solver.model.times import latest_end, unit_for
from pipesat.solver.proof.places import PlacesProofs
from pipesat.solver.proof.relaxations import Relaxations
from pipesat.solver.proof.short_runs.search import ShortRuns, is_long
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import PROOFS, Runner
from pipesat.solver.search_parts import ALL_PARTS, SearchParts

_WAIT = 0.1  # seconds for another lane's short run, if there is nothing else to do
_SHORT_RUNS = 3.0  # their time, as a multiple of that for relaxations, which prove less there
_PLACES = 3.0  # the same of places


class ProofSearch:
    """Raises an incumbent's bound; several lanes may take steps.

    Relaxations are for any number of lanes, short runs and places for one at a time. A bound of
    CP-SAT's that a checked schedule refutes ends them all.
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
        self.places: PlacesProofs | None = None
        self.one_at_a_time = threading.Lock()
        if why_not := why_not_exact(problem):
            self.relaxations.queue.end(f"CP-SAT cannot model {why_not}: no proof tried")
        elif not _proofs_apply(problem, incumbent):
            self.relaxations.queue.end("times are too large for proofs with pairs: none tried")
        elif parts.short_runs and incumbent.objective == "makespan" and is_long(problem):
            self.short_runs = ShortRuns(problem, incumbent, seed=seed, staircase=parts.staircase)
        elif parts.relaxations and PlacesProofs.apply(problem, incumbent):
            self.places = PlacesProofs(problem, incumbent, seed=seed)

    @property
    def report(self) -> str:
        """What it did, in a few words."""
        tried = [f"proofs: {self.relaxations.queue.tried} relaxations"]
        if self.short_runs is not None:
            tried.append(f"{self.short_runs.tried} short runs")
        if self.places is not None:
            tried.append(f"{self.places.tried} models of places")
        why_ended = self.relaxations.queue.why_ended
        return ", ".join(tried if why_ended is None else [*tried, why_ended])

    @property
    def finished(self) -> bool:
        """Whether nothing is left to try."""
        if not self.incumbent.trusts(PROOFS):
            return True
        others = (self.short_runs, self.places)
        return self.relaxations.finished and all(x is None or x.finished for x in others)

    def step(self, runner: Runner) -> None:
        """Solve one model, of a short run, of places or of a relaxation."""
        exhausted = self.relaxations.finished
        for part, multiple in ((self.short_runs, _SHORT_RUNS), (self.places, _PLACES)):
            if part is None or part.finished:
                continue
            its_turn = exhausted or part.spent <= multiple * self.relaxations.spent.time
            if its_turn and self.one_at_a_time.acquire(timeout=_WAIT if exhausted else 0):
                try:
                    part.step(runner)
                finally:
                    self.one_at_a_time.release()
                return
        if not exhausted:
            self.relaxations.step(runner)


def _proofs_apply(problem: Problem, incumbent: Incumbent) -> bool:
    """Whether no times are rounded, or none of them are of pairs (docs/proofs/model.md, Pairs)."""
    longest = latest_end(problem, incumbent.objective, incumbent.value or 0)
    return problem.overlap is None or unit_for(longest) == 1
