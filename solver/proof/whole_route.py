"""Bounds and schedules by all devices of a route at once: docs/proofs/search.md, "Whole routes"."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from fractions import Fraction
from typing import NamedTuple

from pipesat.core.claims import Bound
from pipesat.kernels.arrays import NONE
from pipesat.problem.problem import Problem
from pipesat.solver.growth.packing import justified
from pipesat.solver.growth.route_ways import (
    RouteWays,
    amounts_of,
    devices_of,
    most_in_flight,
)
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.model.left_out import one_by_one

SOURCE = "states of the whole route"
_MOST_IN_FLIGHT, _MOST_STAGES, _LONGEST = 32, 128, 1 << 58
_FIRST_LIMIT, _FIRST_STATES, _FIRST_BEAM = 12.0, 40_000, 300  # seconds, and states of as many ops
_SETTLED = 6  # times the microbatches in flight after which all come again and again, as a guess
_LONGER = 3  # times as many in the next round
_STEADY = 3  # times the microbatches in flight after which some come again and again
_PASSES = 24  # to pack a way


class _RoutePart(NamedTuple):
    """What is asked about: devices of the route, and stages whose W's count."""

    devices: Sequence[int]
    weights: Sequence[int]


def whole_route_applies(problem: Problem) -> bool:
    """Whether it is one chain of alike microbatches, few of which are in flight, without pairs."""
    one = len(problem.routes) == 1 and problem.chains_only and problem.plain
    if not one or problem.overlap is not None or len(problem.busy) == 1:
        return False
    amounts = [amounts_of(problem, stage) for stage in problem.routes[0].stages]
    few = most_in_flight(problem) <= _MOST_IN_FLIGHT and len(amounts) <= _MOST_STAGES
    short = problem.routes[0].microbatches * one_by_one(problem) < _LONGEST
    return few and short and all(x.forward and x.backward for x in amounts)


class WholeRoute:
    """Follows all ways to run a chain, or a part of it, and the best ways of the whole."""

    def __init__(self, problem: Problem, incumbent: Incumbent) -> None:
        self.problem, self.incumbent = problem, incumbent
        self.tried, self.finished = 0, False
        self.limit, self.most, self.beam = _FIRST_LIMIT, _FIRST_STATES, _FIRST_BEAM
        devices = devices_of(problem)
        weights = [s for s in problem.routes[0].stages if amounts_of(problem, s).weight]
        count, home = len(devices), problem.stages
        spread = (n for n in (2, 3, 4, 6, 8, 12, 16, 24) if n < count)
        few = ([devices[n * count // some] for n in range(some)] for some in spread)
        self.parts = [_RoutePart(d, [s for s in weights if home[s].device in d][:1]) for d in few]
        self.whole = len(self.parts)  # all devices, and W's of one stage
        more = [n for n in (2, 4, 8, 16, 32, 64) if n < len(weights)]
        self.parts += [_RoutePart(devices, weights[:n]) for n in (1, *more, len(weights))]
        self.done = NONE  # the largest part of which all is known
        self.fresh = True  # all devices have not been asked about
        self._asking = self._rounds()
        self._ways = self._begun(0)

    def ready(self) -> bool:
        """Whether it can be asked at once: the first run of all compiles loops for some seconds."""
        return self._ways.ready()

    def step(self, runner: Runner) -> None:
        """Follow what is asked about for a while."""
        self.runner = runner
        self.finished = next(self._asking, True)

    def _rounds(self) -> Generator[bool, None, None]:
        """Ask about all devices, then about as many as can be; all again with more time."""
        while self.done + 1 < len(self.parts):
            known = self.done
            if self.done < self.whole and not (yield from self._settle(self.whole)):
                yield from self._look()
                too_many = self.whole
                while too_many - self.done > 1:
                    number = (self.done + too_many + 1) // 2
                    if not (yield from self._settle(number)):
                        too_many = number
            self.fresh = False
            while self.whole <= self.done < len(self.parts) - 1:
                if not (yield from self._settle(self.done + 1)):
                    break
            if self.limit > self.incumbent.clock.left and known == self.done:
                return
            self.limit, self.most = _LONGER * self.limit, _LONGER * self.most
            self.beam *= _LONGER

    def _begun(self, number: int) -> RouteWays:
        return RouteWays(self.problem, *self.parts[number])

    def _advance(self, ways: RouteWays, most: int, *, beam: bool) -> bool:
        return ways.advance(self.runner.clock, self.incumbent.clock, most, beam=beam)

    def _settle(self, number: int) -> Generator[bool, None, bool]:
        """Raise the bound by a part, and return whether all is known of it.

        Where the best states come again, so many microbatches and so much time later, they go on
        to do so, until the last microbatches enter.
        """
        self.tried += 1
        ways, exact, repeated, rate = self._begun(number), True, False, Fraction(0)
        while not ways.done:
            n = ways.n
            if not self._advance(ways, self.most, beam=False):
                return False
            yield False
            if ways.n == n:
                continue
            left = min(ways.microbatches, _SETTLED * ways.slots) - ways.n
            if not repeated and ways.spent + ways.time_of(left) > self.limit:
                return False
            late, again = ways.spent > self.limit, ways.again() if ways.even else None
            soon = number < self.whole and 2 * ways.spent > self.limit
            soon = soon and not 2 * ways.n % ways.slots  # no_better takes its time
            if again is None and (late or soon) and ways.even:
                found = ways.no_better()
                if found and Fraction(found[1], ways.n - found[0]) >= self.incumbent.rate:
                    again, exact = found, False
            if again is not None:
                rate, repeated = Fraction(again[1], ways.n - again[0]), ways.repeat(*again)
                self._raise(ways, rate)
            if late and not repeated:
                return False
        self._raise(ways, rate)
        if exact:
            self.done = max(number, self.done)
            if number >= self.whole:
                self._offer(ways)
        return exact

    def _raise(self, ways: RouteWays, rate: Fraction) -> None:
        """Raise the bound to the least that all has taken by now."""
        least = int(ways.ends(self.incumbent.objective).min())
        self.incumbent.raise_bound(Bound(least, SOURCE), rate=rate)

    def _look(self) -> Generator[bool, None, None]:
        """Follow the best ways of all devices."""
        ways = self._begun(self.whole)
        while not ways.done:
            if ways.spent > self.limit or not self._advance(ways, self.beam, beam=True):
                return
            yield False
            if ways.even and ways.n >= _STEADY * ways.slots:
                trip = ways.round_trip()
                if trip is not None:
                    ways.repeat(*trip)
        self._offer(ways)

    def _offer(self, ways: RouteWays) -> None:
        """Offer the best way, with W's where devices idle or memory ends."""
        if self.incumbent.proven:
            return
        order, clock = ways.order(self.incumbent.objective), self.incumbent.clock
        packed = justified(self.problem, order, seed=0, clock=clock, passes=_PASSES, source=SOURCE)
        for found in packed:
            self.incumbent.offer_earliest(found)
