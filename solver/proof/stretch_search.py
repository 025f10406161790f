"""Which stretch to ask about next, and what follows for the whole run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, takewhile

from ortools.sat.python import cp_model

from pipesat.core.claims import Bound
from pipesat.problem.ops import PHASE_OF, Phase, Unreadable, members
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective, Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.route_ways import devices_of
from pipesat.solver.lanes.clock import CONSTRAINTS_PER_SECOND
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import FOUND, PROOFS, Runner
from pipesat.solver.model.left_out import with_microbatches
from pipesat.solver.model.memory import staircase_applies
from pipesat.solver.model.model import model_size
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.variables import splits
from pipesat.solver.proof.known_stretches import KnownStretches
from pipesat.solver.proof.rounds import Rounds
from pipesat.solver.proof.stretches import Debt, Part, stretch_model

SOURCE = "CP-SAT on stretches of microbatches"
_PER_DEVICE = 2  # a run is long if it has more microbatches per device
_VERY_LONG = 16  # microbatches per device: ends add little, and wait for steps of their length
_FINE = 64  # known well enough: values that differ by less than a part of the gap over this
_MOST_BEFORE = 2  # microbatches that a debt is of, per stage
_LONGER = 1.2  # from one length to the next
_SOME = 8  # devices that are asked about before all, spread over the route
_PARTS: dict[Part, int] = {"pace": 4, "step": 2, "last": 2, "first": 2}  # parts of what is open


def is_long(problem: Problem) -> bool:
    """Whether a single route has many microbatches, alike, whose memory may slow them down."""
    if (
        not problem.plain
        or len(problem.routes) > 1
        or all(device.slack is None for device in problem.devices)
    ):
        return False
    return problem.routes[0].microbatches > _PER_DEVICE * len(problem.devices)


class Stretches:
    """Raises the bound of a long run without pairs; for one lane at a time. Needs a schedule."""

    def __init__(self, problem: Problem, incumbent: Incumbent, *, seed: int) -> None:
        self.problem, self.incumbent, self.seed = problem, incumbent, seed
        self.stairs = all(staircase_applies(problem, d) for d in problem.busy)
        self.microbatches = problem.routes[0].microbatches
        self.finished = False
        self.first = problem.routes[0].stages[0]
        self.all = frozenset(problem.busy)
        self.steps_first = self.microbatches > _VERY_LONG * len(problem.devices)
        device = problem.stages[self.first].device
        under_way = _most_under_way(problem, self._schedule())
        along = devices_of(problem)
        some = frozenset(along[:: max(1, len(along) // _SOME)])
        self.kept = tuple(dict.fromkeys((some, self.all)))
        self.debt = Debt(device, min(under_way, _MOST_BEFORE * len(problem.stages)))
        self.known = KnownStretches(-self.debt.most(problem))
        begun, start, end = self.debt.least_ends(problem)
        self.known.learn("first", begun, start)
        self.known.learn("last", 1, end)
        longer = _longer_and_longer(self.microbatches)
        few = self.kept[0]
        self.lengths = [*takewhile(lambda n: self._fits(n, few, self._left), longer)]
        for n in [1, *self.lengths]:
            self.known.learn("step", n, self.debt.least_step(problem, n))
        lengths: dict[Part, list[int]] = dict.fromkeys(_PARTS, self.lengths)
        lengths["pace"] = [n for n in self.lengths if n >= under_way][1::2]
        if self.steps_first:  # longer ones say less than paces
            lengths["step"] = [n for n in self.lengths if n < under_way]
        self.rounds = Rounds(lengths, self._pays)
        self._measured: tuple[Schedule, tuple[list[int], int]] | None = None
        self.reach: dict[tuple[Part, int], int] = {}

    @property
    def tried(self) -> int:
        """Models that were solved."""
        return self.rounds.tried

    @property
    def _left(self) -> float:
        return self.incumbent.clock.left

    def step(self, runner: Runner) -> None:
        """Ask about one stretch, and raise the bound by what follows."""
        part = self.rounds.next(self._left)
        if part is None:
            self.finished = True
            return
        if self._settle(*part, runner):
            self.rounds.settled.add(part)
        self.finished = self.finished or not self.incumbent.trusts(PROOFS)

    def _settle(self, part: Part, n: int, runner: Runner) -> bool:
        """Ask about a stretch until its value is known, or too low to matter; return whether."""
        while not self.incumbent.clock.over and not self.incumbent.proven:
            low, high = self.known.of(part, n), self._most(part, n)
            if low > self._value_of(part, n):
                what = f"a stretch of {n} microbatches"
                self.incumbent.refute(PROOFS, Bound(low, SOURCE), what, self._value_of(part, n))
                return False
            fine = self._fine(part, n, low, high)
            if low >= high or (fine and (part, n) in self.reach) or not self._pays(part, n):
                return True
            from_here = self._least_that_pays(part, n, low, high)
            most = high - 1 if fine else from_here + (high - from_here) // _PARTS[part]
            reach = self._ask(part, n, low, most, runner)
            if reach is None:
                return False
            if reach <= most:
                self.reach[part, n] = reach
            elif fine:
                return True
        return False

    def _pays(self, part: Part, n: int) -> bool:
        """Whether more would follow for the run if the best stretch seen were the best there is.

        Or whether what is known is above it, and therefore wrong. The ends of a very long run wait
        for a step or pace of their length.
        """
        inner = {("step", n), ("pace", n)}
        if part in self.known.ends and self.steps_first and not inner & self.rounds.settled:
            return False
        low, high = self.known.of(part, n), self._most(part, n)
        known = max(self.incumbent.bound.value, self._hope(part, n, low))
        return low > high or self._hope(part, n, high) > known

    def _most(self, part: Part, n: int) -> int:
        """Return the least value of a stretch that any schedule was seen to have."""
        value = self._value_of(part, n)
        return min(value, self.reach.get((part, n), value))

    def _hope(self, part: Part, n: int, value: int) -> int:
        """Return the run's bound if a stretch has this value, and other ends that of the best."""
        hoped = KnownStretches(self.known.steps.floor)
        hoped.steps.known = dict(self.known.steps.known)
        hoped.steps.paces = dict(self.known.steps.paces)
        short = [k for k in self.lengths if k <= max(n, self.debt.before)]
        for end, known in self.known.ends.items():
            seen = {k: self._value_of(end, k) for k in short if end != part}
            hoped.ends[end] = known | seen
        hoped.learn(part, n, value)
        return hoped.whole(self.microbatches)

    def _fine(self, part: Part, n: int, low: int, high: int) -> bool:
        """Whether it makes little difference which of two values a stretch has."""
        gap = (self.incumbent.value or 0) - self.incumbent.bound.value
        differs = self._hope(part, n, high) - self._hope(part, n, low)
        return high - low <= 1 or _FINE * differs <= gap * _PARTS[part]

    def _least_that_pays(self, part: Part, n: int, low: int, high: int) -> int:
        """Return about the least value in ``[low, high]`` from which more follows than is known."""
        known = max(self.incumbent.bound.value, self._hope(part, n, low))
        while not self._fine(part, n, low, high):
            middle = (low + high) // 2
            if self._hope(part, n, middle) > known:
                high = middle
            else:
                low = middle
        return low

    def _ask(self, part: Part, n: int, least: int, most: int, runner: Runner) -> int | None:
        """Return the value of a stretch of at most ``most``; if there is none, something above."""
        reach = None
        for devices in self.kept:
            if not self._fits(n, devices, min(self.rounds.limit, self._left)):
                return None
            model = stretch_model(
                self.problem,
                self.debt,
                part,
                n,
                self.incumbent.objective,
                least,
                most,
                devices,
            )
            if model is None:
                return None
            dynamic = self.stairs and all(map(min, model.variables.times.duration.values()))
            self.rounds.tried += 1
            solver, status = runner.solve(
                model.variables.cp,
                limit=self.rounds.limit,
                seed=self.seed,
                strong=self.stairs and not dynamic,
                dynamic=dynamic,
                linear=False,
            )
            if status == cp_model.INFEASIBLE:
                self.known.learn(part, n, model.beyond)
                bound = Bound(self.known.whole(self.microbatches), SOURCE)
                self.incumbent.raise_bound(bound, PROOFS, max(self.known.steps.rate, Fraction(0)))
                return model.beyond
            if status not in FOUND:
                return None
            reach = model.variables.times.unit * solver.value(model.value)
        return reach

    def _fits(self, n: int, devices: frozenset[int], seconds: float) -> bool:
        """Whether a model can be built in the time that it may take."""
        few = with_microbatches(self.problem, [self.debt.before + n])
        return model_size(few, devices) <= CONSTRAINTS_PER_SECOND * seconds

    def _value_of(self, part: Part, n: int) -> int:
        """Return the least value that a stretch has in the best schedule."""
        at, end = self._known_schedule()
        if part == "first":
            return at[n] - at[0]
        if part == "last":
            return end - at[-n]
        if part == "pace":
            parts = (at[k : k + n + 1] for k in range(len(at) - n))
            return min(
                max(n * (x - own[0]) // j for j, x in enumerate(own[1:], 1)) for own in parts
            )
        return min(later - earlier for earlier, later in zip(at, at[n:], strict=False))

    def _schedule(self) -> Schedule:
        if self.incumbent.schedule is None:
            raise ValueError("stretches need a schedule to start from")
        return self.incumbent.schedule

    def _known_schedule(self) -> tuple[list[int], int]:
        """Return X + D of every microbatch in the best schedule, and its end."""
        schedule = self._schedule()
        if self._measured is None or self._measured[0] is not schedule:
            objective = self.incumbent.objective
            earliest = schedule  # in multiples of the model's unit, as the argument wants
            if objective == "makespan":
                earliest = time_order(self.problem, schedule.order)
            starts, debts, end = measured(self.problem, earliest, self.debt, objective)
            at = [start + debt for start, debt in zip(starts, debts, strict=True)]
            self._measured = schedule, (at, end)
        return self._measured[1]


def _longer_and_longer(microbatches: int) -> Iterator[int]:
    n = 1
    while n < microbatches:
        yield n
        n = max(n + 1, int(n * _LONGER))


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
    numbered: list[tuple[int, tuple[int, int, bool]]] = []
    for own in problem.stages_on[debt.device]:
        backwards = sorted(rows[own, "B"])
        split = [number for number, (*_, parted) in enumerate(backwards) if parted]
        numbered += [*enumerate(sorted(rows[own, "F"])), *enumerate(backwards)]
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
