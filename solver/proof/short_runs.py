"""Bounds of long runs of microbatches from short ones: docs/proofs/search.md has the argument.

With X_k the start of microbatch k's first F, e(n) is the least X_{k+n} - X_k that n + 1
microbatches in a row can have (a *step*), and f(n) the least makespan of n microbatches; for the
span, the least window of the device of the route's first stage. Longer and longer runs are tried,
each with what the shorter ones have proven.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import chain
from typing import Literal, TypeAlias

from ortools.sat.python import cp_model

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.bounds.given_order import heads_and_tails
from pipesat.bounds.paired import with_least_times
from pipesat.core.claims import Bound
from pipesat.problem.ops import Unreadable, members
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective, Order, Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.lanes.clock import CONSTRAINTS_PER_SECOND
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import FOUND, PROOFS, Runner, proven_bound
from pipesat.solver.model.constraints import add_constraints, add_heads_and_tails
from pipesat.solver.model.left_out import first_microbatches, one_by_one, with_microbatches
from pipesat.solver.model.model import Model, build_model, model_size
from pipesat.solver.model.times import model_times
from pipesat.solver.model.variables import Variables, add_variables
from pipesat.solver.proof.rounds import InRounds, Rounds
from pipesat.solver.proof.stretches import end_of

SOURCE = "CP-SAT on fewer microbatches"
_PER_DEVICE = 2  # a run is long if it has more microbatches per device
_SUMS = 512  # microbatches whose sums of steps are all tried
_PATIENCE = 3  # models of a kind in a row without an outcome that end it for this round

RunKind: TypeAlias = Literal["step", "makespan"]
"""What is bounded of some microbatches."""


def is_long(problem: Problem) -> bool:
    """Whether a single route has many microbatches, alike, whose memory may slow them down."""
    if (
        not problem.plain
        or len(problem.routes) > 1
        or all(device.slack is None for device in problem.devices)
    ):
        return False
    return problem.routes[0].microbatches > _PER_DEVICE * len(problem.devices)


class ShortRuns(InRounds[RunKind]):
    """Raises the bound of a long run; see :func:`is_long`."""

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, seed: int, staircase: bool = True
    ) -> None:
        super().__init__(problem, incumbent, seed=seed, staircase=staircase)
        self.least = with_least_times(problem)
        self.known = RunBounds(self.least, incumbent.objective)
        whole = self.microbatches
        lengths: dict[RunKind, range] = {"makespan": range(1, whole + 1), "step": range(1, whole)}
        self.rounds = Rounds(lengths, _PATIENCE, ("makespan", whole))

    def _settle(self, kind: RunKind, n: int, runner: Runner) -> bool:
        settled = (self._settle_step if kind == "step" else self._settle_makespan)(n, runner)
        bound = Bound(self.known.makespan(self.microbatches), SOURCE)
        self.incumbent.raise_bound(bound, PROOFS, self.known.steps.rate)
        return settled

    def _settle_makespan(self, n: int, runner: Runner) -> bool:
        few = self._few(n)
        if not self._fits(few):
            return False
        upper = self._end(few, first_microbatches(self._schedule(), few))
        if self._meets(self.known.makespan(n), upper, f"the makespan of {n} microbatches"):
            return True
        model = makespan_model(few, self.known, upper, staircase=self.staircase)
        if not self._holds(model.variables):
            return False
        solver, status = self._solve(model.variables, runner, upwards=few is not self.problem)
        if status == cp_model.INFEASIBLE:
            self._refute(upper + 1, f"the makespan of {n} microbatches", upper)
            return False
        self.known.learn_makespan(n, model.bound(proven_bound(solver)))
        if status in FOUND and n == self.microbatches:
            self.incumbent.offer(model.order(solver.value), SOURCE)
        return status == cp_model.OPTIMAL

    def _end(self, few: Problem, order: Order) -> int:
        """Return when an order has ended; for the span, on the device of the first stage."""
        schedule = time_order(few, order)
        if self.incumbent.objective == "makespan":
            return schedule.makespan
        first = few.stages[few.routes[0].stages[0]].device
        return max(timed.end for device, timed in schedule if device == first)

    def _settle_step(self, n: int, runner: Runner) -> bool:
        upper = _least_step(self.problem, self._schedule(), n)
        if self._meets(self.known.steps.of(n), upper, f"the step of {n} microbatches"):
            return True
        few = self._few(n + 1)
        if not self._fits(few):
            return False
        v = step_model(few, self.known, upper, staircase=self.staircase)
        if not self._holds(v):
            return False
        solver, status = self._solve(v, runner, upwards=few is not self.problem)
        if status == cp_model.INFEASIBLE:
            self._refute(upper + 1, f"the step of {n} microbatches", upper)
            return False
        self.known.steps.learn(n, v.times.bound(proven_bound(solver)))
        return status == cp_model.OPTIMAL

    def _holds(self, v: Variables) -> bool:
        """Whether a model says something: of pairs, rounded times do not (docs/proofs/model.md)."""
        return self.problem.overlap is None or v.times.exact

    def _few(self, n: int) -> Problem:
        """Fewer microbatches; ops may have lost a partner with which they were shorter."""
        whole = n == self.microbatches
        return self.problem if whole else with_microbatches(self.least, [n])

    def _fits(self, few: Problem) -> bool:
        """Whether a model can be built in the time that it may take."""
        return model_size(few) <= CONSTRAINTS_PER_SECOND * min(self.rounds.limit, self._left)

    def _meets(self, bound: int, value: int, what: str) -> bool:
        if bound > value:
            self._refute(bound, what, value)
        return bound == value

    def _refute(self, bound: int, what: str, value: int) -> None:
        """Stop, and drop what CP-SAT has proven: a checked schedule is better than it allows."""
        self.incumbent.refute(PROOFS, Bound(bound, SOURCE), what, value)
        self.finished = True


def _least_step(problem: Problem, schedule: Schedule, n: int) -> int:
    """Return the least step of n + 1 microbatches in a schedule."""
    first = problem.routes[0].stages[0]
    starts = sorted(
        timed.start
        for _, timed in schedule
        if not isinstance(timed.item, Unreadable)
        for op in members(timed.item)
        if op[:2] == (first, "F")
    )
    return min(later - earlier for earlier, later in zip(starts, starts[n:], strict=False))


class StepBounds:
    """Lower bounds of steps, none of which is below ``floor``: they add up.

    With a pace of n, from any microbatch on some step of j <= n takes at least j / n of it.
    """

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self.known: dict[int, int] = {}
        self.paces: dict[int, int] = {}
        self._sums = [0]

    def learn(self, n: int, value: int) -> None:
        """Take in a bound of a step of n microbatches."""
        self.known[n] = max(value, self.known.get(n, value))
        self._sums = [0]

    def learn_pace(self, n: int, value: int) -> None:
        """Take in a bound of a pace of n microbatches."""
        self.paces[n] = max(value, self.paces.get(n, value))

    @property
    def rate(self) -> Fraction:
        """The largest per microbatch: no run goes on at less."""
        known = chain(self.known.items(), self.paces.items())
        return max((Fraction(value, n) for n, value in known), default=Fraction(0))

    def pace(self, n: int) -> int:
        """Return the best bound of a pace: what holds for fewer microbatches holds for more."""
        known = chain(self.known.items(), self.paces.items())
        return max((n * value // j for j, value in known if j <= n), default=self.floor)

    def of(self, n: int) -> int:
        """Return the best bound of one: paces as long as there is one, then steps."""
        paced = (
            min(-(-(n - i) * value // size) + self._of_steps(i) for i in range(size))
            for size, value in self.paces.items()
            if size <= n
        )
        return max([self._of_steps(n), *paced])

    def _of_steps(self, n: int) -> int:
        """Return the largest sum of known steps of n together.

        Beyond some length, all but the rest is the step that is largest for its length.
        """
        if not self.known:
            return self.floor if n else 0
        size = max(self.known, key=lambda j: self.known[j] / j)
        if times := max(0, n - _SUMS) // size:
            return times * self.known[size] + self._of_steps(n - times * size)
        for size in range(len(self._sums), n + 1):
            sums = (self._sums[size - j] + value for j, value in self.known.items() if j <= size)
            self._sums.append(max(sums, default=self.floor))
        return self._sums[n]


class RunBounds:
    """Lower bounds of e(n) and f(n), for a problem of a single route.

    Steps add up, e(i + j) >= e(i) + e(j), and f(i + j) >= e(i) + f(j).
    """

    def __init__(self, problem: Problem, objective: Objective = "makespan") -> None:
        self.problem, self.objective = problem, objective
        self.steps = StepBounds()
        self.makespans: dict[int, int] = {}

    def learn_makespan(self, n: int, value: int) -> None:
        """Take in a bound of f(n)."""
        self.makespans[n] = max(value, self.makespans.get(n, 0))

    def makespan(self, n: int) -> int:
        """Return the best bound of f(n), the closed forms' included."""
        if n not in self.makespans:
            self.makespans[n] = 0
            if self.objective == "makespan":  # a span's closed forms may be those of another device
                few = with_microbatches(self.problem, [n])
                self.makespans[n] = closed_form_bound(few, "makespan").value
        return max(self.steps.of(n - j) + value for j, value in self.makespans.items() if j <= n)

    def sharp_steps(self, most: int) -> list[tuple[int, int]]:
        """Return the steps of at most so many microbatches that no shorter ones imply."""
        step = self.steps.of
        return [
            (n, value)
            for n, value in sorted(self.steps.known.items())
            if n <= most and value > max((step(i) + step(n - i) for i in range(1, n)), default=0)
        ]


