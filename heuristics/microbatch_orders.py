"""Rules of thumb for the order in which microbatches that differ enter a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pipesat.heuristics.registry import GiveUp, Published, never
from pipesat.problem.problem import Problem, Route
from pipesat.schedule.microbatch_order import Permutation
from pipesat.schedule.schedule import Schedule

GIVEN: Final = "given"


RULES: Final[dict[str, Callable[[Sequence[int]], Sequence[int]]]] = {
    GIVEN: sorted,
    "descending": lambda descending: descending,
    "ascending": lambda descending: descending[::-1],
    # small ones first and last, as verl sorts them: every other one back, the others on
    "both-ends": lambda descending: [*descending[::2][::-1], *descending[1::2]],
}
"""From a route's sequences, the longest first, to the order of each rule."""


def permutation_by(problem: Problem, rule: str) -> Permutation:
    """Return each route's microbatches in the order of a rule; plain numbers stay in order.

    The slices of a sequence stay together.
    """
    return [
        range(route.microbatches)
        if route.classes is None
        else [
            microbatch
            for first in RULES[rule](_longest_first(problem, route))
            for microbatch in range(first, first + route.slices)
        ]
        for route in problem.routes
    ]


def permutations(problem: Problem) -> dict[str, Permutation]:
    """Return the rules that may do, each with its order; of equal orders the first.

    Where the problem's order is ``given``, or all microbatches of a route have equal amounts, that
    of the numbers alone.
    """
    found: dict[str, Permutation] = {}
    seen = set()
    for rule in RULES if problem.order != "given" and not problem.alike else [GIVEN]:
        permutation = permutation_by(problem, rule)
        entering = tuple(
            tuple(route.classes[microbatch] for microbatch in own) if route.classes else ()
            for route, own in zip(problem.routes, permutation, strict=True)
        )
        if entering not in seen:
            seen.add(entering)
            found[rule] = permutation
    return found


def _longest_first(problem: Problem, route: Route) -> list[int]:
    """First slices of a route's sequences, by compute time on all stages; equal ones by number."""
    work = []
    for kind in range(len(route.definitions)):
        amounts = [problem.resulting(stage, 0, kind) for stage in route.stages]
        work.append(sum(stage.F + stage.least_backward_work for stage in amounts))
    classes, slices = route.classes or (), route.slices
    return sorted(
        range(0, route.microbatches, slices),
        key=lambda first: -sum(work[kind] for kind in classes[first : first + slices]),
    )


def entered_by(
    entry: Published, problem: Problem, rule: str, permutation: Permutation, give_up: GiveUp = never
) -> Schedule:
    """Build a schedule whose microbatches enter by a rule; its source names both.

    Raises
    ------
    NotApplicable
        As the schedule's own function.
    """
    if rule == GIVEN:
        return entry(problem, give_up)
    schedule = entry(problem, give_up, permutation)
    return replace(schedule, source=f"{schedule.source}, {rule}")
