"""DualPipe's grid for any placement and capacity: microbatches enter as memory admits.

The steady states of DualPipe, DualPipeV and interleaved 1F1B with overlap have one thing in
common: every op has its slot, a forward and a backward share it, and no microbatch stops on its way
(:mod:`pipesat.heuristics.shared.slot_grid`). Where a device has less memory than they need, the
same grid serves with fewer microbatches in it: each enters in the first slot from which nobody is
in its way until its end, and all devices have room.

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
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from pipesat.core.errors import NotApplicable
from pipesat.core.plain_problems import without_modes
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import time_order
from pipesat.heuristics.registry import GiveUp, never, published, unless_given_up
from pipesat.heuristics.shared.slot_grid import Facts, Microbatch, SlotGrid, no_stops
from pipesat.heuristics.shared.slot_replay import Alone, SlotReplay

NAME = "lockstep"

_MOST_OPS = 2_500_000  # placed in all: some three seconds
_LARGEST = 60_000  # ops of a problem for which it is made at all
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

    At last those in which they stop on their way, each shorter than those of its kind before.

    None if one microbatch alone does not fit, or the problem is very large. ``give_up`` is asked
    after each try. ``among`` so many orders of microbatches, each has its part of the tries.
    """
    own, problem = problem, without_modes(problem)
    if problem.op_count > _LARGEST:
        return
    walk = _Walk(problem, give_up, _MOST_OPS // among)
    for order in walk.run():
        yield time_order(own, order, source=NAME)
    for wait in _WAITS:
        for order in walk.run(opens_with=wait):
            yield time_order(own, order, source=NAME)
    for order in stopping_orders(problem, give_up):
        yield time_order(own, order, source=NAME)


class _Place(NamedTuple):
    """A point of the walk: the gaps, what runs alone, and who enters in which order."""

    gaps: list[int]
    alone: Alone
    entering: list[Microbatch]


class _Walk:
    """A walk through grids from the densest on; ``best`` is the shortest so far."""

    def __init__(self, problem: Problem, give_up: GiveUp, most_ops: int) -> None:
        self.problem, self.give_up, self.most_ops = problem, give_up, most_ops
        self.grid, self.facts = SlotGrid(problem), Facts(problem)
        self.best = _Place([1] * len(self.grid.entering), {}, self.grid.entering)
        self.may_change_places = problem.has_lists and problem.order != "given"
        self.least = float("inf")
        self.known: dict[bool, float] = {}  # with W's that wait, and with those that do not

    def run(self, *, opens_with: float | None = None) -> Iterator[Order]:
        """Yield orders, each shorter than all before.

        ``opens_with`` lets ops run alone, too, from the shortest grid on; W's then wait for a gap
        of so much of their time.
        """
        chance = random.Random(0)  # noqa: S311 (chance, not secrecy)
        opens = opens_with is not None
        here, at, stale = self.best._replace(alone={}), float("inf"), 0
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
                tried = here._replace(entering=_exchanged(here.entering, chance))
            elif not first:
                tried = here._replace(gaps=_changed(here.gaps, chance))
            entries = self.grid.entries(tried.gaps, tried.entering)
            if entries is None:
                return
            value = self._replay(tried, wait=wait).run(entries, tried.entering)
            self.known.setdefault(bool(wait), value)
            stale += 1
            if value < self.least:
                stale, self.least, self.best = 0, value, tried
                replay = self._replay(tried, wait=wait, note=True)
                replay.run(entries, tried.entering)
                yield replay.order
            if first or value <= max(at, self.least * (1 + slack * chance.random() ** 2)):
                here, at = tried, value

    def _replay(self, place: _Place, *, wait: float, note: bool = False) -> SlotReplay:
        return SlotReplay(self.grid, self.facts, wait=wait, alone=place.alone, note=note)

    def _opened(self, alone: Alone, chance: random.Random) -> Alone:
        """Let some microbatches run alone on a part of their way, or no longer."""
        route = chance.choice(self.problem.routes)
        count = min(route.microbatches, chance.choice(_TOGETHER))
        first = chance.choice((0, route.microbatches - count))
        if chance.random() < 0.5:
            first = chance.randint(0, route.microbatches - count)
        turns, anywhere = self._turns(route.stages), range(len(route.stages) + 1)
        begin, end = sorted(chance.sample(anywhere if chance.random() < _ANYWHERE else turns, 2))
        backward, sooner = chance.random() < 0.5, chance.choice((True, False, None))
        result = dict(alone)
        for stage, number in product(route.stages[begin:end], range(first, first + count)):
            if sooner is None:
                result.pop((stage, number, backward), None)
            else:
                result[stage, number, backward] = sooner
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


def _exchanged(entering: list[Microbatch], chance: random.Random) -> list[Microbatch]:
    """Let one microbatch enter at another place; each route's own keep to their route's places."""
    route = chance.choice(entering)[0]
    places = [place for place, one in enumerate(entering) if one[0] == route]
    moved = [entering[place] for place in places]
    moved.insert(chance.randrange(len(moved)), moved.pop(chance.randrange(len(moved))))
    result = list(entering)
    for place, one in zip(places, moved, strict=True):
        result[place] = one
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
        If the problem has no pairs, one microbatch alone does not fit, or there are too many ops.
    """
    if problem.overlap is None:
        raise NotApplicable("the problem allows no pairs (no `overlap`)")
    made = list(lockstep_schedules(problem, give_up))
    unless_given_up(give_up)
    if not made:
        few = problem.op_count <= _LARGEST
        raise NotApplicable("no microbatch fits alone" if few else "made for 60,000 ops at most")
    return min(made, key=lambda schedule: (schedule.makespan, schedule.span))


_MOST_STOPPED = 500_000  # placed in all: less than a second
_STOPS = (1, 2, 3, 4, -1, -2)  # by which a stop changes
_STOPPED_WAITS = (1.0, 0.0)


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
            for step in _STOPS:
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
        self._left, self._least = _MOST_STOPPED, float("inf")

    def tried(self, stops: list[list[int]], gap: int) -> Iterator[Order]:
        """Yield the orders of a grid that are shorter than all before."""
        if self._left < 0 or self.give_up():
            return
        grid = SlotGrid(self.problem, stops)
        entries = grid.entries([gap for _ in grid.entering])
        if entries is None:
            return
        for wait in _STOPPED_WAITS:
            self._left -= self.problem.op_count
            value = SlotReplay(grid, self.facts, wait=wait).run(entries)
            if value < self._least:
                self._least, self.stops, self.gap, self.shortened = value, stops, gap, True
                replay = SlotReplay(grid, self.facts, wait=wait, note=True)
                replay.run(entries)
                yield replay.order
