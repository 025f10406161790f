"""Grids of slots in which microbatches stop on their way, all of a route at the same place.

A microbatch that waits before an op leaves a device free for one that holds memory there, or meets
another op than without: a pair that makes both late, or none. From the best of a few evenly spaced
grids on, the stop that shortens it most is added, made longer or taken away, until none does.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesat.core.problem import Problem
from pipesat.core.schedule import Order
from pipesat.heuristics.registry import GiveUp
from pipesat.heuristics.shared.slot_grid import Facts, SlotGrid, no_stops
from pipesat.heuristics.shared.slot_replay import SlotReplay

_MOST_OPS = 500_000  # placed in all: less than a second
_STEPS = (1, 2, 3, 4, -1, -2)  # by which a stop changes
_WAITS = (1.0, 0.0)


def stopping_orders(problem: Problem, give_up: GiveUp) -> Iterator[Order]:
    """Yield orders of grids with stops, each shorter than all before."""
    descent = _Descent(problem, give_up)
    longest = max(len(route.stages) for route in problem.routes)
    for gap in range(1, longest + 2):
        yield from descent.tried(no_stops(problem), gap)
    while descent.shortened:
        descent.shortened = False
        stops, gap = descent.stops, descent.gap
        for route, place in [(r, at) for r, one in enumerate(stops) for at in range(1, len(one))]:
            for step in _STEPS:
                changed = [list(one) for one in stops]
                changed[route][place] += step
                if changed[route][place] < 0:
                    continue
                for distance in {1, gap}:
                    yield from descent.tried(changed, distance)


class _Descent:
    """The shortest grid so far, and what may still be tried."""

    def __init__(self, problem: Problem, give_up: GiveUp) -> None:
        self.problem, self.give_up, self.facts = problem, give_up, Facts(problem)
        self.stops, self.gap, self.shortened = no_stops(problem), 1, False
        self._left, self._least = _MOST_OPS, float("inf")

    def tried(self, stops: list[list[int]], gap: int) -> Iterator[Order]:
        """Yield the orders of a grid that are shorter than all before."""
        if self._left < 0 or self.give_up():
            return
        grid = SlotGrid(self.problem, stops)
        entries = grid.entries([gap for _ in grid.entering])
        if entries is None:
            return
        for wait in _WAITS:
            self._left -= self.problem.op_count
            value = SlotReplay(grid, self.facts, wait=wait).run(entries)
            if value < self._least:
                self._least, self.stops, self.gap, self.shortened = value, stops, gap, True
                replay = SlotReplay(grid, self.facts, wait=wait, note=True)
                replay.run(entries)
                yield replay.order
