"""The search after the warm starts: one half improves the schedule, the other raises the bound.

With one lane the halves take turns. With more, every other lane searches windows, and shares its
time with other ways to a schedule (packing, growth from few microbatches, exchanges) and with
proofs once windows stop helping; the rest proves. Where ops may pair, the rest takes turns as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import NamedTuple, TypedDict

from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.solver.growth import SOURCE as GROWTH
from pipesat.solver.growth import grown_orders
from pipesat.solver.model.pairing import gains
from pipesat.solver.neighbourhood.search import WindowSearch, windows_apply
from pipesat.solver.packing import justified
from pipesat.solver.permutations.search import permutations_apply, permuted_schedules
from pipesat.solver.proof.search import ProofSearch, proofs_for
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import Lanes, Runner
from pipesat.solver.search_parts import SearchParts

_NEAR = 1.05  # times the best start's value: of those that windows begin from
_PATIENCE = 5.0  # seconds of window search without an improvement


class SearchReport(NamedTuple):
    """What the parts of the search did, and which of them failed."""

    notes: list[str]
    failed: list[str]


class Told(TypedDict):
    """How much a search may use: lanes, the seed of its choices, what takes part in it."""

    threads: int
    seed: int
    parts: SearchParts


def search(
    problem: Problem,
    incumbent: Incumbent,
    starts: Sequence[Schedule],
    *,
    threads: int,
    seed: int,
    parts: SearchParts,
) -> SearchReport:
    """Improve an incumbent and its bound until proven, out of time or stopped; say what happened.

    Needs an incumbent with a schedule. ``starts`` are other valid schedules to work on.
    """
    clock = incumbent.clock.part(incumbent.clock.left, stop=lambda: incumbent.proven)
    if not problem.plain:
        parts = replace(parts, growth=False)  # a few microbatches are not like all
    lanes = Lanes(clock)
    proofs = proofs_for(incumbent, seed=seed, parts=parts)
    use_windows = parts.windows and windows_apply(problem, incumbent)
    windows: list[WindowSearch] = []
    harder = bool(gains(problem))  # with pairs, windows gain more than proofs beyond closed forms

    def lane(number: int) -> Callable[[], None]:
        mine = parts
        if number % 2:
            mine = replace(parts, packing=False, growth=False)
        ways = OtherWays(incumbent, starts, lanes.runner(), seed=seed + number, parts=mine)
        only_proves = number % 2 and not (proofs.finished or harder)
        if only_proves or not use_windows:
            return partial(_prove, proofs, lanes.runner(), ways.all())
        wanders = harder and not number % 2
        windows.append(
            WindowSearch(
                problem, incumbent, runner=lanes.runner(), seed=seed + number, wanders=wanders
            )
        )
        patience = 0.0 if threads == 1 or (harder and number % 2) else _PATIENCE
        turns = ways.all()
        if harder and starts:
            least = starts[0].value(incumbent.objective)
            near = [s for s in starts if s.value(incumbent.objective) <= _NEAR * least]
            turns = _with_new_beginnings(turns, windows[-1], near[1:] + near[:1])
        return partial(_take_turns, windows[-1], proofs, lanes.runner(), turns, patience)

    failed = lanes.run([lane(number) for number in range(threads)])
    notes = [search.report for search in windows]
    return SearchReport(notes if incumbent.wider else [*notes, proofs.report], failed)


Ways = Iterator[Callable[[], None]]


def _with_new_beginnings(ways: Ways, windows: WindowSearch, starts: Sequence[Schedule]) -> Ways:
    """Between ways, and when there are no more, windows begin anew from starts in turn.

    Where ops may pair, what windows on one schedule end at depends much on where they began, and on
    chance: no window is wide enough to change the pairs of a whole steady state.
    """
    yield next(ways)
    for start in cycle(starts):
        yield partial(windows.begin_apart, start)
        yield windows.rejoin
        if (way := next(ways, None)) is not None:
            yield way


def _prove(proofs: ProofSearch, runner: Runner, ways: Ways) -> None:
    """Try relaxations, after all other ways to a schedule that this lane was given."""
    for way in ways:
        if not runner.clock.over:
            way()
    while not (runner.clock.over or proofs.finished):
        proofs.step(runner)


def _take_turns(
    windows: WindowSearch, proofs: ProofSearch, runner: Runner, ways: Ways, patience: float
) -> None:
    """Search windows as long as that helps, after the first of the other ways to a schedule.

    After ``patience`` without success, give proofs half of the time. After the usual patience, with
    one lane too, try the next of these ways.
    """
    next(ways)()
    behind = 0.0  # what windows have spent beyond proofs, since they have stopped helping
    while not runner.clock.over:
        helping = windows.idle < patience
        if windows.idle >= _PATIENCE and (way := next(ways, None)) is not None:
            way()
            windows.refresh()
        elif helping or proofs.finished or behind <= 0:
            spent = windows.runner.spent
            windows.step()
            behind = 0.0 if helping else behind + windows.runner.spent - spent
        else:
            spent = runner.spent
            proofs.step(runner)
            behind -= runner.spent - spent


_STARTS = 3  # of different sources: chance and where one comes from decide where packing ends
_ROUNDS = 4  # of packing them, each with other chances
_FIRST_PACKING = 0.04, 2.5  # share of the time left; seconds at most
_PACKING = 0.1, 8.0
_FAR = 1000  # between the seeds of rounds: lanes' seeds lie in between
_GROWTH = 0.5, 30.0  # it ends early where it does not help
_EXCHANGES = 0.5, 60.0
_PACKED_OPS, _FEWEST_PASSES = 200_000, 3  # ops of all passes together: some 6 s


class OtherWays:
    """What one lane may try. ``starts`` are valid schedules of different sources, best first."""

    def __init__(
        self,
        incumbent: Incumbent,
        starts: Sequence[Schedule],
        runner: Runner,
        *,
        seed: int,
        parts: SearchParts,
    ) -> None:
        self.incumbent, self.problem = incumbent, incumbent.problem
        self.starts = starts[:_STARTS]
        self.runner, self.clock = runner, runner.clock
        self.seed, self.parts = seed, parts

    def all(self) -> Iterator[Callable[[], None]]:
        """Yield what to try, one after the other, when windows do not help.

        The first of it, growth and packing, is worth trying before windows.
        """
        exchange = self.parts.exchanges and permutations_apply(self.problem)
        exchange = exchange and not gains(self.problem)  # it moves no pairs
        if exchange:
            yield self._exchange_microbatches
        yield self._grow_and_pack
        if self.parts.packing:
            yield self._pack_the_incumbent
            for turn in range(1, _ROUNDS):
                yield partial(self._pack_starts, self.seed + turn * _FAR)
                if exchange:
                    yield partial(self._exchange_microbatches, self.seed + turn * _FAR)

    def _exchange_microbatches(self, seed: int | None = None) -> None:
        """Let microbatches change places, in the starts and in the incumbent."""
        mine = [] if self.incumbent.schedule is None else [self.incumbent.schedule]
        for found in permuted_schedules(
            self.problem,
            [*mine, *self.starts],
            clock=self._part(_EXCHANGES),
            seed=self.seed if seed is None else seed,
        ):
            self.incumbent.offer_earliest(found)

    def _grow_and_pack(self) -> None:
        if self.parts.growth:
            self._grow()
        if self.parts.packing:
            self._pack_starts(self.seed)

    def _grow(self) -> None:
        """Offer what grows from schedules of few microbatches, and pack the best of it."""
        objective, best = self.incumbent.objective, None
        clock = self._part(_GROWTH)
        for order in grown_orders(
            self.problem, self.starts, objective, runner=self.runner, clock=clock, seed=self.seed
        ):
            timed = time_order(self.problem, order, objective, GROWTH)
            value = self.incumbent.offer_timed(timed)
            if value is not None and (best is None or value < best.value(objective)):
                best = timed
        if best is not None and not self.clock.over:
            self._pack(best, self.seed, _FIRST_PACKING)

    def _pack_starts(self, seed: int) -> None:
        for start in self.starts:
            if not self.clock.over:
                self._pack(start, seed, _FIRST_PACKING)

    def _pack_the_incumbent(self) -> None:
        if self.incumbent.schedule is not None:
            self._pack(self.incumbent.schedule, self.seed + 1, _PACKING)

    def _pack(self, schedule: Schedule, seed: int, limit: tuple[float, float]) -> None:
        """Pack a schedule, forward and backward alternately.

        A deterministic clock does not count it: its passes are limited, and short deterministic
        solves would do with far fewer of them and with less time for proofs.
        """
        for packed in justified(
            self.problem,
            schedule.order,
            seed=seed,
            clock=self._part(limit),
            counted=False,
            passes=max(_FEWEST_PASSES, _PACKED_OPS // self.problem.op_count),
            source=f"{schedule.source}, justified",
        ):
            self.incumbent.offer_earliest(packed)

    def _part(self, limit: tuple[float, float]) -> Clock:
        share, most = limit
        return self.clock.part(min(share * self.clock.left, most))
