"""List scheduling that pairs greedily by what is saved, for any placement, cap and kinds of pairs.

A device that falls idle takes, of all pairs of ops that could start, the one that saves most time
compared with its members alone. Where there is none it waits if a partner for what it could run is
known to arrive soon enough, and runs one op as :mod:`pipesat.heuristics.list_scheduling` would
otherwise. What keeps memory safe there keeps it safe here: the F of a pair starts only where it
could start alone, whatever the other member frees.

How many microbatches may be under way on each stage decides which ops meet as pairs, and no formula
for it suits every placement and capacity. From the limits of the best policy on, some stages'
limits change by one, or the wait for partners does; what is no worse is kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations, islice
from typing import NamedTuple

from pipesat.bounds.feasibility import capacities_by_order, lacking, preflight
from pipesat.core.errors import Infeasible, NotApplicable
from pipesat.core.ops import PHASE_OF, Item, Kind, Op, OpKind, Pair
from pipesat.core.plain_problems import without_modes
from pipesat.core.problem import Problem
from pipesat.core.rules import duration, in_order, pair_time, pair_time_of_kinds
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import time_order
from pipesat.heuristics.list_scheduling import Policy, Simulation
from pipesat.heuristics.registry import GiveUp, published, unless_given_up


class _Ready(NamedTuple):
    """An op that could start, whether it is the first in its queue, and when its input is there."""

    op: Op
    first: bool
    arrival: int


class PairingSimulation(Simulation):
    """One run of one policy; ``wait``: for a partner, in parts of what the pair would save."""

    def __init__(self, problem: Problem, policy: Policy, wait: float) -> None:
        super().__init__(problem, policy)
        self.wait = wait
        self.saves: dict[tuple[OpKind, OpKind], int] = {}  # where microbatches are alike

    def step(self, device: int, now: int) -> bool:
        """Start a pair or an op on an idle device; False if it has to, or chooses to, wait."""
        best: tuple[int, ...] = ()
        soon = False
        choice: Item | None = None
        for a, b in combinations(self._queued(device, now), 2):
            saved = self._saved(a, b)
            early, late = sorted((a.arrival, b.arrival))
            if saved <= 0:
                continue
            if late > now and (soon or early > now or late - now > self.wait * saved):
                continue
            worth = (saved, *self._urgency(a, b))
            if late <= now and worth <= best:
                continue
            pair = in_order(self.problem, Pair(a.op, b.op))
            if not self._fits(device, pair):
                continue
            if late > now:
                soon = True
            else:
                best, choice = worth, pair
        if choice is not None:
            self.start(choice, device, now)
            return True
        return not soon and super().step(device, now)

    def _queued(self, device: int, now: int) -> list[_Ready]:
        """The first two of every queue of the device, in every kind that they could run as."""
        found: list[_Ready] = []
        for stage in self.problem.stages_on[device]:
            data = self.problem.stages[stage]
            backwards: list[Kind] = ["B"] if data.may_split else []
            backwards += ["BW"] if data.may_fuse else []
            queues: list[tuple[str, list[Kind]]] = [("F", ["F"]), ("B", backwards)]
            for phase, kinds in queues:
                done = self.started[phase][stage]
                for place, arrival in enumerate(self.arrivals[phase][stage][done : done + 2]):
                    ops = (Op(stage, kind, done + place) for kind in kinds)
                    found += [_Ready(op, place == 0, arrival) for op in ops]
            for place, microbatch in enumerate(islice(self.pending[stage], 2)):
                found.append(_Ready(Op(stage, "W", microbatch), place == 0, now))
        return found

    def _urgency(self, a: _Ready, b: _Ready) -> tuple[int, int]:
        """Which of two pairs that save as much goes first: the larger one."""
        place = self.problem.place_of
        forwards = [place[x.op.stage] for x in (a, b) if x.op.kind == "F"]
        backwards = [x.op.microbatch for x in (a, b) if x.op.kind in ("B", "BW")]
        depth = sum(forwards) if self.policy.deep_first else -sum(forwards)
        return -sum(backwards), depth

    def _saved(self, a: _Ready, b: _Ready) -> int:
        """Time that a pair saves; 0 if the two may not pair, or not yet."""
        if not (a.first and b.first) and (
            a.first == b.first
            or a.op.stage != b.op.stage
            or PHASE_OF[a.op.kind] != PHASE_OF[b.op.kind]
        ):
            return 0  # only together with the first may the second of its queue start
        if a.op[::2] == b.op[::2]:
            return 0
        if not self.problem.plain:
            time = pair_time(self.problem, a.op, b.op)
            return 0 if time is None else self._alone(a.op) + self._alone(b.op) - time
        kinds = a.op[:2], b.op[:2]
        if kinds not in self.saves:  # of two whose inputs are known, neither waits for the other
            time = pair_time_of_kinds(self.problem, *kinds)
            alone = self._alone(a.op) + self._alone(b.op)
            self.saves[kinds] = 0 if time is None else alone - time
        return self.saves[kinds]

    def _alone(self, op: Op) -> int:
        alone = duration(self.problem, op)
        if op.kind == "BW" and self.problem.stages[op.stage].may_split:
            parts = (op._replace(kind="B"), op._replace(kind="W"))
            return min(alone, sum(duration(self.problem, part) for part in parts))
        return alone

    def _fits(self, device: int, pair: Pair) -> bool:
        """Whether a pair fits into memory, and leaves every launched microbatch able to finish."""
        if not self.memory[device].fits(pair):
            return False
        forwards = sorted((op for op in pair if op.kind == "F"), key=lambda op: op.microbatch)
        backwards = len(pair) - len(forwards)
        for op in forwards:
            limit = self.limit[op.stage]
            ahead = op.microbatch - self.started["B"][op.stage] - backwards
            if limit is not None and ahead >= limit:
                return False
        if not forwards:
            return True
        first, *others = forwards
        if not self.forward_is_safe(device, first):
            return False
        return all(self._safe_after(device, first, op) for op in others)

    def _safe_after(self, device: int, first: Op, second: Op) -> bool:
        """Whether a second forward is safe if a first one has started."""
        known = list(self.launched[device])
        self.started["F"][first.stage] += 1
        self.active[device] += self.activation(first)
        if self.problem.previous[first.stage] is None:
            self.launched[device].append((first.microbatch, self.problem.route_of[first.stage]))
        safe = self.forward_is_safe(device, second)
        self.launched[device] = known
        self.active[device] -= self.activation(first)
        self.started["F"][first.stage] -= 1
        return safe


_FEWEST_OPS = 300  # of a problem; smaller ones are searched as a whole
_MOST_CLIMBED = 150_000  # simulated in all: a few seconds
_MOST_TRIES = 150
_CHANGES = (1, 1, 2, 3)  # stages whose limits change at a time
_CLIMBING_WAITS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
_OTHER_WAIT = 0.2  # probability


class _Place(NamedTuple):
    """What a try was made with, and when it ended."""

    limits: list[int]
    wait: float
    end: int


def climbed(
    problem: Problem, policy: Policy, wait: float, give_up: Callable[[], bool]
) -> Iterator[Order]:
    """Yield better and better orders on a walk from a policy's; none of small problems."""
    if problem.op_count < _FEWEST_OPS:
        return
    chance = random.Random(0)  # noqa: S311 (chance, not secrecy)
    start = PairingSimulation(problem, policy, wait)
    numbers = zip(start.limit, problem.microbatches, strict=True)
    limits = [most if limit is None else min(limit, most) for limit, most in numbers]
    if start.order(give_up) is None:
        return
    here = _Place(limits, wait, max(start.busy_until))
    for _ in range(min(_MOST_TRIES, _MOST_CLIMBED // problem.op_count)):
        limits, wait = list(here.limits), here.wait
        for _ in range(chance.choice(_CHANGES)):
            stage = chance.randrange(len(limits))
            limits[stage] = max(1, limits[stage] + chance.choice((-1, 1)))
        if chance.random() < _OTHER_WAIT:
            wait = chance.choice(_CLIMBING_WAITS)
        simulation = PairingSimulation(problem, policy, wait)
        simulation.limit = list(limits)
        found = simulation.order(give_up)
        if found is None:
            return
        end = max(simulation.busy_until)
        if end < here.end:
            yield found
        if end <= here.end:
            here = _Place(limits, wait, end)


NAME = "greedy-pairs"

_WAITS = (1.0, 2.0, 0.0)
_LIMITS: tuple[tuple[float, int], ...] = ((0.75, 2), (1, 1), (1, 2), (1.25, 1), (1, 3))
_PACES = (2.0, 1.5, 2.5, 3.0)  # of a period without pairs: pairs make it up to half as long
_MOST_OPS = 60_000  # simulated by all policies together: some two seconds
_MOST_POLICIES = 180
_FEWEST = 4


def pairing_policies(problem: Problem) -> Iterator[tuple[Policy, float]]:
    """Yield policies and how long each waits for a partner, the usually best ones first."""
    chunked = any(len(stages) > 1 for stages in problem.stages_on)
    bases = [Policy(in_flight=limit) for limit in _LIMITS[:2]]
    bases += [Policy(pace=pace) for pace in _PACES]
    bases += [Policy(in_flight=limit) for limit in (*_LIMITS[2:], None)]
    for deep_first in (True, False)[: 1 + chunked]:
        for patience in (0.0, 1.0, 0.5):
            for base in bases:
                for wait in _WAITS:
                    yield replace(base, patience=patience, deep_first=deep_first), wait


def paired_schedules(
    problem: Problem,
    give_up: Callable[[], bool] = lambda: False,
    chosen: Iterable[tuple[Policy, float]] | None = None,
) -> Iterator[Schedule]:
    """Yield one schedule per policy, as it is made; each fits into memory.

    ``give_up`` is asked now and then; once it says yes, nothing more is yielded. ``chosen`` are the
    policies; of large problems only as many as take a few seconds together unless given. None is
    made where one microbatch fits only if ops of length zero share instants.
    """
    own, problem = problem, without_modes(problem)
    if lacking(problem, capacities_by_order(problem)):
        return
    for policy, wait in _affordable(problem) if chosen is None else chosen:
        order = PairingSimulation(problem, policy, wait).order(give_up)
        if order is None:
            return
        yield time_order(own, order, source=NAME)


def greedy_schedules(problem: Problem, give_up: GiveUp, among: int = 1) -> Iterator[Schedule]:
    """Yield the schedules of which :data:`greedy_pairs` is the best, as they are made.

    ``among`` so many orders of microbatches, each has its part of the policies.
    """
    best = None
    for choice in _affordable(problem, among):
        for schedule in paired_schedules(problem, give_up, [choice]):
            yield schedule
            value = schedule.makespan, schedule.span
            best = (value, choice) if best is None or value < best[0] else best
    if best is not None:
        _, (policy, wait) = best
        for order in climbed(without_modes(problem), policy, wait, give_up):
            yield time_order(problem, order, source=NAME)


def _affordable(problem: Problem, among: int = 1) -> Iterator[tuple[Policy, float]]:
    most = max(_FEWEST, min(_MOST_POLICIES, _MOST_OPS // problem.op_count) // among)
    return islice(pairing_policies(problem), most)


@published(NAME, placement="any", pairs=True, source="pipesat", splits=True, slow=True)
def greedy_pairs(problem: Problem, give_up: GiveUp) -> Schedule:
    """Return the portfolio's schedule of least makespan, or what climbing from it finds.

    Among equals that of least span.

    Raises
    ------
    NotApplicable
        If the problem has no pairs, or nothing fits into memory.
    """
    if problem.overlap is None:
        raise NotApplicable("the problem allows no pairs (no `overlap`)")
    try:
        preflight(without_modes(problem))
    except Infeasible as error:
        raise NotApplicable("no schedule fits into memory") from error
    made = list(greedy_schedules(problem, give_up))
    unless_given_up(give_up)
    if not made:
        raise NotApplicable("one microbatch fits only if ops of length zero share instants")
    return min(made, key=lambda schedule: (schedule.makespan, schedule.span))
