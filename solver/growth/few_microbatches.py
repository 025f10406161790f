"""Growth: a good schedule of few microbatches, with a part of it repeated until there are enough.

What counts is a part's *lasting* rate: a part may be short because it leaves work for later, which
shows once it has been repeated a few times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter

from pipesat.core.grouping import grouped
from pipesat.problem.problem import Problem, Route
from pipesat.schedule.microbatch_order import Permutation, permuted, relabelled
from pipesat.schedule.schedule import Objective, Order, Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.packing import justified
from pipesat.solver.growth.repetition import (
    Name,
    Repeat,
    grown,
    in_a_row,
    repeated,
    repeats,
    with_other_end,
)
from pipesat.solver.lanes.clock import WINDOW_OPS_PER_SECOND, Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.model.left_out import first_microbatches, with_microbatches
from pipesat.solver.windows.window_search import WindowSearch, windows_apply

SOURCE = "growth"
_MANY = 32  # microbatches of all routes; no more than these are not worth it
_OPS, _OPS_OF_HARDER = 1600, 800  # of the short problem; with pairs or modes
_PER_DEVICE = 2, 8  # microbatches of it, at least and at most
_SHORTER = 2  # it has at most this part of the microbatches
_PASSES = 30  # of justification per start
_TURNS = 4, 8  # repetitions after which a part's lasting rate is read off
_PATIENCE = 5.0  # seconds without a better rate, or a better short schedule by windows


@dataclass(frozen=True)
class Few:
    """A problem with few of the microbatches, ``problem``, of which schedules can be repeated.

    It has the first ones of ``whole``: the problem with its microbatches in such an order, a
    ``permutation``, that what is different about them comes again and again.
    """

    problem: Problem
    whole: Problem
    permutation: Permutation

    def orders(self, schedule: Schedule) -> Iterator[Order]:
        """Yield orders for the whole that repeat a schedule of few: all of it, then its best part.

        The first takes no longer than the schedule as often as it is repeated.
        """
        yield self._own(in_a_row(self.problem, schedule.order, self.whole))
        best = min(repeats(self.problem, schedule), key=attrgetter("rate"), default=None)
        if best is not None:
            yield self._own(grown(self.problem, schedule, best, self.whole))

    def _own(self, order: Order) -> Order:
        return relabelled(self.whole, order, self.permutation) if self.whole.has_lists else order


def few_of(problem: Problem) -> Few | None:
    """Return the problem with so few microbatches that windows work well, all kinds in proportion.

    ``None`` if that would not be much fewer, or where the rule about the order does not let them
    alternate.
    """
    one = _evenly(problem)
    ops = sum(3 * len(r.stages) * count for r, count in zip(problem.routes, one, strict=True))
    least, most = (per * len(problem.devices) for per in _PER_DEVICE)
    many = _OPS if problem.overlap is None and not problem.has_modes else _OPS_OF_HARDER
    times = max(least, min(most, many * sum(one) // ops)) // sum(one)
    have = [route.microbatches for route in problem.routes]
    if not times or sum(have) <= _MANY or have[0] < _SHORTER * one[0] * times:
        return None
    if not problem.plain:  # all of it can be repeated, so better without a rest
        rounds = have[0] // one[0]
        times = next((n for n in range(times, times // 2, -1) if not rounds % n), times)
    permutation = [*map(_alternating, problem.routes, one)]
    whole = problem
    if problem.has_lists:
        if problem.order == "given" and any(own != sorted(own) for own in permutation):
            return None
        whole = replace(permuted(problem, permutation), order=problem.order)
    return Few(_in_proportion(whole, times), whole, permutation)


def _evenly(problem: Problem) -> list[int]:
    """The least numbers of microbatches that serve all routes, and classes, as all do."""
    shared = math.gcd(*chain.from_iterable(r.counts.values() for r in problem.routes))
    return [route.microbatches // shared for route in problem.routes]


def _alternating(route: Route, one: int) -> Sequence[int]:
    """Return a route's microbatches in rounds of ``one``, each with as many of every class."""
    own = grouped(zip(route.class_of_each, range(route.microbatches), strict=True))
    rounds = route.microbatches // one
    shares = (
        [n[len(n) * r // rounds : len(n) * (r + 1) // rounds] for n in own.values()]
        for r in range(rounds)
    )
    return [number for share in shares for number in sorted(chain.from_iterable(share))]


def _in_proportion(problem: Problem, times: int) -> Problem:
    """The problem with ``times`` as many microbatches as serve all routes evenly."""
    return with_microbatches(problem, [times * count for count in _evenly(problem)])


def grown_orders(
    problem: Problem,
    starts: Sequence[Schedule],
    objective: Objective,
    *,
    runner: Runner,
    clock: Clock,
    seed: int = 0,
) -> Iterator[Order]:
    """Yield orders that repeat a part of a schedule of few microbatches; its rate improves.

    The first microbatches of ``starts``, schedules of the whole problem, are where the search for a
    schedule of few begins: by packing, then by windows. Ends when that brings nothing for a while,
    or when ``clock`` is over, a part of the runner's (the time of the consumer included). Does not
    begin if that is hardly enough to time and check a schedule of the whole problem.
    """
    few = few_of(problem)
    if few is not None and problem.op_count < WINDOW_OPS_PER_SECOND * clock.left:
        yield from _GrowthSearch(problem, few.problem, objective, runner, clock, seed).run(starts)


class _GrowthSearch:
    """``best`` has the best schedule of few microbatches, ``rate`` is the best lasting one."""

    def __init__(
        self,
        problem: Problem,
        few: Problem,
        objective: Objective,
        runner: Runner,
        clock: Clock,
        seed: int,
    ) -> None:
        self.problem, self.few, self.objective = problem, few, objective
        self.last_success = 0.0
        self.runner, self.clock, self.seed = runner, clock.part(clock.left, self.is_idle), seed
        self.best = Incumbent(few, objective, self.clock)
        self.rate = float("inf")
        self.known: set[tuple[float, frozenset[Name], frozenset[Name]]] = set()

    def is_idle(self) -> bool:
        """Whether nothing has helped for a while."""
        return self.clock.elapsed - self.last_success > _PATIENCE

    def run(self, starts: Sequence[Schedule]) -> Iterator[Order]:
        """Yield orders of the whole problem, at better and better rates."""
        for start in starts:
            if not self.clock.over:
                yield from self.packed(first_microbatches(start, self.few))
        if self.best.schedule is not None and windows_apply(self.few, self.best):
            yield from self.by_windows()

    def packed(self, order: Order) -> Iterator[Order]:
        """Pack an order of few microbatches; yield what grows from it."""
        for packed in justified(self.few, order, seed=self.seed, clock=self.clock, passes=_PASSES):
            self.best.offer_earliest(packed)
            part = self.better_part(packed)
            if part is not None:
                yield grown(self.few, packed, part, self.problem)

    def by_windows(self) -> Iterator[Order]:
        """Improve the best schedule; where its rate gets better, build it anew from that part."""
        windows = WindowSearch(self.few, self.best, runner=self.runner, seed=self.seed)
        seen = self.best.schedule
        while not self.clock.over:
            windows.step()
            schedule = self.best.schedule
            if schedule is None or schedule is seen:
                continue
            seen, self.last_success = schedule, self.clock.elapsed
            part = self.better_part(schedule)
            if part is not None:
                yield grown(self.few, schedule, part, self.problem)
                yield from self.packed(with_other_end(self.few, schedule, part))

    def better_part(self, schedule: Schedule) -> Repeat | None:
        """Return the part of the best lasting rate, if that is better than all before."""
        best = None
        for part in sorted(repeats(self.few, schedule), key=attrgetter("rate")):
            if part.rate >= self.rate or self.clock.over:
                break
            key = (part.rate, part.begin.state, part.begin.weights)
            if key in self.known:
                continue
            self.known.add(key)
            rate = self.lasting_rate(schedule, part)
            if rate < self.rate:
                self.rate, best = rate, part
                self.last_success = self.clock.elapsed
        return best

    def lasting_rate(self, schedule: Schedule, part: Repeat) -> float:
        """Time per microbatch of the first route once a part has been repeated a few times."""
        (one, *_), step = _evenly(self.few), part.microbatches[0]
        values = []
        for turns in _TURNS:
            more = _in_proportion(self.few, (self.few.routes[0].microbatches + turns * step) // one)
            order = repeated(self.few, schedule, part, more, turns)
            self.clock.count_ops(more.op_count, checked=True)
            values.append(time_order(more, order, self.objective).value(self.objective))
        return (values[1] - values[0]) / ((_TURNS[1] - _TURNS[0]) * step)
