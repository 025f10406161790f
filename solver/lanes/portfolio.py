"""What lanes do: who improves, who proves, and what each may try next.

Lanes 0, 2, 4, ... improve the schedule, lanes 1, 3, 5, ... raise the bound; a lane that is alone
does both. The tables below say what there is for each, with its weight in either kind of lane: the
time it has where nothing pays, compared with the others. Which comes next is decided by what has
paid so far on this problem (:mod:`pipesat.solver.lanes.turns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, cycle
from typing import Any, Final, NamedTuple

from pipesat.bounds.period import has_period
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.exchanges import permutations_apply, permuted_schedules
from pipesat.solver.growth.few_microbatches import SOURCE as GROWTH
from pipesat.solver.growth.few_microbatches import grown_orders
from pipesat.solver.growth.packing import justified
from pipesat.solver.growth.periodic import steady_rate
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.lane import Seat, Work
from pipesat.solver.lanes.runner import Runner, Watched
from pipesat.solver.lanes.team import SearchReport, Team
from pipesat.solver.lanes.turns import Turn, take_turns
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.times import LARGEST, unit_for
from pipesat.solver.options import SearchParts, SolveOptions
from pipesat.solver.proof.choices import SOURCE as CHOICES
from pipesat.solver.proof.choices import Choices
from pipesat.solver.proof.passing_modes import branching_applies
from pipesat.solver.proof.search import ProofSearch, proofs_for
from pipesat.solver.proof.whole import WHOLE, Whole, whole_applies
from pipesat.solver.windows.window_search import WindowSearch, windows_apply

_NEAR = 1.05  # times the best start's value: of those that windows begin from
_PATIENCE = 5.0  # seconds of window search without an improvement
_VAIN = 20.0  # seconds of a lane's proofs without a better bound

Step = Callable[[], bool]
StartsOf = Callable[[Problem], Iterable[Schedule]]


class LanePart(NamedTuple):
    """Something that lanes may do.

    ``make`` returns a step of it, ``None`` where it does not apply. ``improving`` and ``proving``
    are its weights in the two kinds of lane; with 0 it is done there only by a lane that is alone.
    ``when`` says whether it is worth a step now; ``first``: once before all others.
    """

    name: str
    make: Callable[[Lane], Step | None]
    improving: float
    proving: float
    when: Callable[[Lane], bool] = lambda _: True
    first: bool = False


@dataclass
class Lane:
    """A lane that searches one problem: what its parts share.

    ``starts`` are valid schedules, best first; with memory modes, ``starts_of`` makes some for
    problems in which stages have theirs.
    """

    seat: Seat
    incumbent: Incumbent
    starts: Sequence[Schedule]
    seed: int
    parts: SearchParts
    starts_of: StartsOf = lambda _: ()
    windows: WindowSearch | None = None
    vain: float = 0.0  # seconds of proofs since they raised the bound
    told: list[Any] = field(default_factory=list)  # parts that have a report

    def __post_init__(self) -> None:
        self.problem = self.incumbent.problem
        self.proves = self.seat.number % 2 == 1
        self.paired = bool(gains(self.problem))
        if self.proves:
            exchanges = self.parts.exchanges and not self.problem.alike
            self.parts = replace(self.parts, packing=False, growth=False, exchanges=exchanges)
        elif not (self.problem.plain and self.problem.chains_only):
            self.parts = replace(self.parts, growth=False)  # a few microbatches are not like all

    @cached_property
    def proofs(self) -> ProofSearch:
        """What raises the bound of the problem that was asked for."""
        number, provers = self.seat.number // 2, self.seat.count // 2
        share = (number, provers) if self.proves else (provers + number, 1)
        asked = self.incumbent.wider is None
        found = proofs_for(self.incumbent, seed=self.seed, parts=self.parts, share=share)
        self.told += [found] if asked else []
        return found

    @cached_property
    def windows_apply(self) -> bool:
        """Whether windows apply; where there are modes, they round no times."""
        problem, incumbent = self.problem, self.incumbent
        exact = not problem.has_modes or unit_for(incumbent.latest) == 1
        return self.parts.windows and exact and windows_apply(problem, incumbent)

    @cached_property
    def reliable(self) -> bool:
        """Whether CP-SAT can be relied on for times as long as the schedule's."""
        schedule = self.incumbent.schedule
        return schedule is not None and schedule.makespan <= LARGEST

    def search(self) -> list[str]:
        """Take turns until the clock is over; return notes."""
        table = MODES if self.problem.has_modes else PAIRS if self.paired else PLAIN
        turns = [turn for part in table if (turn := self._turn(part)) is not None]
        take_turns(self.incumbent, turns, self.seat.account)
        notes = [part.report for part in self.told]
        if self.problem.has_modes and not (self.seat.number or self.windows_apply):
            notes += [_ASIDE] if self.parts.windows else []
        return notes

    def _turn(self, part: LanePart) -> Turn | None:
        weight = part.proving if self.proves else part.improving
        step = part.make(self) if weight or not self.proves else None
        if step is None:
            return None

        def ready() -> bool:
            return bool(weight or self.seat.alone) and part.when(self)

        return Turn(part.name, step, weight or 1.0, ready, first=part.first and weight > 0)


