"""Which stretch to ask about next, and what follows for the whole run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from ortools.sat.python import cp_model

from pipesat.core.claims import Bound
from pipesat.core.ops import PHASE_OF, Phase, Unreadable, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.timing import time_order
from pipesat.solver.model.left_out import with_microbatches
from pipesat.solver.model.memory import staircase_applies
from pipesat.solver.model.model import CONSTRAINTS_PER_SECOND, model_size
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.times import model_times
from pipesat.solver.model.variables import splits
from pipesat.solver.proof.rounds import Rounds
from pipesat.solver.proof.stretches import Debt, Part, stretch_model
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import FOUND, PROOFS, Runner

SOURCE = "CP-SAT on stretches of microbatches"
_PATIENCE = 2  # stretches of a part in a row without an outcome that end it for this round
_FINE = 11  # a value is known well enough within 2 to the minus this of it
_MOST_BEFORE = 2  # microbatches that a debt is of, per stage
_LONGER = 1.2  # from one length to the next
_PARTS: tuple[Part, ...] = ("step", "last", "first")


class Known:
    """Least values of stretches, none below ``floor``. Other parts and steps add up."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.least: dict[Part, dict[int, int]] = {part: {} for part in _PARTS}

    def learn(self, part: Part, n: int, value: int) -> None:
        """Take in a bound."""
        self.least[part][n] = max(value, self.least[part].get(n, value))

    def of(self, part: Part, n: int) -> int:
        """Return the best bound of a stretch."""
        known = {0: 0} if part == "step" else self.least[part]
        steps = self._steps(n)
        sums = (value + steps[n - k] for k, value in known.items() if k <= n)
        return max(sums, default=self.floor)

    def whole(self, n: int) -> int:
        """Return the bound that follows for a run of n microbatches."""
        steps = self._steps(n)
        first, last = {0: 0} | self.least["first"], self.least["last"]
        sums = (
            start + steps[n - i - j] + end
            for i, start in first.items()
            for j, end in last.items()
            if i + j <= n
        )
        return max([0, *sums])

    def _steps(self, most: int) -> list[int]:
        sums = [0]
        for size in range(1, most + 1):
            steps = (sums[size - n] + x for n, x in self.least["step"].items() if n <= size)
            sums.append(max(steps, default=self.floor))
        return sums


