"""What a search knows, and what every phase does with a candidate: order it, solve it, tell.

The findings are candidates, the best of them, and bounds of every shape.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pipesat.bounds.feasibility import preflight
from pipesat.choose.candidates import Candidate, Flags, Key, Space, key_of
from pipesat.choose.orders import quick_orders
from pipesat.core.checker import check
from pipesat.core.claims import Bound
from pipesat.core.errors import BadInput, Infeasible
from pipesat.core.result import Baseline, Improvement
from pipesat.core.schedule import Schedule
from pipesat.core.solving import LEAST_SECONDS, Deadline, EitherStop, Listener, Solve
from pipesat.core.timing import retime
from pipesat.layers.pipeline import Pipeline, shape_name
from pipesat.layers.rules import check_partition


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
class Findings:
    """What a search has found; every method keeps it consistent, so a search can end at any time.

    ``memo`` has every partition that was considered, ``None`` for those that break rules or memory;
    ``contradictions`` what the solver said that a checked schedule refutes.
    """

    space: Space
    states: list[ShapeState] = field(init=False)
    memo: dict[Key, Candidate | None] = field(default_factory=dict)
    best: Candidate | None = None
    solves: int = 0
    contradictions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states = [ShapeState(shape) for shape in self.space.shapes]

    @property
    def value(self) -> int | None:
        """The best value."""
        return None if self.best is None else self.best.value

    @property
    def candidates(self) -> list[Candidate]:
        """Every partition that one microbatch fits on."""
        return [found for found in self.memo.values() if found is not None]

    def candidates_of(self, number: int) -> list[Candidate]:
        """Those of one shape."""
        return [found for found in self.candidates if found.shape_number == number]

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
        bounds = [candidate.bound for candidate in self.candidates_of(number)]
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

    @property
    def complete(self) -> bool:
        """Whether every partition of every shape is accounted for."""
        return all(map(self.accounted_for, range(len(self.states))))

    def beatable(self, bound: int) -> bool:
        """Whether something with such a bound may be better than the best."""
        return self.value is None or bound < self.value

    def unresolved(self) -> list[Candidate]:
        """Candidates that may be better than the best, the most promising first."""
        found = [c for c in self.candidates if self.beatable(c.bound.value)]
        return sorted(found, key=promise)

    def require_possible(self) -> None:
        """Raise ``Infeasible`` if there is a reason against every shape."""
        if all(state.why_not for state in self.states):
            reasons = {state.why_not: shape_name(state.shape) for state in self.states}
            said = [f"{name}: {why}" for why, name in reasons.items()]
            layers, more = self.space.layers, ""
            if layers.estimate:
                n = layers.tensor_parallel
                more = f". Tensor parallelism over more than {n} divides weights and activations"
            raise Infeasible(("; ".join(said) if len(said) > 1 else next(iter(reasons))) + more)

    def consider(
        self, number: int, partition: tuple[range, ...], wanted: Flags, name: str
    ) -> Candidate | None:
        """Return a partition's candidate, new or known; ``None`` if it breaks rules or memory.

        ``wanted`` are flags of recomputation: the choice says what becomes of them.
        """
        shape = self.states[number].shape
        key = key_of(number, partition, self.space.settled(shape, partition, wanted))
        if key not in self.memo:
            self.memo[key] = self._new(key, partition, name)
        return self.memo[key]

    def _new(self, key: Key, partition: tuple[range, ...], name: str) -> Candidate | None:
        number, _, flags = key
        state = self.states[number]
        try:
            check_partition(self.space.layers, partition, state.shape.homes)
        except BadInput:
            return None
        try:
            made = self.space.made(state.shape, partition, flags, name, number)
            preflight(made.problem)
        except BadInput:  # an amount of a stage is beyond what a problem can hold
            state.unwritable[key] = self.space.own_bound(number, partition)
            return None
        except Infeasible:
            return None
        made.prove(state.bound or made.bound)
        return made


def promise(candidate: Candidate) -> tuple[int, int, Key]:
    """Key to sort by: the value, or the bound before there is one."""
    value, bound = candidate.value, candidate.bound.value
    return bound if value is None else value, bound, candidate.key


@dataclass
class Search:
    """What is known, the means to learn more, and the time there is."""

    known: Findings
    solver: Solve
    deadline: Deadline
    listener: Listener | None = None
    told: tuple[int | None, int | None] | None = None

    def evaluate(self, candidate: Candidate, effort: int, seconds: float | None = None) -> None:
        """Make hand-written and greedy schedules of a candidate, keep what the checker passes."""
        if candidate.effort >= effort or candidate.proven:
            return
        expires = time.monotonic() + (self.deadline.left if seconds is None else seconds)
        for schedule in quick_orders(candidate.problem, effort):
            self.offer(candidate, schedule)
            over = time.monotonic() > expires and candidate.schedules
            if over or self.deadline.stop.is_set() or candidate.proven:
                break
        candidate.effort = max(candidate.effort, effort)

    def offer(self, candidate: Candidate, schedule: Schedule) -> None:
        """Time the order of a hand-written schedule for the objective; keep it if it is better."""
        objective = candidate.objective
        if objective == "span":
            schedule = retime(candidate.problem, schedule, "span", schedule.source)
        if self._kept(candidate, schedule):
            candidate.baseline = Baseline(schedule.source, schedule.value(objective))

    def _kept(self, candidate: Candidate, schedule: Schedule) -> bool:
        """Keep a schedule if it is the candidate's best and valid; whether it is."""
        value = schedule.value(candidate.objective)
        worse = candidate.value is not None and value >= candidate.value
        if worse or check(candidate.problem, schedule):
            return False
        candidate.keep(schedule)
        if candidate.shape_number >= 0 and self.known.beatable(value):
            self.known.best = candidate
            self._tell(candidate, value, schedule.source)
        return True

    def _tell(self, candidate: Candidate, value: int | None, source: str) -> None:
        bound = self.known.bound
        least = None if bound is None else bound.value
        if self.listener is not None and self.told != (value, least):
            self.told = (value, least)
            source = f"{shape_name(candidate.shape)}, {candidate.proposed_by}: {source}"
            unit = self.known.space.layers.time_unit
            self.listener(Improvement(self.deadline.seconds, value, least, source, unit))

    def solve(self, candidate: Candidate, seconds: float, *, drop: bool = True) -> None:
        """Solve a candidate; with ``drop``, only until it is known not to be better than the best.

        The best of the greedy schedules and all that are known are what it starts from.
        """
        known = self.known
        enough = EitherStop(self.deadline.stop)
        rival = known.value if candidate is not known.best else None

        def listen(improvement: Improvement) -> None:
            candidate.history += (improvement._replace(seconds=self.deadline.seconds),)
            bound = improvement.bound
            if drop and rival is not None and bound is not None and bound >= rival:
                enough.set()
            value = improvement.value
            if value is not None and candidate.shape_number >= 0 and known.beatable(value):
                self._tell(candidate, value, improvement.source)

        result = self.solver(
            candidate.problem,
            starts="greedy" if candidate.effort < 3 else "none",
            time_limit=max(LEAST_SECONDS, min(seconds, self.deadline.left)),
            schedules=candidate.schedules,
            known_bound=candidate.bound,
            listener=listen,
            stop=enough,
        )
        known.solves += 1
        known.contradictions += result.contradictions
        candidate.effort = 3
        if result.bound is not None:
            candidate.prove(result.bound)
        found = [one for one in (candidate.baseline, result.baseline) if one is not None]
        candidate.baseline = min(found, key=lambda one: one.value, default=None)
        if result.schedule is not None:
            self._kept(candidate, result.schedule)
