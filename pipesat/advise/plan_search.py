"""The search over candidates: hand-written orders first, then neighbours, then the solver.

:meth:`Search.run` is the whole of it. Every method keeps what is known consistent, so the search
can end after any of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import chain, product, zip_longest
from math import prod
from operator import attrgetter
from typing import Final

from pipesat import solver
from pipesat.advise.bounds import flags_below, partitions_below, shape_bound
from pipesat.advise.candidates import GREEDY, PUBLISHED, SOLVED, Candidate, Flags, Key
from pipesat.advise.cut_terms import cheapest
from pipesat.advise.orders import quick_orders
from pipesat.advise.proposals import proposals
from pipesat.advise.question import Question
from pipesat.bounds.closed_form import closed_form_bound
from pipesat.bounds.feasibility import preflight
from pipesat.check.checker import check
from pipesat.core.claims import Bound
from pipesat.core.errors import BadInput, Infeasible
from pipesat.core.progress import doing
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import check_partition
from pipesat.layers.stages import problem_of_split
from pipesat.problem.split import LARGEST_COST
from pipesat.schedule.result import Baseline, Improvement
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.solving import LEAST_SECONDS, Deadline, EitherStop, Listener, Starts
from pipesat.schedule.timing import retime
from pipesat.solver.options import SolveOptions

# Shares of the time limit by which each is over in the first pass
_PROPOSING: Final = 0.25
_MOVING: Final = 0.4
_LISTING: Final = 0.55
# Shares of what is left that later passes keep, for listing and solves, and for solves
_MOVED: Final = 0.7
_REST: Final = 0.5
_WIDTH: Final = 4  # candidates whose neighbours are looked at in the first pass
_LISTED: Final = 4000  # partitions of a shape below the best value, likewise
_FARTHER: Final = 4  # times as far, pass by pass
_SURVIVORS: Final = 8  # in the first round of solves
_ROUNDS: Final = 4
_FINALISTS: Final = 2
_FOR_FINALISTS: Final = 0.1  # of the time that is left, for each
_MOST_CHOICES: Final = 32  # of recomputation, of one partition


_value, _promise = attrgetter("value"), attrgetter("promise")


@dataclass
class Search:
    """What is known of a question's candidates, the means to learn more, and the time there is.

    Attributes
    ----------
    memo, of_shape
        Every partition that was considered, ``None`` for those that break rules or memory; and
        those that one microbatch fits on, by their shape.
    bounds, why_not
        Of every shape: what no schedule of it is below, or why it has none.
    listed
        Of a shape: the value below which all of its partitions are candidates or left open.
    left_open
        Bounds of partitions that are not looked into in every choice that they leave, by shape: too
        many choices, or an amount of a stage that no problem can state.
    contradictions
        What the solver said that a checked schedule refutes.
    """

    question: Question
    options: SolveOptions
    deadline: Deadline
    listener: Listener | None = None
    memo: dict[Key, Candidate | None] = field(default_factory=dict)
    of_shape: dict[Pipeline, list[Candidate]] = field(default_factory=dict)
    near: dict[Key, list[Candidate]] = field(default_factory=dict)
    bounds: dict[Pipeline, Bound] = field(default_factory=dict)
    why_not: dict[Pipeline, str] = field(default_factory=dict)
    listed: dict[Pipeline, int] = field(default_factory=dict)
    left_open: dict[Pipeline, dict[tuple[range, ...], int]] = field(default_factory=dict)
    best: Candidate | None = None
    solves: int = 0
    contradictions: list[str] = field(default_factory=list)
    told: tuple[int | None, int | None] | None = None

    def run(
        self,
        known: Iterable[tuple[Candidate, Schedule]] = (),
        compare: Callable[[], None] = lambda: None,
    ) -> None:
        """Search until all is proven, nothing is new, or time is over; each pass looks farther.

        Parameters
        ----------
        known
            Schedules to start from.
        compare
            Called once, when the first pass has the best that hand-written orders make.

        Raises
        ------
        Infeasible
            If no partition of any shape fits into memory.
        BadInput
            If the only shape's flags and ties leave no partition.
        """
        self.bound_shapes()
        for candidate, schedule in known:
            there = candidate.shape in self.shapes
            if there and self.consider(*candidate.key, "a known split") is candidate:
                self.offer(candidate, schedule)
        deadline, width, seen = self.deadline, _WIDTH, -1
        proposing, moving, listing = _PROPOSING, _MOVING, _LISTING
        while seen != len(self.memo):
            first, seen = seen < 0, len(self.memo)
            self.propose(proposing)
            self.descend(width, moving)
            self.list_all(width * _LISTED // _WIDTH, listing)
            if first:
                compare()
                self.polish()
            self.solve_survivors()
            if deadline.left <= LEAST_SECONDS or self.complete:
                return
            left = deadline.left / deadline.limit
            width, listing = _FARTHER * width, 1 - _REST * left
            proposing = moving = 1 - _MOVED * left

    # What is known

    @property
    def value(self) -> int | None:
        """The best value."""
        return None if self.best is None else self.best.value

    @property
    def candidates(self) -> list[Candidate]:
        """Every partition that one microbatch fits on."""
        return [*chain.from_iterable(self.of_shape.values())]

    def candidates_of(self, shape: Pipeline) -> list[Candidate]:
        """Those of one shape."""
        return self.of_shape.get(shape, [])

    @property
    def shapes(self) -> list[Pipeline]:
        """Shapes without a reason against them."""
        return [shape for shape in self.question.shapes if shape not in self.why_not]

    @property
    def bound(self) -> Bound | None:
        """What no schedule of any partition of any shape is below; ``None`` before it is known."""
        bounds = [self.bound_of(shape) for shape in self.shapes]
        known = [bound for bound in bounds if bound is not None]
        return min(known, key=_value, default=None) if len(known) == len(bounds) else None

    def bound_of(self, shape: Pipeline) -> Bound | None:
        """What no schedule of any partition of a shape is below, or at least not below the best."""
        own, value = self.bounds.get(shape), self.value
        if own is None or shape not in self.listed:
            return own
        bounds = [candidate.bound for candidate in self.candidates_of(shape)]
        open_ = self.left_open.get(shape, {}).values()
        bounds += [Bound(least, "closed forms of partitions left open") for least in open_]
        name = shape.geometry.label
        bounds.append(Bound(self.listed[shape], f"closed forms of all other partitions ({name})"))
        least = min(bounds, key=_value)
        if value is not None and least.value >= value:
            text = f"every partition is solved or has a bound that is no less ({name})"
            least = Bound(value, text)
        return max(least, own, key=_value)

    def accounted_for(self, shape: Pipeline) -> bool:
        """Whether every partition of a shape is a candidate, or has a bound of its own kind.

        Not so if they were too many to list, or if one that may still be better than the best has a
        choice of recomputation left open or amounts beyond what a problem can hold.
        """
        own = self.bounds.get(shape)
        if shape in self.why_not or (own is not None and not self.beatable(own.value)):
            return True
        open_ = self.left_open.get(shape, {}).values()
        return shape in self.listed and not any(map(self.beatable, open_))

    @property
    def complete(self) -> bool:
        """Whether every partition of every shape is accounted for."""
        return all(map(self.accounted_for, self.question.shapes))

    def beatable(self, bound: int) -> bool:
        """Whether something with such a bound may be better than the best."""
        return self.value is None or bound < self.value

    def unresolved(self) -> list[Candidate]:
        """Candidates that may be better than the best, the most promising first."""
        found = (c for c in self.candidates if self.beatable(c.bound.value))
        return sorted(found, key=_promise)

    # What it does

    @doing("bounding all splits")
    def bound_shapes(self) -> None:
        """Bound every shape over all of its partitions; raises as :meth:`run`."""
        question = self.question
        for shape in question.shapes:
            try:
                self.bounds[shape] = shape_bound(question.own, shape, question.objective)
            except (BadInput, Infeasible) as error:
                if isinstance(error, BadInput) and len(question.shapes) == 1:
                    raise
                self.why_not[shape] = str(error)
        require_possible(question, self.why_not)

    def consider(
        self, shape: Pipeline, partition: tuple[range, ...], wanted: Flags, name: str
    ) -> Candidate | None:
        """Return a partition's candidate, new or known; ``None`` if it breaks rules or memory.

        ``wanted`` are flags of recomputation: the choice says what becomes of them.
        """
        key = shape, partition, self.question.settled(shape, partition, wanted)
        if key not in self.memo:
            self.memo[key] = self._new(key, name)
        return self.memo[key]

    def _new(self, key: Key, name: str) -> Candidate | None:
        shape, partition, _ = key
        try:
            check_partition(self.question.layers, partition, shape.homes)
        except BadInput:
            return None
        try:
            made = self.question.candidate(*key)
            preflight(made.problem)
        except BadInput:  # an amount of a stage is beyond what a problem can hold
            self._leave_open(shape, partition)
            return None
        except Infeasible:
            return None
        self.of_shape.setdefault(shape, []).append(made)
        made.proposed_by = made.proposed_by or name
        made.prove(self.bounds.get(shape, made.bound))
        self._take(made, known=True)
        return made

    def _take(self, candidate: Candidate, *, known: bool) -> bool:
        """Let a candidate of the search be the best if it is; whether it is."""
        value = candidate.value
        better = known and value is not None and self.beatable(value)
        if better:
            self.best = candidate
        return better

    @doing("proposing splits")
    def propose(self, share: float) -> None:
        """Evaluate what exact programmes propose under several stand-ins, of all shapes in turn."""
        for proposed in zip_longest(*map(self._proposed, self.shapes)):
            for candidate in filter(None, proposed):
                if self.beatable(candidate.bound.value):
                    self.evaluate(candidate, GREEDY)
                if self.best is not None and self.deadline.past(share):
                    return

    def _proposed(self, shape: Pipeline) -> Iterator[Candidate | None]:
        for proposal in proposals(self.question, shape):
            yield self.consider(shape, *proposal)

    @doing("moving layers")
    def descend(self, width: int, share: float) -> None:
        """Evaluate neighbours of the best ``width`` candidates, the most promising ones first.

        A neighbour has one layer moved, or one stage's recomputation toggled.
        """
        while not self.deadline.past(share):
            bound = self.bound
            if bound is not None and not self.beatable(bound.value):
                return
            made = (candidate for candidate in self.candidates if candidate.schedules)
            leading = nsmallest(width, made, key=_promise)
            near = next(filter(None, (self._next_to(one, share) for one in leading)), None)
            if near is None:
                return
            self.evaluate(near, GREEDY)

    def _next_to(self, candidate: Candidate, share: float) -> Candidate | None:
        """The most promising neighbour that was not looked at and may be better than the best."""
        key = candidate.key
        if key not in self.near:
            name, found = candidate.proposed_by.removesuffix(", moved") + ", moved", []
            for partition, flags in self.question.around(candidate):
                found.append(self.consider(candidate.shape, partition, flags, name))
                if self.deadline.past(share):
                    return None
            self.near[key] = sorted(filter(None, found), key=_promise, reverse=True)
        near = self.near[key]
        while near:
            one = near.pop()
            if one.effort == 0 and self.beatable(one.bound.value):
                return one
        return None

    @doing("listing splits")
    def list_all(self, most: int, share: float) -> None:
        """List every partition that closed forms leave below the best value, if at most ``most``.

        Raises
        ------
        Infeasible
            If that shows that none fits into memory.
        """
        if self.value is None:
            for shape in self.shapes:
                alone = not self.candidates_of(shape) and self._list(
                    shape, LARGEST_COST, most, share
                )
                if alone and not self.left_open.get(shape) and not self.candidates_of(shape):
                    self.why_not[shape] = "no partition fits into memory: every one was looked at"
            require_possible(self.question, self.why_not)
        for shape, bound in self.bounds.items():
            value = self.value
            if value is None or not self.beatable(bound.value):
                continue
            if value > self.listed.get(shape, -1) and self._list(shape, value, most, share):
                self.listed[shape] = value
        for candidate in self.unresolved():
            if self.deadline.past(share):
                return
            if candidate.effort == 0 and self.beatable(candidate.bound.value):
                self.evaluate(candidate, GREEDY)

    def _list(self, shape: Pipeline, value: int, most: int, share: float) -> bool:
        """Make candidates of all partitions below a value; whether that was possible."""
        question, count = self.question, 0
        found = partitions_below(question.own, shape, question.objective, value)
        if found is None:
            return False
        for partition in found:
            if count >= most or self.deadline.past(share):
                return False
            if partition is None:
                continue
            count += 1
            allowed: Sequence[Sequence[bool]] = []
            if question.free:
                allowed = flags_below(question.own, shape, question.objective, partition, value)
            if prod(map(len, allowed)) > _MOST_CHOICES:
                self._leave_open(shape, partition)
                continue
            for flags in product(*allowed):
                self.consider(shape, partition, flags, "one of all")
        return True

    def _leave_open(self, shape: Pipeline, partition: tuple[range, ...]) -> None:
        """Note what bounds a partition whatever recomputes: its shape, if no problem states it."""
        bounds = [self.bounds[shape].value]
        with contextlib.suppress(BadInput):
            least = problem_of_split(cheapest(self.question.own), partition, shape)
            bounds.append(closed_form_bound(least, self.question.objective).value)
        self.left_open.setdefault(shape, {})[partition] = max(bounds)

    @doing("improving the best splits")
    def polish(self) -> None:
        """Make every hand-written schedule of the two most promising partitions."""
        for candidate in self.unresolved()[:_FINALISTS]:
            self.evaluate(candidate, PUBLISHED, _FOR_FINALISTS * self.deadline.left)

    @doing("searching orders of the best splits")
    def solve_survivors(self) -> None:
        """Solve the most promising in rounds: ever fewer of them, ever more time for each."""
        deadline, width, rounds = self.deadline, _SURVIVORS, _ROUNDS
        while deadline.left > LEAST_SECONDS and (chosen := self.unresolved()[:width]):
            for place, candidate in enumerate(chosen):
                if deadline.left <= LEAST_SECONDS:
                    return
                if self.beatable(candidate.bound.value):
                    self.solve(candidate, deadline.left / (rounds * (len(chosen) - place)))
            width, rounds = max(1, width // 2), max(1, rounds - 1)

    def evaluate(self, candidate: Candidate, effort: int, seconds: float | None = None) -> None:
        """Make hand-written and greedy schedules of a candidate, keep what the checker passes."""
        if candidate.effort >= effort or candidate.proven:
            return
        limit = self.deadline.left if seconds is None else seconds
        deadline = Deadline(limit, self.deadline.stop)

        def over() -> bool:
            return bool(candidate.schedules) and not deadline.left

        for schedule in quick_orders(candidate.problem, effort, over):
            self.offer(candidate, schedule)
            if over() or deadline.stop.is_set() or candidate.proven:
                break
        candidate.effort = max(candidate.effort, effort)

    def offer(self, candidate: Candidate, schedule: Schedule) -> None:
        """Time the order of a hand-written schedule for the objective; keep it if it is better."""
        if candidate.objective == "span":
            schedule = retime(candidate.problem, schedule, "span", schedule.source)
        if self._keep(candidate, schedule):
            candidate.baseline = Baseline(schedule.source, schedule.value(candidate.objective))

    def _keep(self, candidate: Candidate, schedule: Schedule) -> bool:
        """Keep a schedule if it is the candidate's best and valid; whether it is."""
        value = schedule.value(candidate.objective)
        worse = candidate.value is not None and value >= candidate.value
        if worse or check(candidate.problem, schedule):
            return False
        candidate.keep(schedule)
        if self._take(candidate, known=self.memo.get(candidate.key) is candidate):
            self._tell(candidate, value, schedule.source)
        return True

    def _tell(self, candidate: Candidate, value: int | None, source: str) -> None:
        bound = self.bound
        least = None if bound is None else bound.value
        if self.listener is not None and self.told != (value, least):
            self.told = (value, least)
            source = f"{candidate.shape.geometry.label}, {candidate.proposed_by}: {source}"
            unit = self.question.layers.time_unit
            self.listener(Improvement(self.deadline.seconds, value, least, source, unit))

    def solve(
        self,
        candidate: Candidate,
        seconds: float,
        *,
        drop: bool = True,
        starts: Starts | None = None,
    ) -> str | None:
        """Solve a candidate; with ``drop``, only until it is known not to be better than the best.

        The best of the greedy schedules and all that are known are what it starts from. Returns an
        explanation of what was not found.
        """
        enough = EitherStop(self.deadline.stop)
        best_other = self.value if candidate is not self.best else None
        searched = candidate.key in self.memo

        def listen(improvement: Improvement) -> None:
            candidate.history += (improvement._replace(seconds=self.deadline.seconds),)
            bound, value = improvement.bound, improvement.value
            if drop and best_other is not None and bound is not None and bound >= best_other:
                enough.set()
            if value is not None and searched and self.beatable(value):
                self._tell(candidate, value, improvement.source)

        options = replace(
            self.options,
            starts=starts or ("greedy" if candidate.effort < SOLVED else "none"),
            time_limit=max(LEAST_SECONDS, min(seconds, self.deadline.left)),
            schedules=candidate.schedules,
            known_bound=candidate.bound,
            listener=listen,
            stop=enough,
        )
        result = solver.solve(candidate.problem, options)
        self.solves += 1
        self.contradictions += result.contradictions
        candidate.effort = SOLVED
        if result.bound is not None:
            candidate.prove(result.bound)
        found = [one for one in (candidate.baseline, result.baseline) if one is not None]
        candidate.baseline = min(found, key=lambda one: one.value, default=None)
        if result.schedule is not None:
            self._keep(candidate, result.schedule)
        return result.explanation


def require_possible(question: Question, why_not: dict[Pipeline, str]) -> None:
    """Pass unless there is a reason against every shape.

    Raises
    ------
    Infeasible
        With all reasons.
    """
    if not all(shape in why_not for shape in question.shapes):
        return
    reasons = {why: shape.geometry.label for shape, why in why_not.items()}
    said: Iterable[str] = [f"{name}: {why}" for why, name in reasons.items()]
    more, n = "", question.layers.tensor_parallel
    if question.layers.estimate:
        more = f". Tensor parallelism over more than {n} divides weights and activations"
    raise Infeasible(("; ".join(said) if len(reasons) > 1 else next(iter(reasons))) + more)