class Stretches:
    """Raises the bound of a long run without pairs; for one lane at a time. Needs a schedule."""

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, seed: int, staircase: bool = True
    ) -> None:
        self.problem, self.incumbent, self.seed = problem, incumbent, seed
        self.staircase = staircase
        self.first = problem.routes[0].stages[0]
        self.microbatches = problem.routes[0].microbatches
        self.all = frozenset(d for d, stages in enumerate(problem.stages_on) if stages)
        device = problem.stages[self.first].device
        under_way = _most_under_way(problem, _schedule(incumbent))
        self.debt = Debt(device, min(under_way, _MOST_BEFORE * len(problem.stages)))
        half = dict.fromkeys(problem.stages[s].device for s in problem.routes[0].stages)
        near = frozenset([*half][: -(-len(half) // 2)])
        self.kept = tuple(dict.fromkeys((self.all, near)))
        self.stairs = staircase and all(staircase_applies(problem, d) for d in self.all)
        every = model_times(problem, 0).duration.values()
        self.dynamic = self.stairs and all(min(lengths) > 0 for lengths in every)
        self.known = Known(-self.debt.most(problem))
        lengths = tuple(_longer_and_longer(self.microbatches))
        self.rounds: Rounds[Part] = Rounds(dict.fromkeys(_PARTS, lengths), _PATIENCE)
        self._measured: tuple[Schedule, tuple[list[int], list[int], int]] | None = None
        self.reach: dict[tuple[Part, int], int] = {}
        self.spent = 0.0
        self.finished = False

    @property
    def tried(self) -> int:
        """Models that were solved."""
        return self.rounds.tried

    def step(self, runner: Runner) -> None:
        """Ask about one stretch, and raise the bound by what follows."""
        run = self.rounds.next(self._left)
        if run is None:
            self.finished = True
            return
        before = runner.spent
        if self._settle(*run, runner):
            self.rounds.settled.add(run)
        self.spent += runner.spent - before
        self.finished = self.finished or not self.incumbent.trusts(PROOFS)

    def _settle(self, part: Part, n: int, runner: Runner) -> bool:
        """Ask about a stretch until its value is known; return whether it is."""
        value = self._value_of(part, n)
        high = min(value, self.reach.get((part, n), value))
        while not self.incumbent.clock.over and not self.incumbent.proven:
            low = self.known.of(part, n)
            if low > value:
                what = f"a stretch of {n} microbatches"
                self.incumbent.refute(PROOFS, Bound(low, SOURCE), what, value)
                return False
            fine = high - low <= max(0, high) >> _FINE
            if low >= high or (fine and (part, n) in self.reach):
                return True
            most = high - 1 if fine else (low + high) // 2
            reach = self._ask(part, n, low, most, runner)
            if reach is None:
                return False
            if reach <= most:
                high = self.reach[part, n] = reach
            elif fine:
                return True
        return False

    def _ask(self, part: Part, n: int, least: int, most: int, runner: Runner) -> int | None:
        """Return the value of a stretch of at most ``most``; if there is none, something above."""
        few = with_microbatches(self.problem, [self.debt.before + n])
        for devices in self.kept:
            seconds = min(self.rounds.limit, self._left)
            if model_size(few, devices) > CONSTRAINTS_PER_SECOND * seconds:
                continue
            model = stretch_model(
                self.problem,
                self.debt,
                part,
                n,
                self.incumbent.objective,
                least,
                most,
                devices,
                staircase=self.staircase,
            )
            if model is None:
                return None
            solver, status = runner.solve(
                model.variables.cp,
                limit=self.rounds.limit,
                seed=self.seed,
                strong=self.stairs and not self.dynamic,
                dynamic=self.dynamic,
            )
            self.rounds.tried += 1
            if status == cp_model.INFEASIBLE:
                self.known.learn(part, n, model.beyond)
                bound = Bound(self.known.whole(self.microbatches), SOURCE)
                self.incumbent.raise_bound(bound, PROOFS)
                return model.beyond
            if status in FOUND and devices == self.all:
                return model.variables.times.unit * solver.value(model.value)
            if status in FOUND:
                return None
        return None

    @property
    def _left(self) -> float:
        return self.incumbent.clock.left

    def _value_of(self, part: Part, n: int) -> int:
        """Return the least value that a stretch has in the best schedule."""
        starts, debts, end = self._known_schedule()
        at = [start + debt for start, debt in zip(starts, debts, strict=True)]
        if part == "first":
            return at[n] - at[0]
        if part == "last":
            return end - at[-n]
        return min(later - earlier for earlier, later in zip(at, at[n:], strict=False))

    def _known_schedule(self) -> tuple[list[int], list[int], int]:
        schedule = _schedule(self.incumbent)
        if self._measured is None or self._measured[0] is not schedule:
            objective = self.incumbent.objective
            earliest = schedule  # in multiples of the model's unit, as the argument wants
            if objective == "makespan":
                earliest = time_order(self.problem, schedule.order)
            found = measured(self.problem, earliest, self.debt, objective)
            self._measured = schedule, found
        return self._measured[1]


def _longer_and_longer(microbatches: int) -> Iterator[int]:
    n = 1
    while n < microbatches:
        yield n
        n = max(n + 1, int(n * _LONGER))


def _schedule(incumbent: Incumbent) -> Schedule:
    if incumbent.schedule is None:
        raise ValueError("stretches need a schedule to start from")
    return incumbent.schedule


def measured(
    problem: Problem, schedule: Schedule, debt: Debt, objective: Objective
) -> tuple[list[int], list[int], int]:
    """Return when microbatches enter, the debt at each of these times, and when all has ended.

    Microbatches have the numbers that the order theorem gives them; where the model splits all
    backwards, a fused one counts as both parts in a row.
    """
    (route,) = problem.routes
    first = problem.stages[route.stages[0]].device
    known, end = gains(problem), 0
    rows: dict[tuple[int, Phase], list[tuple[int, int, bool]]] = defaultdict(list)
    for device, timed in schedule:
        if objective == "makespan" or device == first:
            end = max(end, timed.end)
        for op in members(timed.item) if not isinstance(timed.item, Unreadable) else ():
            start, stage = timed.start, problem.stages[op.stage]
            if op.kind == "BW" and splits(problem, op.stage, known):
                rows[op.stage, "B"].append((start, stage.B, True))
                rows[op.stage, "W"].append((start + stage.B, stage.W, True))
            else:
                alone = start, timed.end - start, op.kind != "BW"
                rows[op.stage, PHASE_OF[op.kind]].append(alone)
    starts = [start for start, *_ in sorted(rows[route.stages[0], "F"])]
    debts = [0] * len(starts)
    for own in problem.stages_on[debt.device]:
        backwards = sorted(rows[own, "B"])
        split = [number for number, (*_, parted) in enumerate(backwards) if parted]
        numbered = [*enumerate(sorted(rows[own, "F"])), *enumerate(backwards)]
        numbered += zip(split, sorted(rows[own, "W"]), strict=True)
        for number, (start, length, _) in numbered:
            for k in range(number + 1, min(number + debt.before + 1, len(starts))):
                debts[k] += length * (start >= starts[k])
    return starts, debts, end


def _most_under_way(problem: Problem, schedule: Schedule) -> int:
    """Return how many microbatches are between their first F and their last backward at most."""
    first = problem.routes[0].stages[0]
    changes = []
    for _, timed in schedule:
        for op in members(timed.item) if not isinstance(timed.item, Unreadable) else ():
            if op.stage == first and op.kind == "F":
                changes.append((timed.start, 1))
            elif op.stage == first and op.kind != "W":
                changes.append((timed.end, -1))
    return max(accumulate(change for _, change in sorted(changes)))
