"""What a search knows: candidates, the best, bounds of every shape; and how it learns more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from pipesat.bounds.feasibility import preflight
from pipesat.bounds.one_device import closed_form_bound
from pipesat.core.checker import check
from pipesat.core.errors import BadInput, Infeasible
from pipesat.core.problem import Problem
from pipesat.core.result import Baseline, Bound, Improvement
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.timing import time_order
from pipesat.frontier.study import EitherStop, Listener, Solve
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import check_partition
from pipesat.layers.split import FORBIDDEN
from pipesat.layers.stages import problem_of_split
from pipesat.plan.bounds import stage_cost
from pipesat.plan.candidate import Candidate, Key, key_of
from pipesat.plan.recompute import Flags, Recomputation, RecomputeChoice
from pipesat.plan.shapes import shape_name

Orders: TypeAlias = Callable[[Problem, int], Iterator[Schedule]]
"""(problem, effort of 1 or 2) -> hand-written and greedy schedules, timed earliest, as made."""

_LARGEST_TABLE: Final = 4_000_000  # cells
LEAST_SECONDS: Final = 0.05


@dataclass
class ShapeState:
    """What is known of a shape.

    ``listed`` is the value below which all of its partitions are candidates or in ``rest``, the
    bounds of those that are not looked into; ``None`` if they are too many. ``unwritable`` has
    bounds of partitions that no problem can state, as an amount of a stage is too large.
    """

    shape: Pipeline
    bound: Bound | None = None
    why_not: str = ""
    listed: int | None = None
    rest: list[int] = field(default_factory=list)
    unwritable: dict[Key, int] = field(default_factory=dict)

    @property
    def unsolved(self) -> list[int]:
        """Bounds of partitions that are no candidates in every choice that they leave."""
        return [*self.rest, *self.unwritable.values()]


@dataclass
class Known:
    """The state of a search; every method keeps it consistent, so it can end at any time."""

    layers: Layers
    shapes: Sequence[Pipeline]
    objective: Objective
    orders: Orders
    solver: Solve
    recompute: RecomputeChoice = "never"
    time_limit: float = 60.0
    listener: Listener | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.monotonic)
    memo: dict[Key, Candidate | None] = field(default_factory=dict)
    best: Candidate | None = None
    solves: int = 0
    told: tuple[int | None, int | None] | None = None
    contradictions: list[str] = field(default_factory=list)  # of the solver's, proofs refuted

    def __post_init__(self) -> None:
        self.costs: dict[int, Callable[[int, int, int], int]] = {}
        self.states = [ShapeState(shape) for shape in self.shapes]
        self.space = Recomputation.of(self.layers, self.recompute)
        self.layers = self.space.layers

    # What is known

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds until the limit; 0 once it is stopped."""
        return 0.0 if self.stop.is_set() else max(0.0, self.time_limit - self.seconds)

    @property
    def value(self) -> int | None:
        """The best value."""
        return None if self.best is None else self.best.value(self.objective)

    @property
    def candidates(self) -> list[Candidate]:
        """Every partition that one microbatch fits on."""
        return [found for found in self.memo.values() if found is not None]

    @property
    def bound(self) -> Bound | None:
        """What no schedule of any partition of any shape is below; ``None`` before it is known."""
        bounds = [self.bound_of(number) for number, s in enumerate(self.states) if not s.why_not]
        known = [bound for bound in bounds if bound is not None]
        if len(known) < len(bounds):
            return None
        return min(known, key=lambda bound: bound.value, default=None)

    def bound_of(self, number: int) -> Bound | None:
        """What no schedule of any partition of a shape is below, or at least not below the best."""
        state, value = self.states[number], self.value
        if state.bound is None or state.listed is None:
            return state.bound
        bounds = [c.bound for c in self.candidates if c.shape_number == number]
        bounds += [Bound(b, "closed forms of partitions left open") for b in state.unsolved]
        name = shape_name(state.shape)
        bounds.append(Bound(state.listed, f"closed forms of all other partitions ({name})"))
        least = min(bounds, key=lambda bound: bound.value)
        if value is not None and least.value >= value:
            least = Bound(
                value, f"every partition is solved or has a bound that is no less ({name})"
            )
        return max(least, state.bound, key=lambda bound: bound.value)

    def accounted_for(self, number: int) -> bool:
        """Whether every partition of a shape is a candidate, or has a bound of its own kind.

        Not so if they were too many to list, or if one that may still be better than the best has a
        choice of recomputation left open or amounts beyond what a problem can hold.
        """
        state = self.states[number]
        if state.why_not or (state.bound is not None and not self.beatable(state.bound.value)):
            return True
        return state.listed is not None and not any(map(self.beatable, state.unsolved))

    def beatable(self, bound: int) -> bool:
        """Whether something with such a bound may be better than the best."""
        return self.value is None or bound < self.value

    def unresolved(self) -> list[Candidate]:
        """Candidates that may be better than the best, the best itself included."""
        found = [c for c in self.candidates if self.beatable(c.bound.value)]
        return sorted(found, key=self._promise)

    def _promise(self, candidate: Candidate) -> tuple[int, int, Key]:
        value = candidate.value(self.objective)
        promised = candidate.bound.value if value is None else value
        return promised, candidate.bound.value, candidate.key

    # One partition

    def consider(
        self, number: int, partition: tuple[range, ...], wanted: Flags, name: str
    ) -> Candidate | None:
        """Return a partition's candidate, new or known; ``None`` if it breaks rules or memory.

        ``wanted`` are flags of recomputation: the choice says what becomes of them.
        """
        shape = self.shapes[number]
        key = key_of(number, partition, self.space.settled(shape, partition, wanted))
        if key not in self.memo:
            self.memo[key] = self._new(key, partition, name)
        return self.memo[key]

    def _new(self, key: Key, partition: tuple[range, ...], name: str) -> Candidate | None:
        number, _, flags = key
        shape, state = self.shapes[number], self.states[number]
        try:
            check_partition(self.layers, partition, shape.homes)
        except BadInput:
            return None
        try:
            made = self.made(shape, partition, flags, name, number)
            preflight(made.problem)
        except BadInput:  # an amount of a stage is beyond what a problem can hold
            state.unwritable[key] = self.own_bound(number, partition).value
            return None
        except Infeasible:
            return None
        made.prove(self.own_bound(number, partition))
        made.prove(state.bound or made.bound)
        return made

    def made(
        self,
        shape: Pipeline,
        partition: tuple[range, ...],
        wanted: Flags = (),
        name: str = "",
        number: int = -1,
    ) -> Candidate:
        """Return a candidate; without the number of a shape, one that only stands for comparison.

        The only way to make one: what recomputes is what the choice allows.

        Raises
        ------
        BadInput
            If it breaks a flag or a tie.
        """
        flags = self.space.settled(shape, partition, wanted)
        problem = problem_of_split(self.layers, partition, shape, recompute=flags)
        bound = closed_form_bound(problem, self.objective)
        return Candidate(number, shape, partition, flags, problem, name, bound)

    def own_bound(self, number: int, partition: Sequence[range]) -> Bound:
        """What the closed forms of single stages say of a partition, whoever recomputes."""
        cost = self._cost_of(number)
        values = [cost(part.start, part.stop, stage) for stage, part in enumerate(partition)]
        known = (value for value in values if value < FORBIDDEN)
        return Bound(max(known, default=0), "closed form of one stage")

    def _cost_of(self, number: int) -> Callable[[int, int, int], int]:
        """Cost of one stage in a shape, from a table of all if that is not too large."""
        if number not in self.costs:
            shape, count = self.shapes[number], len(self.layers)
            cost = stage_cost(self.layers, shape, self.objective)
            if shape.stages * (count + 1) ** 2 <= _LARGEST_TABLE:
                a, b = np.arange(count + 1)[:, None], np.arange(count + 1)[None, :]
                tables = [
                    np.broadcast_to(cost(a, b, s), (count + 1, count + 1))
                    for s in range(shape.stages)
                ]
                self.costs[number] = lambda a, b, stage: int(tables[stage][a, b])
            else:
                self.costs[number] = lambda a, b, stage: int(
                    cost(np.array([[a]]), np.array([[b]]), stage)[0, 0]
                )
        return self.costs[number]

    def evaluate(self, candidate: Candidate, effort: int, seconds: float | None = None) -> None:
        """Make hand-written and greedy schedules of a candidate, keep what the checker passes."""
        if candidate.effort >= effort or candidate.proven(self.objective):
            return
        expires = time.monotonic() + (self.left if seconds is None else seconds)
        for schedule in self.orders(candidate.problem, effort):
            self.offer(candidate, schedule)
            over = time.monotonic() > expires and candidate.schedules
            if over or self.stop.is_set() or candidate.proven(self.objective):
                break
        candidate.effort = max(candidate.effort, effort)

    def offer(self, candidate: Candidate, schedule: Schedule, *, timed: bool = False) -> None:
        """Time a schedule's order for the objective; keep it if it is better and valid."""
        if self.objective == "span" and not timed:
            schedule = time_order(candidate.problem, schedule.order, "span", schedule.source)
        value, known = schedule.value(self.objective), candidate.value(self.objective)
        if (known is not None and value >= known) or check(candidate.problem, schedule):
            return
        candidate.keep(schedule, self.objective)
        if not timed:
            candidate.baseline = Baseline(schedule.source, value)
        self._compare(candidate, schedule.source)

    def _compare(self, candidate: Candidate, source: str) -> None:
        value = candidate.value(self.objective)
        better = value is not None and (self.value is None or value < self.value)
        if better and candidate.shape_number >= 0:
            self.best = candidate
            self._tell(candidate, value, source)

    def _tell(self, candidate: Candidate, value: int | None, source: str) -> None:
        bound = self.bound
        least = None if bound is None else bound.value
        if self.listener is not None and self.told != (value, least):
            self.told = (value, least)
            source = f"{shape_name(candidate.shape)}, {candidate.proposed_by}: {source}"
            self.listener(Improvement(self.seconds, value, least, source))

    def solve(self, candidate: Candidate, seconds: float, *, drop: bool = True) -> None:
        """Solve a candidate; with ``drop``, only until it is known not to be better than the best.

        The best of the greedy schedules and all that are known are what it starts from.
        """
        enough = EitherStop(self.stop)
        rival = self.value if candidate is not self.best else None

        def listen(improvement: Improvement) -> None:
            candidate.history += (improvement._replace(seconds=self.seconds),)
            bound = improvement.bound
            if drop and rival is not None and bound is not None and bound >= rival:
                enough.set()
            value = improvement.value
            if value is not None and candidate.shape_number >= 0 and self.beatable(value):
                self._tell(candidate, value, improvement.source)

        result = self.solver(
            candidate.problem,
            starts="greedy" if candidate.effort < 3 else "none",
            time_limit=max(LEAST_SECONDS, min(seconds, self.left)),
            schedules=candidate.schedules,
            known_bound=candidate.bound,
            listener=listen,
            stop=enough,
        )
        self.solves += 1
        self.contradictions += result.contradictions
        candidate.effort = 3
        if result.lower_bound is not None:
            candidate.prove(result.lower_bound)
        if result.baseline is not None:
            known = candidate.baseline
            if known is None or result.baseline.value < known.value:
                candidate.baseline = result.baseline
        if result.schedule is not None:
            self.offer(candidate, result.schedule, timed=True)
