"""Which microbatch comes first, and what that and the data flow say of any two phases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import NamedTuple, cast

from ortools.sat.python import cp_model

from pipesat.problem.ops import Phase
from pipesat.problem.problem import Problem, Route
from pipesat.solver.model.alternatives import Literal


def known_order(problem: Problem, stage: int, phase: Phase, one: int, other: int) -> bool:
    """Whether a stage's phase runs one microbatch before another, whatever is chosen."""
    if one >= other:
        return False
    route = problem.routes[problem.route_of[stage]]
    if route.classes is None or route.classes[one] == route.classes[other]:
        return True
    return problem.order == "given" and phase != "W"


def chains(problem: Problem, stage: int, phase: Phase) -> list[list[int]]:
    """Microbatches of a stage that a phase runs by number, in lists; together they are all."""
    route = problem.routes[problem.route_of[stage]]
    if route.classes is None or (problem.order == "given" and phase != "W"):
        return [list(range(route.microbatches))]
    return classes_of(route)


def classes_of(route: Route) -> list[list[int]]:
    """Microbatches of a route that are alike, in lists."""
    if route.classes is None:
        return [list(range(route.microbatches))]
    found: dict[int, list[int]] = {}
    for microbatch, kind in enumerate(route.classes):
        found.setdefault(kind, []).append(microbatch)
    return list(found.values())


@dataclass
class Turns:
    """One order of a route's microbatches for all of its stages, by route."""

    literals: dict[tuple[int, int, int], cp_model.IntVar] = field(default_factory=dict)

    def first(self, route: int, one: int, other: int) -> Literal | None:
        """Literal for "one comes before the other"; ``None`` where stages need not agree."""
        literal = self.literals.get((route, one, other))
        if literal is not None:
            return literal
        turned = self.literals.get((route, other, one))
        return None if turned is None else cast(Literal, ~turned)

    def of(self, route: int) -> Iterator[tuple[int, int, cp_model.IntVar]]:
        """All literals of a route: which two, and whether the first comes first."""
        for (own, one, other), literal in self.literals.items():
            if own == route:
                yield one, other, literal


def add_turns(cp: cp_model.CpModel, problem: Problem) -> Turns:
    """Create the literals of all routes that have one order for all of their stages."""
    turns = Turns()
    if problem.order != "same":
        return turns
    for number, route in enumerate(problem.routes):
        for one, other in combinations(range(route.microbatches), 2):
            if route.classes is not None and route.classes[one] != route.classes[other]:
                turns.literals[number, one, other] = cp.new_bool_var(f"{one} before {other}")
        _link(cp, turns, number, classes_of(route))
    return turns


def _link(cp: cp_model.CpModel, turns: Turns, route: int, alike: list[list[int]]) -> None:
    """What one comes before, those of its class before it do, too, and so on after the other."""
    for mine in alike:
        for earlier, later in pairwise(mine):
            for others in alike:
                if others is mine:
                    continue
                for other in others:
                    before = turns.first(route, earlier, other)
                    after = turns.first(route, later, other)
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
    if x.microbatch == y.microbatch or known_order(
        problem, x.stage, "F", x.microbatch, y.microbatch
    ):
        return follows(problem, x, y)
    return False


def follows(problem: Problem, x: Name, y: Name) -> bool:
    """Whether y comes after x if x's microbatch does not come after y's, and they are not alike."""
    place = problem.place_of
    if x.phase == y.phase:
        if x.phase == "W":
            return False
        return (place[x.stage] < place[y.stage]) == (x.phase == "F")
    if x.phase == "F":
        return True
    return x.phase == "B" and y.phase == "W" and place[x.stage] >= place[y.stage]
