"""Which microbatch takes which place of an order, for the span: exchanges of two, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

from pipesat.core.checker import check
from pipesat.core.microbatch_order import relabelled
from pipesat.core.timing import time_order

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Order, Schedule
    from pipesat.solver.run.clock import Clock

_KICK = 3  # exchanges at random that lead away from the best, where none helps


def best_span(
    problem: Problem, start: Schedule, *, clock: Clock, seed: int, enough: int
) -> Schedule | None:
    """Return the schedule of least span that exchanges of microbatches lead to.

    Ops keep their places. Ends when the clock is over, or at a span of ``enough``; ``None`` if no
    exchange led to one that fits into memory.
    """
    chance, order = Random(seed), start.order  # noqa: S311  for a search, not for secrets
    here = [list(range(route.microbatches)) for route in problem.routes]
    best, best_places = _fitting(problem, order, here, clock), [list(own) for own in here]
    value = least = None if best is None else best.span
    while not clock.over and (least is None or least > enough):
        for route, a, b in _exchanges(problem, here, chance):
            if clock.over or (least is not None and least <= enough):
                break
            _exchange(here[route], a, b)
            found = _fitting(problem, order, here, clock)
            if found is None or (value is not None and found.span >= value):
                _exchange(here[route], a, b)
                continue
            value = found.span
            if least is None or value < least:
                best, least, best_places = found, value, [list(own) for own in here]
            break
        else:
            moves = list(_exchanges(problem, here, chance))
            if not moves:  # microbatches that do not differ
                break
            here = [list(own) for own in best_places]
            for _ in range(_KICK):
                route, a, b = chance.choice(moves)
                _exchange(here[route], a, b)
            kicked = _fitting(problem, order, here, clock)
            value = None if kicked is None else kicked.span
    return best


def _exchange(places: list[int], a: int, b: int) -> None:
    places[a], places[b] = places[b], places[a]


def _exchanges(
    problem: Problem, here: list[list[int]], chance: Random
) -> Iterator[tuple[int, int, int]]:
    """Every two places of a route with microbatches of different classes, in an order at random."""
    found = [
        (number, a, b)
        for number, (route, own) in enumerate(zip(problem.routes, here, strict=True))
        if route.classes
        for a, b in combinations(range(len(own)), 2)
        if route.classes[own[a]] != route.classes[own[b]]
    ]
    chance.shuffle(found)
    yield from found


def _fitting(
    problem: Problem, order: Order, places: list[list[int]], clock: Clock
) -> Schedule | None:
    """The order with its microbatches in these places, timed for the span, if it is valid."""
    clock.count_ops(3 * sum(map(len, order)))  # timing for the span takes several passes
    timed = time_order(problem, relabelled(problem, order, places), "span")
    return None if check(problem, timed) else timed