_ASIDE: Final = "windows stepped aside: they cannot take such long times, or have no time"


def _windows(lane: Lane) -> Step | None:
    """Windows; with modes they wander, and where ops may pair those of improving lanes do."""
    if not lane.windows_apply:
        return None
    lane.windows = WindowSearch(
        lane.problem,
        lane.incumbent,
        runner=lane.seat.runner(),
        seed=lane.seed + lane.seat.number,
        wanders=lane.problem.has_modes or (lane.paired and not lane.proves),
    )
    return lane.windows.step


def _other_ways(lane: Lane) -> Step | None:
    """Exchanges, growth and packing; where ops may pair, windows that begin from other starts."""
    number = lane.seat.number
    branches = branching_applies(lane.incumbent.asked.problem) and (lane.proves or lane.paired)
    ways = OtherWays(
        lane.incumbent,
        lane.starts,
        lane.seat.runner(),
        seed=lane.seed + number,
        parts=lane.parts,
        exchanges=_OF_PAIRS if lane.problem.alike else _LESS if branches else _EXCHANGES,
    ).all()
    windows, near = lane.windows, _near(lane.incumbent, lane.starts)
    if lane.paired and near and windows is not None:
        ways = _with_new_beginnings(ways, windows, near[1:] + near[:1])

    def step() -> bool:
        way = next(ways, None)
        if way is not None:
            way()
            if windows is not None:
                windows.refresh()
        return way is not None

    return step


def _proofs(lane: Lane) -> Step | None:
    runner = lane.seat.runner()

    def step() -> bool:
        clock, asked = lane.incumbent.clock, lane.incumbent.asked
        begin, raised = clock.elapsed, asked.raised
        lane.proofs.step(runner, helping=not (lane.proves or lane.seat.alone))
        lane.vain = lane.vain + clock.elapsed - begin if asked.raised == raised else 0.0
        return not lane.proofs.finished

    return step


def _stalled(lane: Lane) -> bool:
    """Whether windows have found nothing for a while, or there are none."""
    return lane.windows is None or lane.windows.idle >= _PATIENCE


def _time_for_windows(lane: Lane) -> bool:
    """In a lane that proves, once proofs raise the bound no more."""
    return not lane.proves or lane.vain >= _VAIN or lane.proofs.finished


def _time_for_proofs(lane: Lane) -> bool:
    return lane.proves or lane.seat.alone or _stalled(lane)


def _choices(lane: Lane) -> Step | None:
    problem = lane.problem
    if lane.seat.number or problem.mode_choice != "stage" or problem.overlap is not None:
        return None
    found = Choices(
        problem,
        lane.incumbent,
        lane.starts_of,
        partial(alone, parts=lane.parts),
        seed=lane.seed,
    )
    lane.told.append(found)
    return found.step


def _whole(lane: Lane) -> Step | None:
    applies = lane.windows_apply and whole_applies(lane.problem, lane.incumbent.latest)
    if lane.seat.number or not applies:
        return None
    found = Whole(lane.problem, lane.incumbent, runner=lane.seat.runner(), seed=lane.seed)
    lane.told.append(found)
    return found.step


def _proofs_of_modes(lane: Lane) -> Step | None:
    return _proofs(lane) if lane.reliable and lane.windows_apply else None


_WAYS: Final = "growth, packing and exchanges"
PLAIN: Final = (
    LanePart("windows", _windows, 1, 1 / 6, _time_for_windows),
    LanePart(_WAYS, _other_ways, 1, 1, _stalled, first=True),
    LanePart("proofs", _proofs, 1, 1, _time_for_proofs),
)
"""Of problems without memory modes, in which no ops may pair."""
PAIRS: Final = (
    LanePart("windows", _windows, 1, 1 / 3),  # they gain more than proofs beyond closed forms
    LanePart(_WAYS, _other_ways, 1, 1, _stalled, first=True),
    LanePart("proofs", _proofs, 1, 1, _time_for_proofs),
)
"""Of problems without memory modes, in which ops may pair."""
MODES: Final = (
    LanePart(CHOICES, _choices, 1, 0),
    LanePart("windows", _windows, 1, 1),
    LanePart(WHOLE, _whole, 1, 0),
    LanePart("proofs", _proofs_of_modes, 0, 1),
)
"""Of problems with memory modes."""


