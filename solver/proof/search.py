"""The proving half of the search: relaxations and, in turn, what else a problem has proofs of."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TypeAlias

from pipesat.problem.problem import Problem
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import PROOFS, Runner
from pipesat.solver.model.times import LARGEST, unit_for
from pipesat.solver.options import ALL_PARTS, SearchParts
from pipesat.solver.proof.device_alone import DevicesAlone
from pipesat.solver.proof.device_ranks import ranks_apply
from pipesat.solver.proof.passing_modes import PassingModes, branching_applies
from pipesat.solver.proof.ranks import KnownRanks
from pipesat.solver.proof.relaxations import Relaxations
from pipesat.solver.proof.whole_route import WholeRoute, whole_route_applies

_OTHERS = 3.0  # time of each other part, as a multiple of that for relaxations, which prove less

_QUESTIONS, _NODES = "questions to a device", "nodes of microbatches that pass"
_RANKS, _ROUTE = "questions to a chain of devices", "questions to a whole route"
_TICK = 0.05  # seconds between two looks at whether loops are compiled
_Other: TypeAlias = DevicesAlone | PassingModes | KnownRanks | WholeRoute


class ProofSearch:
    """Raises an incumbent's bound.

    Where several lanes prove, each is one ``share`` (number, count): it has its part of what is
    tried first, and relaxations drawn by a chance of its own. Lanes that only help have numbers
    beyond those, of one: they begin elsewhere and ask nothing twice. A bound of CP-SAT's that a
    checked schedule refutes ends them all.
    """

    def __init__(
        self,
        problem: Problem,
        incumbent: Incumbent,
        *,
        seed: int,
        parts: SearchParts = ALL_PARTS,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self.incumbent = incumbent
        seed += share[0]
        self.relaxations = Relaxations(problem, incumbent, seed=seed, parts=parts, share=share)
        self.others: dict[str, _Other] = {}  # by what they try
        self.spent = defaultdict[str, float](float)  # of each; relaxations: ""
        self.length = max(1, max(problem.microbatches) / (4 * len(problem.devices)))
        if parts.relaxations and whole_route_applies(problem):
            self.others[_ROUTE] = WholeRoute(problem, incumbent)
        if parts.relaxations and incumbent.objective == "makespan" and ranks_apply(problem):
            self.others[_RANKS] = KnownRanks(problem, incumbent, seed=seed)
        if problem.has_modes:
            self.relaxations.queue.end("")  # they know no modes
            if problem.chains_only and incumbent.latest <= LARGEST and not self.others:
                self.others[_QUESTIONS] = DevicesAlone(problem, incumbent, seed=seed)
            if problem.chains_only and problem.overlap is None:
                self.others[_NODES] = PassingModes(problem, incumbent)
        elif problem.overlap is not None and unit_for(incumbent.latest) > 1:
            # of pairs, rounded times prove nothing (docs/proofs/model.md, Pairs)
            self.relaxations.queue.end("times are too large for proofs with pairs: none tried")
        elif not problem.chains_only:
            pass  # models of devices, and of all of them
        elif parts.relaxations and branching_applies(problem):
            self.others[_NODES] = PassingModes(problem, incumbent)
        number, count = share
        dealt = list(self.others.items())
        self.others = dict(dealt[number % count :: count])

    @property
    def report(self) -> str:
        """What it did, in a few words."""
        queue, modes = self.relaxations.queue, self.incumbent.problem.has_modes
        tried = [] if modes else [f"{queue.tried} relaxations"]
        tried += [f"{part.tried} {what}" for what, part in self.others.items()]
        tried += [queue.why_ended] if queue.why_ended else []
        return f"proofs: {', '.join(tried) or 'none'}"

    @property
    def finished(self) -> bool:
        """Whether nothing is left to try."""
        if not self.incumbent.trusts(PROOFS):
            return True
        return self.relaxations.finished and all(x.finished for x in self.others.values())

    def step(self, runner: Runner, *, helping: bool = False) -> None:
        """Solve one model, of a relaxation or of another part; who helps tries relaxations only."""
        exhausted = self.relaxations.finished
        waiting = [what for what, part in self.others.items() if not part.finished]
        if not runner.clock.deterministic:
            ready = [what for what in waiting if self._ready(what)]
            if exhausted and waiting and not ready:
                time.sleep(_TICK)
            waiting = ready
        what = min(waiting, key=self._due, default="")
        if not exhausted and (helping or self._due(what) >= _OTHERS * self.spent[""]):
            what = ""
        if what or not exhausted:
            begin = runner.clock.elapsed
            self.others.get(what, self.relaxations).step(runner)
            self.spent[what] += runner.clock.elapsed - begin

    def _ready(self, what: str) -> bool:
        part = self.others[what]
        return not isinstance(part, KnownRanks | WholeRoute) or part.ready()

    def _due(self, what: str) -> float:
        """Time of a part; that of those which see a run's middle, by the run's length."""
        part = self.others.get(what)
        if isinstance(part, WholeRoute) and part.fresh:
            return 0.0
        return self.spent[what] / (self.length if isinstance(part, WholeRoute) else 1)


def proofs_for(
    incumbent: Incumbent, *, seed: int, parts: SearchParts, share: tuple[int, int] = (0, 1)
) -> ProofSearch:
    """Return what raises the bound that counts while an incumbent is improved.

    That of the problem that was asked for, with all that it has learnt so far in this process.
    """
    asked = incumbent.asked
    known: ProofSearch | None = asked.proofs
    found = known or ProofSearch(asked.problem, asked, seed=seed, parts=parts, share=share)
    asked.proofs = found
    return found
