"""In which order a schedule runs the microbatches of each route, and how to change it.

A *permutation* has, per route, the microbatches in the order in which they are to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TypeAlias

from pipesat.problem.ops import Op, members, with_ops
from pipesat.problem.problem import Problem, Route
from pipesat.schedule.schedule import Order, Schedule, with_each_op

Permutation: TypeAlias = Sequence[Sequence[int]]


def microbatch_order(problem: Problem, schedule: Schedule) -> list[list[int]]:
    """Return each route's microbatches in the order of its first stage's forwards.

    Two of these that run as a pair are in the order of all stages where there is one, else by
    number.
    """
    orders = []
    for route in problem.routes:
        first = route.stages[0]
        order: list[int] = []
        for timed in schedule.devices[problem.stages[first].device]:
            together = [op for op in members(timed.item) if op[:2] == (first, "F")]  # type: ignore[arg-type]
            found = sorted(op.microbatch for op in together)
            if len(found) > 1 and problem.order == "same" and route.classes is not None:
                found = _in_turn_elsewhere(problem, schedule, route, found)
            order += found
        orders.append(order)
    return orders


def _in_turn_elsewhere(
    problem: Problem, schedule: Schedule, route: Route, two: list[int]
) -> list[int]:
    """Return two microbatches as some stage has them that does not run them as a pair."""
    for stage, forward in product(route.stages, (True, False)):
        places = {
            op.microbatch: place
            for place, timed in enumerate(schedule.devices[problem.stages[stage].device])
            for op in members(timed.item)  # type: ignore[arg-type]
            if op.stage == stage and op.kind != "W" and (op.kind == "F") == forward
            if op.microbatch in two
        }
        if len(set(places.values())) == len(two):
            return sorted(two, key=places.__getitem__)
    return two


def permuted(problem: Problem, permutation: Permutation) -> Problem:
    """Return the problem whose microbatches are these, in this order, without a rule about it.

    Number j of route r is ``permutation[r][j]`` of the problem. Plain numbers stay as they are.
    """
    routes = tuple(
        route
        if route.classes is None
        else replace(route, classes=tuple(route.classes[microbatch] for microbatch in own))
        for route, own in zip(problem.routes, permutation, strict=True)
    )
    return replace(problem, routes=routes, order="free")


def relabelled(problem: Problem, order: Order, permutation: Permutation) -> Order:
    """Return an order of :func:`permuted` with the microbatches' own numbers."""

    def own(op: Op) -> Op:
        return op._replace(microbatch=permutation[problem.route_of[op.stage]][op.microbatch])

    return tuple(tuple(with_ops(item, own) for item in row) for row in order)


def in_number_order(schedule: Schedule) -> Schedule:
    """Let every stage run its forwards, and its backwards, in the order of the numbers.

    Valid if the schedule is and microbatches are alike: an op that waits for the k-th of another
    stage's now waits for the number k, and each stage starts as many at any time as before
    (docs/proofs/model.md). A W keeps its own B.
    """
    name: dict[Op, int] = {}
    seen: Counter[tuple[int, str]] = Counter()
    for _, timed in schedule:
        for op in members(timed.item):  # type: ignore[arg-type]
            if op.kind != "W":
                key = (op.stage, op.event[1])
                name[op] = seen[key]
                seen[key] += 1

    def named(op: Op) -> Op:
        return op._replace(microbatch=name[op._replace(kind="B") if op.kind == "W" else op])

    return with_each_op(schedule, named)