def makespan_model(few: Problem, known: RunBounds, upper: int, *, staircase: bool = True) -> Model:
    """Model f(n) for the n microbatches of ``few``, at most ``upper``.

    After the start of microbatch k, the n - k last ones take at least f(n - k).
    """
    n, line = few.routes[0].microbatches, heads_and_tails(few, known.objective)
    if known.objective == "makespan":
        least = known.makespan(n)
        model = build_model(few, "makespan", least, upper, staircase=staircase, line=line)
    else:
        v = _model_with_slack(few, upper, staircase=staircase)
        end = end_of(v, "span")
        least, most = v.times.at_least(known.makespan(n)), v.times.at_most(upper)
        v.cp.add_linear_constraint(end, least, most)
        v.cp.add(v.tasks["F"][few.routes[0].stages[0]][0].start == 0)
        if line is not None:
            add_heads_and_tails(v, line, "span", end)
        v.cp.minimize(end)
        model = Model(v, end, "makespan", v.times.bound(most + 1))
    starts = _starts_with_known_steps(model.variables, known)
    for k in range(1, n):
        rest = model.variables.times.at_least(known.makespan(n - k))
        model.cp.add(model.value - starts[k] >= rest)
    return model


def step_model(few: Problem, known: RunBounds, upper: int, *, staircase: bool = True) -> Variables:
    """Model e(n) for the n + 1 microbatches of ``few``, at most ``upper``.

    The horizon leaves time to run everything one op after the other once microbatch n has started,
    in the order of whatever schedule attains e(n): it cuts off none.
    """
    n = few.routes[0].microbatches - 1
    v = _model_with_slack(few, upper, staircase=staircase)
    times = v.times
    starts = _starts_with_known_steps(v, known)
    if (line := heads_and_tails(few, "makespan")) is not None:
        add_heads_and_tails(v, line, "makespan", None)
    v.cp.add(starts[0] == 0)
    v.cp.add_linear_constraint(starts[n], times.at_least(known.steps.of(n)), times.at_most(upper))
    v.cp.minimize(starts[n])
    return v


def _model_with_slack(few: Problem, upper: int, *, staircase: bool) -> Variables:
    """Model the schedules, with time for everything, one op after the other, behind ``upper``."""
    all_of_them = few.routes[0].microbatches * one_by_one(few)
    times = model_times(few, upper + all_of_them)
    horizon = times.at_most(upper) + -(-all_of_them // times.unit)
    v = add_variables(cp_model.CpModel(), few, times, horizon)
    add_constraints(v, staircase=staircase)
    return v


def _starts_with_known_steps(v: Variables, known: RunBounds) -> list[cp_model.IntVar]:
    """Add the known steps; return the starts of the route's first forwards."""
    starts = [task.start for task in v.tasks["F"][v.problem.routes[0].stages[0]]]
    for n, step in known.sharp_steps(len(starts) - 1):
        for earlier, later in zip(starts, starts[n:], strict=False):
            v.cp.add(later - earlier >= v.times.at_least(step))
    return starts
