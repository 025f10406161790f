"""Which microbatch comes first, and what that and the data flow say of any two phases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import NamedTuple, cast

from ortools.sat.python import cp_model

from pipesat.core.grouping import grouped
from pipesat.problem.ops import Op, Phase
from pipesat.problem.problem import Problem, Route
from pipesat.problem.rules import waits_for
from pipesat.solver.model.alternatives import Literal


def known_order(problem: Problem, stage: int, phase: Phase, one: int, other: int) -> bool:
    """Whether a stage's phase runs one microbatch before another, whatever is chosen.

    Alike microbatches run by number. So do alike sequences, slice by slice: of one sequence and of
    those before it forwards ascend and backwards descend.
    """
    route = problem.route(stage)
    if route.slices == 1:
        if one >= other:
            return False
        if route.classes is None or route.classes[one] == route.classes[other]:
            return True
        return problem.order == "given" and phase != "W"
    (sequence, at), (later, then) = divmod(one, route.slices), divmod(other, route.slices)
    sooner = phase != "W" and (at < then if phase == "F" else at > then)
    if sequence >= later:
        return sequence == later and sooner
    alike = route.classes_in(sequence) == route.classes_in(later)
    if phase != "W" and route.classes is not None and problem.order != "free":
        return alike or problem.order == "given"
    return alike and (at == then or sooner)


def in_turn(route: Route, phase: Phase, numbers: Iterable[int]) -> list[int]:
    """Microbatches by sequence, of each the slices as a phase runs them."""
    step = -1 if phase == "B" else 1
    return sorted(numbers, key=lambda m: (m // route.slices, step * m))


def chains(problem: Problem, stage: int, phase: Phase) -> list[list[int]]:
    """Microbatches of a stage that a phase runs one after the other, in lists; together all."""
    route = problem.route(stage)
    ordered = problem.order != "free" and phase != "W" and route.classes is not None
    if ordered and problem.order == "given":
        return [in_turn(route, phase, range(route.microbatches))]
    if ordered and route.slices > 1:
        numbers = range(route.microbatches)
        whole = grouped((route.classes_in(number // route.slices), number) for number in numbers)
        return [in_turn(route, phase, own) for own in whole.values()]
    return classes_of(route)


def classes_of(route: Route) -> list[list[int]]:
    """Microbatches of a route that nothing but their numbers tells apart, in lists.

    Slices are told apart by their places in sequences, and by all classes of theirs.
    """
    if route.slices == 1 and route.classes is None:
        return [list(range(route.microbatches))]
    numbers = range(route.microbatches)
    return list(grouped((kind_of(route, number), number) for number in numbers).values())


def kind_of(route: Route, microbatch: int) -> tuple[int, tuple[int, ...]]:
    """Return what is equal of two microbatches that nothing but their numbers tells apart."""
    sequence, at = divmod(microbatch, route.slices)
    return at, route.classes_in(sequence)


@dataclass
class Turns:
    """One order of a route's sequences for all of its stages, by route; unsliced, of microbatches.

    ``slices`` has how many microbatches of a route are one sequence.
    """

    literals: dict[tuple[int, int, int], cp_model.IntVar] = field(default_factory=dict)
    slices: dict[int, int] = field(default_factory=dict)

    def first(self, route: int, one: int, other: int) -> Literal | None:
        """Literal for "one microbatch's sequence comes before the other's", if stages must agree.

        ``None`` within a sequence, too.
        """
        slices = self.slices.get(route, 1)
        return self.of_sequences(route, one // slices, other // slices)

    def of_sequences(self, route: int, one: int, other: int) -> Literal | None:
        """Literal for "one sequence comes before the other"; ``None`` if stages need not agree."""
        literal = self.literals.get((route, one, other))
        if literal is not None:
            return literal
        turned = self.literals.get((route, other, one))
        return None if turned is None else cast(Literal, ~turned)

    def of(self, route: int) -> Iterator[tuple[int, int, cp_model.IntVar]]:
        """All literals of a route: which two sequences, and whether the first comes first."""
        for (own, one, other), literal in self.literals.items():
            if own == route:
                yield one, other, literal

    def ends(self, route: int, sequence: int, phase: Phase) -> tuple[int, int]:
        """First and last microbatch of a sequence, as a phase runs its slices."""
        slices = self.slices[route]
        first, last = sequence * slices, sequence * slices + slices - 1
        return (last, first) if phase == "B" else (first, last)

    def places(self, problem: Problem, value: Callable[[cp_model.IntVar], int]) -> list[list[int]]:
        """By stage, each microbatch's place in the order that all stages have, else its number.

        ``value`` evaluates a variable.
        """
        places = []
        for number, route in enumerate(problem.routes):
            place = list(range(route.microbatches))
            chosen = [(x, y) if value(first) else (y, x) for x, y, first in self.of(number)]
            if chosen:
                known = {frozenset(two) for two in chosen}
                own = range(route.microbatches // route.slices)
                ranks = [sum(frozenset((m, n)) not in known for m in range(n)) for n in own]
                for _, later in chosen:
                    ranks[later] += 1
                place = [ranks[m // route.slices] * route.slices + m % route.slices for m in place]
            places.append(place)
        return [places[route] for route in problem.route_of]


def add_turns(cp: cp_model.CpModel, problem: Problem) -> Turns:
    """Create the literals of all routes that have one order for all of their stages."""
    turns = Turns()
    if problem.order != "same":
        return turns
    for number, route in enumerate(problem.routes):
        turns.slices[number] = route.slices
        count = route.microbatches // route.slices if route.classes is not None else 0
        alike = grouped((route.classes_in(sequence), sequence) for sequence in range(count))
        for one, other in combinations(range(count), 2):
            if route.classes_in(one) != route.classes_in(other):
                turns.literals[number, one, other] = cp.new_bool_var(f"{one} before {other}")
        _link(cp, turns, number, [*alike.values()])
    return turns


def _link(cp: cp_model.CpModel, turns: Turns, route: int, alike: list[list[int]]) -> None:
    """What one comes before, those of its class before it do, too, and so on after the other."""
    for mine in alike:
        for earlier, later in pairwise(mine):
            for others in alike:
                if others is mine:
                    continue
                for other in others:
                    before = turns.of_sequences(route, earlier, other)
                    after = turns.of_sequences(route, later, other)
                    if before is not None and after is not None:
                        cp.add_implication(after, before)


class Name(NamedTuple):
    """A phase of a stage and microbatch."""

    stage: int
    phase: Phase
    microbatch: int


def precedes(problem: Problem, x: Name, y: Name) -> bool:
    """Whether x ends before y starts, if both exist and do not run as a pair."""
    if problem.route_of[x.stage] != problem.route_of[y.stage]:
        return False
    if x[:2] == y[:2]:
        return known_order(problem, x.stage, x.phase, x.microbatch, y.microbatch)
    if problem.slices_of[x.stage] > 1 and waits_for(problem, Op(*y), Op(*x)):
        return True
    own: Phase = "B" if x.phase == "B" else "F"
    if x.microbatch == y.microbatch or known_order(
        problem, x.stage, own, x.microbatch, y.microbatch
    ):
        return follows(problem, x, y)
    return False


def follows(problem: Problem, x: Name, y: Name) -> bool:
    """Whether y comes after x if x's microbatch does not come after y's, and they are not alike."""
    if not problem.chains_only:
        return waits_for(problem, Op(*y), Op(*x._replace(microbatch=y.microbatch)))
    place = problem.place_of
    if x.phase == y.phase:
        if x.phase == "W":
            return False
        return (place[x.stage] < place[y.stage]) == (x.phase == "F")
    if x.phase == "F":
        return True
    return x.phase == "B" and y.phase == "W" and place[x.stage] >= place[y.stage]
