"""DualPipe's grid for any placement and capacity: microbatches enter as memory admits.

The steady states of DualPipe, DualPipeV and interleaved 1F1B with overlap have one thing in
common: every op has its slot, a forward and a backward share it, and no microbatch stops on its way
(:mod:`pipesat.heuristics.shared.slot_grid`). Where a device has less memory than they need, the
same grid serves with fewer microbatches in it: each enters in the first slot from which no one is
in its way until its end, and all devices have slack.

When to enter is then varied: a few gaps change, a stretch of them repeats, or a stretch gets a
rhythm of its own; what is hardly worse is where the walk goes on. A second walk, from the shortest
on, also opens pairs: some microbatches run their forwards, or their backwards, alone on a part of
their way. A pair may take longer than what others wait for, which warm-up and cool-down cannot
afford: as long as a device has no backward, the first ones should not dally with a partner.

At last, microbatches stop on their way, all of a route at the same place. One that waits before an
op leaves a device free for one that holds memory there, or meets another op than without: a pair
that makes both late, or none. From the best of a few evenly spaced grids on, the stop that shortens
it most is added, made longer or taken away, until none does.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice, product
from typing import NamedTuple

from pipesat.core.arrays import Ints
from pipesat.core.errors import require_applicable
from pipesat.heuristics.registry import GiveUp, never, published, unless_given_up
from pipesat.heuristics.shared.slot_grid import GridRun, SlotGrid
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order

NAME = "lockstep"

_MOST_OPS = 2_500_000  # placed in all, in each of the two walks
_CHANGES = (1, 1, 2, 3)  # gaps that change at a time
_STEPS = (-3, -2, -1, 1, 2, 3, 6)  # by which
_GAPS = (1, 1, 2, 2, 2, 2, 4, 4, 6, 8, 10, 12)  # of a rhythm
_LONGEST = 8  # gaps of a rhythm
_EXCHANGES = 0.5  # of the steps let a microbatch enter at another place, where they differ
_SLACK = 0.01  # by how much, of the shortest, the walk may get longer
_OPENS = 0.75  # of the second walk's steps open or close pairs; the others change gaps
_TOGETHER = (1, 1, 1, 2, 2, 3, 4, 6, 8)  # microbatches that do so at once
_ANYWHERE = 0.3  # of the parts of ways do not begin and end where a device comes again
_OPEN_PATIENCE, _OPEN_SLACK = 100, 0.003
_WAITS = (1.0, 0.7, 0.0)  # of the second walk: gaps that W's wait for, as a part of their time
_PATIENCE = 40  # tries per microbatch without a shorter one


def lockstep_schedules(
    problem: Problem, give_up: GiveUp = never, among: int = 1
) -> Iterator[Schedule]:
    """Yield the schedule in which microbatches enter as soon as they may, then shorter ones.

    The others are the shortest of each walk, then that of all grids in which microbatches stop on
    their way. None if one microbatch alone does not fit. ``give_up`` is asked before each try.
    ``among`` so many orders of microbatches, each has its part of the tries.
    """
    walk = _Walk(problem, give_up, _MOST_OPS // among)
    if not walk.shapes.fits:
        return
    opening = (walk.run(opens_with=wait) for wait in _WAITS)
    searches = (walk.run(), *opening, _Descent(walk.grid, give_up).run())
    shortest = (deque(search, maxlen=1) for search in searches)
    for run in chain(islice(searches[0], 1), chain.from_iterable(shortest)):
        yield time_order(problem, walk.grid.order_of(run), source=NAME)


class _Place(NamedTuple):
    """A point of the walk: gaps, who enters in which order, the grid, and what runs alone."""

    gaps: list[int]
    entering: Ints
    grid: Ints
    alone: Ints


class _Walk:
    """A walk through grids from the densest on; ``best`` is the shortest so far."""

    def __init__(self, problem: Problem, give_up: GiveUp, most_ops: int) -> None:
        self.problem, self.give_up, self.most_ops = problem, give_up, most_ops
        self.grid = SlotGrid(problem)
        self.shapes = self.grid.shapes()
        self.best: _Place | None = None
        self.may_change_places = problem.has_lists and problem.order != "given"
        self.least = float("inf")
        self.known: dict[bool, float] = {}  # with W's that wait, and with those that do not

    def run(self, *, opens_with: float | None = None) -> Iterator[GridRun]:
        """Yield runs, each shorter than all before.

        ``opens_with`` lets ops run alone, too, from the shortest grid on; W's then wait for a gap
        of so much of their time.
        """
        chance = random.Random(0)  # noqa: S311 (chance, not secrecy)
        opens = opens_with is not None
        entering, together = self.grid.entering, self.grid.all_together
        gaps = [1] * len(entering)
        dense = self.best or self._placed(gaps, entering, together)
        here, at, stale = dense._replace(alone=together), float("inf"), 0
        patience, slack = (_OPEN_PATIENCE, _OPEN_SLACK) if opens else (_PATIENCE, _SLACK)
        most = self.most_ops // (len(_WAITS) if opens else 1)
        for _ in range(2 + most // self.problem.op_count):
            if self.give_up() or stale > patience * len(here.gaps):
                return
            first = len(self.known) < 2
            wait: float = not self.known if first else self.known[True] <= self.known[False]
            wait = wait if opens_with is None else opens_with
            tried = here
            if opens and chance.random() < _OPENS:
                tried = here._replace(alone=self._opened(here.alone, chance))
            elif not first and self.may_change_places and chance.random() < _EXCHANGES:
                entering = _exchanged(here.entering, chance)
                tried = self._placed(here.gaps, entering, here.alone)
            elif not first:
                tried = self._placed(_changed(here.gaps, chance), here.entering, here.alone)
            run = self.grid.run(tried.grid, wait, tried.alone)
            self.known.setdefault(bool(wait), run.value)
            stale += 1
            if run.value < self.least:
                stale, self.least, self.best = 0, run.value, tried
                yield run
            if first or run.value <= max(at, self.least * (1 + slack * chance.random() ** 2)):
                here, at = tried, run.value

    def _placed(self, gaps: list[int], entering: Ints, alone: Ints) -> _Place:
        return _Place(gaps, entering, self.grid.placed(self.shapes, gaps, entering)[0], alone)

    def _opened(self, alone: Ints, chance: random.Random) -> Ints:
        """Let some microbatches run alone on a part of their way, or no longer."""
        route = chance.choice(self.problem.routes)
        count = min(route.microbatches, chance.choice(_TOGETHER))
        first = chance.choice((0, route.microbatches - count))
        if chance.random() < 0.5:
            first = chance.randint(0, route.microbatches - count)
        turns, anywhere = self._turns(route.stages), range(len(route.stages) + 1)
        begin, end = sorted(chance.sample(anywhere if chance.random() < _ANYWHERE else turns, 2))
        backward, sooner = chance.random() < 0.5, chance.choice((1, -1, 0))
        result = alone.copy()
        for stage in route.stages[begin:end]:
            cell = self.grid.first_cell[stage] + first
            result[cell : cell + count, int(backward)] = sooner
        return result

    def _turns(self, stages: Sequence[int]) -> list[int]:
        """Places where a route comes to a device again, the begin and the end."""
        turns, seen = [0], set[int]()
        for place, stage in enumerate(stages):
            device = self.problem.stages[stage].device
            if device in seen:
                turns.append(place)
                seen.clear()
            seen.add(device)
        return [*turns, len(stages)]


def _exchanged(entering: Ints, chance: random.Random) -> Ints:
    """Let one microbatch enter at another place; each route's own keep to their route's places."""
    route = entering[chance.randrange(len(entering)), 0]
    places = (entering[:, 0] == route).nonzero()[0]
    moved = entering[places].tolist()
    moved.insert(chance.randrange(len(moved)), moved.pop(chance.randrange(len(moved))))
    result = entering.copy()
    result[places] = moved
    return result


def _changed(gaps: list[int], chance: random.Random) -> list[int]:
    """Change some gaps."""
    gaps, count = list(gaps), len(gaps)
    if chance.random() < 0.5:
        for _ in range(chance.choice(_CHANGES)):
            place = chance.randrange(count)
            gaps[place] = max(1, gaps[place] + chance.choice(_STEPS))
        return gaps
    begin, end = sorted(chance.choices(range(count + 1), k=2))
    if chance.random() < 0.5:
        back = chance.randint(1, _LONGEST)
        for place in range(max(begin, back), end):
            gaps[place] = gaps[place - back]
    else:
        rhythm = chance.choices(_GAPS, k=chance.randint(1, _LONGEST))
        for place in range(begin, end):
            gaps[place] = rhythm[place % len(rhythm)]
    return gaps


@published(NAME, placement="any", pairs=True, source="pipesat", splits=True, slow=True)
def lockstep(problem: Problem, give_up: GiveUp) -> Schedule:
    """Return the shortest schedule of the grid; each fits into memory.

    Raises
    ------
    NotApplicable
        If the problem has no pairs, or one microbatch alone does not fit.
    """
    require_applicable(problem.overlap is not None, "the problem allows no pairs (no `overlap`)")
    made = list(lockstep_schedules(problem, give_up))
    unless_given_up(give_up)
    require_applicable(made, "no microbatch fits alone")
    return min(made, key=lambda schedule: (schedule.makespan, schedule.span))


_MOST_STOPPED = 500_000  # placed in all
_STOPS = (1, 2, 3, 4, -1, -2)  # by which a stop changes
_STOPPED_WAITS = (1.0, 0.0)


class _Descent:
    """The shortest grid with stops so far, and what may still be tried."""

    def __init__(self, grid: SlotGrid, give_up: GiveUp) -> None:
        self.grid, self.give_up = grid, give_up
        self.stops, self.gap, self.shortened = grid.no_stops, 1, False
        self._left, self._least = _MOST_STOPPED, float("inf")

    def run(self) -> Iterator[GridRun]:
        """Yield runs of grids with stops, each shorter than all before."""
        routes = self.grid.problem.routes
        longest = max(len(route.stages) for route in routes)
        for gap in range(1, longest + 2):
            yield from self._tried(self.stops, gap)
        while self.shortened:
            self.shortened = False
            stops, gap = self.stops, self.gap
            for route, own in enumerate(routes):
                for place, step in product(range(1, 2 * len(own.stages)), _STOPS):
                    if stops[route, place] + step < 0:
                        continue
                    changed = stops.copy()
                    changed[route, place] += step
                    for distance in {1, gap}:
                        yield from self._tried(changed, distance)

    def _tried(self, stops: Ints, gap: int) -> Iterator[GridRun]:
        """Yield the runs of a grid that are shorter than all before."""
        if self._left < 0 or self.give_up():
            return
        shapes = self.grid.shapes(stops)
        if not shapes.fits:
            return
        grid, _ = self.grid.placed(shapes, [gap] * len(self.grid.entering))
        for wait in _STOPPED_WAITS:
            self._left -= self.grid.problem.op_count
            run = self.grid.run(grid, wait)
            if run.value < self._least:
                self._least, self.stops, self.gap, self.shortened = run.value, stops, gap, True
                yield run