@dataclass(frozen=True)
class Lanes:
    """All lanes of a solve; ``starts_of`` makes hand-written schedules for other problems."""

    team: Team
    options: SolveOptions
    starts_of: StartsOf = lambda _: ()

    def search(self, incumbent: Incumbent, starts: Sequence[Schedule]) -> SearchReport:
        """Improve an incumbent and its bound until proven, out of time or stopped.

        Needs an incumbent with a schedule. ``starts`` are others that are valid, the best first.
        Returns what happened.
        """
        options = self.options
        ours = partial(
            work,
            starts=starts,
            seed=options.seed,
            parts=options.parts,
            starts_of=self.starts_of,
        )
        return self.team.run(incumbent, self._travelling(incumbent, starts), ours)

    def hand(self, incumbent: Incumbent, starts: Sequence[Schedule]) -> None:
        """Let the other lanes search meanwhile."""
        self.team.hand(incumbent, self._travelling(incumbent, starts))

    def _travelling(self, incumbent: Incumbent, starts: Sequence[Schedule]) -> Work:
        """Return the work of a lane in another process, with those starts that it uses."""
        used = starts[:_STARTS]
        if not incumbent.problem.has_modes and gains(incumbent.problem):
            used = _near(incumbent, starts) or used
        bare = [one.bare() for one in used]
        return partial(work, starts=bare, seed=self.options.seed, parts=self.options.parts)


def _near(incumbent: Incumbent, starts: Sequence[Schedule]) -> list[Schedule]:
    """Those starts that are about as good as the best, which is the first."""
    objective = incumbent.objective
    return [s for s in starts if s.value(objective) <= _NEAR * starts[0].value(objective)]


def work(seat: Seat, incumbent: Incumbent, **told: Any) -> list[str]:
    """Do a lane's part of a search; see :class:`Lane`."""
    return Lane(seat, incumbent, **told).search()


def alone(
    incumbent: Incumbent, starts: Sequence[Schedule], seed: int, parts: SearchParts
) -> list[str]:
    """Search with one lane, beside all others; return what failed."""
    lane = Watched(incumbent.part())
    return lane.run(Lane(Seat(0, lane.runner), incumbent, starts, seed, parts).search)


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


_STARTS = 3  # of different sources: chance and where one comes from decide where packing ends
_ROUNDS = 4  # of packing them, each with other chances
_FIRST_PACKING = 0.04, 2.5  # share of the time left; seconds at most
_PACKING = 0.1, 8.0
_FAR = 1000  # between the seeds of rounds: lanes' seeds lie in between
_GROWTH = 0.5, 30.0  # it ends early where it does not help
_VERY_LONG = 16  # microbatches per device: growth begins from each start apart, the best last
_EXCHANGES, _LESS = (0.5, 60.0), (0.25, 30.0)  # less where proofs branch
_OF_PAIRS = 0.1, 10.0  # where microbatches are alike
_PACKED_OPS, _FEWEST_PASSES = 200_000, 3  # ops of all passes together


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
        exchanges: tuple[float, float] = _EXCHANGES,
    ) -> None:
        self.incumbent, self.problem = incumbent, incumbent.problem
        self.starts = starts[:_STARTS]
        self.runner, self.clock = runner, runner.clock
        self.seed, self.parts, self.exchanges = seed, parts, exchanges

    def all(self) -> Iterator[Callable[[], None]]:
        """Yield what to try, one after the other, when windows do not help.

        The first of it, growth and packing, is worth trying before windows.
        """
        exchange = self.parts.exchanges and permutations_apply(self.problem)
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
            clock=self._part(self.exchanges),
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
        very_long = self.problem.microbatches[0] > _VERY_LONG * len(self.problem.devices)
        orders = (
            grown_orders(
                self.problem, starts, objective, runner=self.runner, clock=clock, seed=self.seed
            )
            for starts in ([[start] for start in self.starts[::-1]] if very_long else [self.starts])
        )
        for order in chain.from_iterable(orders):
            timed = time_order(self.problem, order, objective, GROWTH)
            value = self.incumbent.offer_timed(timed)
            if value is not None and has_period(self.problem):
                self.incumbent.offer_steady(steady_rate(self.problem, timed))
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
        """Pack a schedule, forward and backward alternately."""
        for packed in justified(
            self.problem,
            schedule.order,
            seed=seed,
            clock=self._part(limit),
            passes=max(_FEWEST_PASSES, _PACKED_OPS // self.problem.op_count),
            source=f"{schedule.source.removesuffix(', justified')}, justified",
        ):
            self.incumbent.offer_earliest(packed)

    def _part(self, limit: tuple[float, float]) -> Clock:
        share, most = limit
        return self.clock.part(min(share * self.clock.left, most))
