"""A relaxation of a chain whose stages all run microbatches in one order, which is free to choose.

Variables say which class stands at which place of that order, and how many of a class stand before.
All amounts at a place, and all sums up to it, are then linear, whatever the order: a model with
literals "this one before that one" knows nothing of the sort before most of them are decided.
docs/proofs/search.md has the constraints, and why each holds in every schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from ortools.sat.python import cp_model

from pipesat.bounds.feasibility import certain_activations
from pipesat.problem.plain_problems import of_each_class
from pipesat.problem.problem import Problem
from pipesat.problem.rules import link_delay
from pipesat.solver.model.alternatives import Literal

_STEPS = 40_000  # of time in the upper bound: a finer scale makes linear relaxations no better
_MOST_PLACES = 1200  # times stages
_SCALE = 10**6  # of a ratio that is rounded

Expression: TypeAlias = cp_model.LinearExpr
Values: TypeAlias = Sequence[int]


@dataclass(frozen=True)
class PlacesModel:
    """Has a solution if some schedule is no longer than asked; if not, none is below ``beyond``."""

    cp: cp_model.CpModel
    beyond: int


def places_apply(problem: Problem) -> bool:
    """Whether one order for all stages of a chain is to be chosen."""
    return (
        problem.order == "same"
        and problem.one_stage_per_device
        and problem.overlap is None
        and not (problem.alike or problem.has_modes)
        and len(problem.stages) * problem.routes[0].microbatches <= _MOST_PLACES
    )


def places_model(problem: Problem, kept: Collection[int], upper: int) -> PlacesModel:
    """Ask for a makespan of at most ``upper``; all devices count, those kept run one op at a time.

    ``kept`` are places of devices along the route.
    """
    places = _Places(problem, upper)
    for stage in range(len(places.line)):
        places.pass_on(stage)
    for stage in kept:
        places.run_one_at_a_time(stage)
        places.keep_to_memory(stage)
    places.pass_alone()
    return PlacesModel(places.cp, (places.upper + 1) * places.unit)


@dataclass(frozen=True)
class _Amounts:
    """A stage's amounts by class: times in model time, rounded down; memory as it is.

    ``pending`` is the most work of a W per memory it holds, ``None`` if it may hold none.
    """

    forward: Values
    backward: Values
    work: Values
    out: Values
    home: Values
    held: Values
    slack: int | None
    takes_time: bool
    pending: int | None


def _amounts(problem: Problem, stage: int, unit: int, kinds: Sequence[int]) -> _Amounts:
    alone = [one for number, one in enumerate(of_each_class(problem)) if number in kinds]
    own = [one.stages[stage] for one in alone]
    split = [x for x in own if x.may_split and x.W]
    pending: int | None = None
    if all(x.held_after_B for x in split):
        ratios = (-(-x.W * _SCALE // (x.held_after_B * unit)) for x in split)
        pending = max(ratios, default=0)
    return _Amounts(
        [x.F // unit for x in own],
        [x.shortest_backward // unit for x in own],
        [x.least_backward_work // unit for x in own],
        [link_delay(one, stage, "F") // unit for one in alone],
        [link_delay(one, stage, "B") // unit for one in alone],
        [certain_activations(one)[stage] for one in alone],
        problem.devices[problem.stages[stage].device].slack,
        all(x.F for x in own),
        pending,
    )


class _Places:
    """The model while it is built."""

    def __init__(self, problem: Problem, upper: int) -> None:
        (route,) = problem.routes
        self.unit = max(1, upper // _STEPS)
        self.upper = upper // self.unit
        self.count = route.microbatches
        counted = Counter(route.classes)
        self.kinds = sorted(counted)
        self.number = [counted[kind] for kind in self.kinds]
        self.line = [_amounts(problem, s, self.unit, self.kinds) for s in route.stages]
        self.cp = cp_model.CpModel()
        self.makespan = self.cp.new_int_var(0, self.upper, "makespan")
        self.stands = [[self.cp.new_bool_var("") for _ in self.kinds] for _ in range(self.count)]
        self.before = [
            [self.cp.new_int_var(0, most, "") for most in self.number]
            for _ in range(self.count + 1)
        ]
        self._order()
        self.start, self.back = (
            [[self.cp.new_int_var(0, self.upper, "") for _ in range(self.count)] for _ in self.line]
            for _ in range(2)
        )

    def _order(self) -> None:
        """One class at every place, as many of each as there are; large ones are placed first."""
        for row in self.stands:
            self.cp.add_exactly_one(row)
        for kind, most in enumerate(self.number):
            self.cp.add(self.before[0][kind] == 0)
            self.cp.add(self.before[-1][kind] == most)
            for place, row in enumerate(self.stands):
                count = self.before[place][kind] + row[kind]
                self.cp.add(self.before[place + 1][kind] == count)
        work = self.line[0].work
        largest = sorted(range(len(self.kinds)), key=lambda kind: -work[kind])
        middle = sorted(range(self.count), key=lambda place: abs(2 * place - self.count))
        self.cp.add_decision_strategy(
            [self.stands[place][kind] for kind in largest for place in middle],
            cp_model.CHOOSE_FIRST,
            cp_model.SELECT_MAX_VALUE,
        )

    def at(self, place: int, values: Values) -> Expression:
        """What stands at a place has of an amount."""
        return _weighted(self.stands[place], values)

    def until(self, place: int, values: Values) -> Expression:
        """All before a place have of an amount."""
        return _weighted(self.before[place], values)

    def from_on(self, place: int, values: Values) -> Expression:
        """What stands at a place, and all after it, have of an amount."""
        total = sum(value * most for value, most in zip(values, self.number, strict=True))
        return total - self.until(place, values)

    def pass_on(self, stage: int) -> None:
        """What a stage waits for, and how much it has to run before and after."""
        cp, x = self.cp, self.line[stage]
        start, back = self.start[stage], self.back[stage]
        for place in range(self.count):
            if stage:
                before = self.line[stage - 1]
                way = self.at(place, before.forward) + self.at(place, before.out)
                cp.add(start[place] >= self.start[stage - 1][place] + way)
                way = self.at(place, x.backward) + self.at(place, before.home)
                cp.add(self.back[stage - 1][place] >= back[place] + way)
            if place:
                cp.add(start[place] >= start[place - 1] + self.at(place - 1, x.forward))
                cp.add(back[place] >= back[place - 1] + self.at(place - 1, x.backward))
            cp.add(back[place] >= start[place] + self.at(place, x.forward))
            done = self.until(place + 1, x.forward) + self.until(place, x.backward)
            cp.add(back[place] >= start[0] + done)
            left = self.from_on(place, x.work)
            cp.add(self.makespan >= back[place] + left)
            cp.add(self.makespan >= start[place] + self.from_on(place, x.forward) + left)

    def pass_alone(self) -> None:
        """Each one's whole way, with what the first stage runs before and after it."""
        first = self.line[0]
        for place in range(self.count):
            way: Expression = self.until(place, first.forward)
            for x in self.line:
                for values in (x.forward, x.backward, x.out, x.home):
                    way += self.at(place, values)
            rest = [work - back for work, back in zip(first.work, first.backward, strict=True)]
            after = self.from_on(place + 1, first.work) + self.at(place, rest)
            self.cp.add(self.makespan >= way + after)

    def run_one_at_a_time(self, stage: int) -> None:
        """Forwards and first pieces of backwards do not overlap."""
        x, intervals = self.line[stage], []
        for starts, values in (
            (self.start[stage], x.forward),
            (self.back[stage], x.backward),
        ):
            sizes = cp_model.Domain.from_values(sorted(set(values)))
            for place, begin in enumerate(starts):
                size = self.cp.new_int_var_from_domain(sizes, "")
                self.cp.add(size == self.at(place, values))
                end = self.cp.new_int_var(0, self.upper, "")
                intervals.append(self.cp.new_interval_var(begin, size, end, ""))
        self.cp.add_no_overlap(intervals)

    def keep_to_memory(self, stage: int) -> None:
        """Where not all fit, which backwards have ended when a forward starts."""
        x = self.line[stage]
        total = sum(a * most for a, most in zip(x.held, self.number, strict=True))
        if x.slack is None or total <= x.slack or not x.takes_time:
            return
        least = min(x.held)
        fit = x.slack // least if least else self.count
        ended: dict[tuple[int, int], Literal] = {}
        for later in range(self.count):
            for earlier in range(later):
                literal = later - earlier >= fit or self.cp.new_bool_var("")
                ended[earlier, later] = literal
                self._link(stage, earlier, later, literal)
                if earlier:
                    self._imply(literal, ended[earlier - 1, later])
                if later - earlier > 1:
                    self._imply(ended[earlier, later - 1], literal)
        self._count_pending(stage, ended)

    def _imply(self, one: Literal, other: Literal) -> None:
        """An earlier one has ended if a later one has; and before a later forward, too.

        If the one is sure, so is the other: memory admits even less between them.
        """
        if other is not True:
            self.cp.add_implication(one, other)

    def _link(self, stage: int, earlier: int, later: int, literal: Literal) -> None:
        """A backward ends before a later forward starts, or begins after its end."""
        x, cp = self.line[stage], self.cp
        start, back = self.start[stage], self.back[stage]
        done = self.until(later, x.forward) + self.until(earlier + 1, x.backward)
        left = self.from_on(later, x.forward) + self.from_on(earlier, x.work)
        before = [
            cp.add(back[earlier] + self.at(earlier, x.backward) <= start[later]),
            cp.add(start[later] >= start[0] + done),
            cp.add(self.makespan >= back[earlier] + left),
        ]
        if isinstance(literal, bool):
            return
        for constraint in before:
            constraint.only_enforce_if(literal)
        cp.add(back[earlier] >= start[later] + self.at(later, x.forward)).only_enforce_if(~literal)
        stored = self.until(later + 1, x.held) - self.until(earlier, x.held)
        cp.add(stored <= (x.slack or 0)).only_enforce_if(~literal)

    def _count_pending(self, stage: int, ended: dict[tuple[int, int], Literal]) -> None:
        """Before a forward runs all work of backwards that have ended, but what memory admits."""
        x, cp = self.line[stage], self.cp
        if x.pending is None or x.slack is None:
            return
        for (earlier, later), literal in ended.items():
            following = ended.get((earlier + 1, later), False)
            if following is True:
                continue
            conditions: list[cp_model.IntVar] = [] if isinstance(literal, bool) else [literal]
            if not isinstance(following, bool):
                conditions.append(cast(cp_model.IntVar, ~following))
            done = self.until(later, x.forward) + self.until(earlier + 1, x.work)
            stored = self.until(later + 1, x.held) - self.until(earlier + 1, x.held)
            most = x.pending * (x.slack - stored) + _SCALE
            spent = self.start[stage][later] - self.start[stage][0]
            cp.add(_SCALE * spent >= _SCALE * done - most).only_enforce_if(conditions)


def _weighted(variables: Sequence[cp_model.IntVar], values: Values) -> Expression:
    return cp_model.LinearExpr.weighted_sum(list(variables), list(values))
