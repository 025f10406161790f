"""Bounds from relaxations of growing size, up to the whole model.

A relaxation keeps the ops and the memory of some devices and lets all others never be busy. Its
optimum, and any bound CP-SAT proves for it, bounds the whole problem. Relaxations of few devices
are small, and devices that lie apart often prove as much as all of them.
"""

from __future__ import annotations

import math
from itertools import zip_longest

from ortools.sat.python import cp_model

from pipesat.bounds.given_order import heads_and_tails
from pipesat.core.claims import Bound
from pipesat.problem.problem import Problem
from pipesat.solver.lanes.clock import CONSTRAINTS_PER_SECOND
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import FOUND, PROOFS, Runner, proven_bound, whole
from pipesat.solver.model.memory import staircase_applies
from pipesat.solver.model.model import build_model, model_size
from pipesat.solver.model.pairing import gains
from pipesat.solver.options import SearchParts
from pipesat.solver.proof.attempts import Attempt, Attempts, Devices

SOURCE = "CP-SAT"
SMALL_WITH_PAIRS = 120  # ops
LARGEST_MODEL = 400_000  # constraints; beyond, nothing is found in minutes


class Relaxations:
    """Raises an incumbent's bound, relaxation by relaxation; ``share`` as in `ProofSearch`."""

    def __init__(
        self,
        problem: Problem,
        incumbent: Incumbent,
        *,
        seed: int,
        parts: SearchParts,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self.problem, self.incumbent, self.seed = problem, incumbent, seed
        self.all = frozenset(problem.busy)
        begin = first_of(problem, self.all, share) if parts.relaxations else []
        self.pairs = bool(gains(problem))
        self.line = heads_and_tails(problem, incumbent.objective) if begin else None
        self.queue = Attempts(
            self.all,
            begin,
            problem.op_count,
            seed=seed,
            fits=self._fits,
            small=self.pairs and problem.op_count <= SMALL_WITH_PAIRS,
        )

    @property
    def finished(self) -> bool:
        """Whether nothing is left to try."""
        return self.queue.why_ended is not None

    def step(self, runner: Runner) -> None:
        """Try the next relaxation, if it may help."""
        attempt = self.queue.take(self.incumbent.bound.value)
        if attempt is not None:
            self._try(attempt, runner)

    def _fits(self, devices: Devices) -> bool:
        size = model_size(self.problem, devices)
        return size <= min(LARGEST_MODEL, CONSTRAINTS_PER_SECOND * self.incumbent.clock.left)

    def _try(self, attempt: Attempt, runner: Runner) -> None:
        incumbent, devices = self.incumbent, attempt.devices
        bound, value = incumbent.bound.value, incumbent.value
        if value is None:
            return
        target = min(value, bound + round(self.queue.share_of(attempt) * (value - bound)))
        if self.pairs and devices == self.all:
            target = min(
                target, value - 1
            )  # one that is better, or none: finding one again is hard
        model = build_model(
            self.problem,
            incumbent.objective,
            bound,
            target,
            devices,
            line=self.line,
        )
        solver, status = runner.solve(
            model.cp,
            limit=attempt.limit,
            seed=self.seed,
            strong=all(staircase_applies(self.problem, device) for device in devices),
            on_solution=(
                (lambda value: incumbent.offer(model.order(value), SOURCE))
                if devices == self.all
                else None
            ),
            on_bound=lambda found: self._raise(devices, model.bound(whole(found))),
        )
        reach = None
        if status == cp_model.INFEASIBLE:
            self._raise(devices, model.beyond)
        elif status in FOUND:
            self._raise(devices, model.bound(proven_bound(solver)))
            reach = model.bound(round(solver.objective_value))
        self.queue.learn(
            attempt,
            reach=reach,
            infeasible=status == cp_model.INFEASIBLE,
            raised=incumbent.bound.value > bound,
            proven=incumbent.proven,
        )

    def _raise(self, devices: Devices, bound: int) -> None:
        source = SOURCE
        if devices != self.all:
            names = ", ".join(self.problem.device_name(d) for d in sorted(devices))
            source = f"{SOURCE} on {names} alone"
        self.incumbent.raise_bound(Bound(bound, source), PROOFS)


def first_of(problem: Problem, devices: Devices, share: tuple[int, int]) -> list[Devices]:
    """Devices alone, the tightest first, and in turn with them every nth, which see most together.

    Of two devices side by side the second says little more than the first.
    """
    line = sorted(devices)
    alone = [frozenset({device}) for device in _tightest_first(problem, devices)]
    apart = [frozenset(line[::step]) for step in range(len(line) // 2, 1, -1)]
    dealt = (_dealt(each, *share) for each in (alone, apart))
    return [each for both in zip_longest(*dealt) for each in both if each is not None]


def _dealt(every: list[Devices], number: int, count: int) -> list[Devices]:
    """Every one of ``count`` lanes' part; all of them for one lane, from its number on."""
    first = number % max(1, len(every))
    return every[first::count] + (every[:first] if count == 1 else [])


def _tightest_first(problem: Problem, devices: Devices) -> list[int]:
    """Devices by the number of microbatches that their memory admits, from both ends on."""

    def admitted(device: int) -> float:
        slack = problem.devices[device].slack
        held = sum(problem.stages[s].held_after_F for s in problem.stages_on[device])
        return math.inf if slack is None or not held else slack / held

    last = max(devices)
    return sorted(devices, key=lambda d: (admitted(d), min(d, last - d), d))
