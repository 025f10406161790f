"""One run of list scheduling that pairs greedily: see :mod:`pipesat.heuristics.greedy_pairs`."""

from __future__ import annotations

from itertools import combinations, islice
from typing import NamedTuple

from pipesat.core.ops import PHASE_OF, Item, Kind, Op, OpKind, Pair
from pipesat.core.problem import Problem
from pipesat.core.rules import duration, in_order, pair_time, pair_time_of_kinds
from pipesat.heuristics.list_scheduling import Policy, Simulation


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
        launched = self.problem.previous[first.stage] is None
        route = self.problem.route_of[first.stage]
        self.started["F"][first.stage] += 1
        self.active[device] += self.activation(first)
        if launched:
            self.launched[device].append((first.microbatch, route))
        safe = self.forward_is_safe(device, second)
        if launched:
            self.launched[device].pop()
        self.active[device] -= self.activation(first)
        self.started["F"][first.stage] -= 1
        return safe
