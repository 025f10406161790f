"""One solve, from start to end: closed forms, starts, lanes, and what came of them."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import partial

from pipesat.bounds.feasibility import preflight
from pipesat.bounds.period import has_period, steady_bounds
from pipesat.check.checker import check
from pipesat.core.claims import Period, Standing
from pipesat.core.errors import Fault, Infeasible
from pipesat.core.progress import doing
from pipesat.problem.plain_problems import least_problem, same_but_for_the_order
from pipesat.problem.problem import Problem
from pipesat.schedule.microbatch_order import in_number_order
from pipesat.schedule.result import Solution
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.periodic import SOURCE as PERIODIC
from pipesat.solver.growth.periodic import periodic_applies, periodic_orders, steady_rate
from pipesat.solver.lanes.aside import aside
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent, failure_note
from pipesat.solver.lanes.portfolio import Lanes
from pipesat.solver.lanes.team import SearchReport, Team
from pipesat.solver.model.left_out import with_microbatches
from pipesat.solver.narrower import Level, search_all
from pipesat.solver.options import SolveOptions
from pipesat.solver.starts import StartingSchedules

# Most of the time limit that hand-written starts may take: this share, and no more than these
# seconds or that smaller share, whichever is more.
_STARTS, _STARTS_SECONDS, _STARTS_OF_LONG = 0.5, 15.0, 0.1
_SETTLED = 12  # microbatches per device after which a periodic order runs at its rate
# Share of the time left that periodic orders may take, and seconds at most.
_PERIODIC, _OF_PROVEN = (0.15, 9.0), (0.02, 9.0)
_CUT = "the search ended before all hand-written schedules were made"


def solve(problem: Problem, options: SolveOptions | None = None) -> Solution:
    """Return the best checked schedule found within the time limit, and its bound.

    A bound that contradicts a checked schedule is a bug in pipesat or in CP-SAT, and so is a part
    of the search that fails. The schedule is kept, the bound and all from its origin are dropped,
    and ``warnings`` of the result say so.
    """
    plain = same_but_for_the_order(problem)  # any order of theirs can be numbered afterwards
    search = OneSolve(least_problem(problem) if plain else problem, options or SolveOptions())
    try:
        aside(search.run, search.incumbent, search.team.begin, search.level.offer_sure)
    finally:
        search.team.close()
    search.incumbent.close()
    return search.solution(problem)


class OneSolve:
    """A solve under way: the best so far, where it starts, and the lanes that improve it."""

    def __init__(self, problem: Problem, options: SolveOptions) -> None:
        self.problem, self.options = problem, options
        self.used = time.process_time()
        self.clock = Clock(options.time_limit, options.deterministic, options.stop.is_set)
        self.incumbent = Incumbent(problem, options.objective, self.clock, options.listener)
        self.level = Level(self.incumbent)
        self.starts = StartingSchedules(
            problem, options.starts, self._give_up, lambda: self.incumbent.schedule is not None
        )
        self.team = Team(self.incumbent, options.lanes)
        self.lanes = Lanes(self.team, options, self.starts.of)
        self.report = SearchReport([], [])

    def run(self) -> None:
        """Prove what needs no search, take the starts, and let lanes improve the best of them."""
        try:
            preflight(self.problem)
        except Infeasible as error:
            self.incumbent.impossible = str(error)
            return
        if self.options.parts.closed_forms:
            self.level.begin()
            self._bound_the_period()
        if self.options.known_bound is not None:
            self.incumbent.raise_bound(self.options.known_bound)
        guides = self._take_starts()
        if has_period(self.problem):
            self._look_for_a_period()
        self.report.add(self.level.improve(partial(search_all, self.lanes, guides)))
        if has_period(self.problem) and self.incumbent.schedule is not None:
            self.incumbent.offer_steady(steady_rate(self.problem, self.incumbent.schedule))

    def _bound_the_period(self) -> None:
        """Prove what the microbatches of a long run take at least, and so all of them."""
        (count, *_), objective = self.problem.microbatches, self.options.objective
        for steady in steady_bounds(self.problem, objective) if has_period(self.problem) else ():
            self.incumbent.raise_bound(steady.of_run(count), rate=steady.rate)

    def _look_for_a_period(self) -> None:
        """See how fast the best starts of a long run can go on, and look for faster orders."""
        incumbent, problem, options = self.incumbent, self.problem, self.options
        for schedule in self.level.starts[:1]:
            incumbent.offer_steady(steady_rate(problem, schedule))
        if not options.parts.growth or not periodic_applies(problem):
            return
        proven = incumbent.proven
        share, most = _OF_PROVEN if proven else _PERIODIC
        clock = self.clock.part(
            min(share * self.clock.left, most),
            lambda: incumbent.steady == incumbent.rate or incumbent.proven > proven,
        )
        long = with_microbatches(problem, [_SETTLED * len(problem.devices)])
        for together, order_of in periodic_orders(problem, clock, options.seed):
            timed = time_order(long, order_of(long), source=PERIODIC)
            if not check(long, timed):
                incumbent.offer_steady(steady_rate(long, timed))
                source = f"{PERIODIC} of {together}"  # where growth goes depends on where it begins
                timed = time_order(problem, order_of(problem), source=source)
                self.level.take(timed, written=False)

    @property
    def _period(self) -> Period | None:
        """What is known of a long run's; a schedule can be repeated without overlap."""
        schedule, (count, *_) = self.incumbent.schedule, self.problem.microbatches
        if schedule is None or not has_period(self.problem):
            return None
        alone = Fraction(schedule.makespan, count)
        return Period(min(alone, self.incumbent.steady or alone), self.incumbent.rate)

    def solution(self, asked: Problem) -> Solution:
        """Return what came of it, for the problem that was asked for."""
        incumbent, team, options = self.incumbent, self.team, self.options
        infeasible = bool(incumbent.impossible)
        standing = Standing(incumbent.value, incumbent.bound.value, infeasible)
        best = self.level.baseline
        least = best is not None and best.value == incumbent.bound.value  # none can be better
        cut = not (self.starts.all_made or least or infeasible)
        warnings = [*incumbent.faults, *self.report.failed, *team.lost]
        said = [*self.report.notes, *team.notes, *team.accounted(), *warnings, *[_CUT][:cut]]
        if incumbent.schedule is None:
            said = [incumbent.impossible or "no schedule found", *said]
        return Solution(
            problem=asked,
            status=standing.status,
            objective=options.objective,
            schedule=_numbered(asked, self.problem, incumbent.schedule),
            bound=None if infeasible else incumbent.bound,
            baseline=best,
            wall_s=self.clock.seconds,
            seed=options.seed,
            workers=options.lanes,
            versions=versions() | {"python": platform.python_version()},
            history=tuple(incumbent.history),
            explanation="; ".join(said),
            baselines_left_out=cut,
            warnings=tuple(warnings),
            period=self._period,
            lanes=1 + team.searched,
            cpu_s=time.process_time() - self.used + team.cpu,
        )

    def _take_starts(self) -> list[Schedule]:
        """Take given and hand-written schedules; return the latter, valid or not, as guides.

        Guides are for starts with memory modes along them: none where there are no modes. Other
        lanes improve the first valid schedule while others are made.
        """
        limit, guides = self.options.time_limit, list[Schedule]()
        longest = min(_STARTS * limit, max(_STARTS_SECONDS, _STARTS_OF_LONG * limit))
        made = _noted(self.starts, guides) if self.problem.has_modes else self.starts
        with doing("hand-written schedules"):
            self._take(self.options.schedules, reserved=0, written=False)
            self._take(made, reserved=limit - longest, written=True)
        return guides

    def _take(self, starts: Iterable[Schedule], *, reserved: float, written: bool) -> None:
        """Take schedules to start from until one meets the bound.

        Leaves ``reserved`` seconds of the clock once there is a valid one; without one it goes on,
        and what makes them lazily ends when time is over. If making one fails, what came before
        it stays.
        """
        incumbent, clock = self.incumbent, self.clock
        try:
            for schedule in starts:
                first = incumbent.schedule is None
                timed = self.level.take(schedule, written=written)
                if timed is not None:
                    if first:
                        self.lanes.hand(incumbent, self.level.starts)
                    if timed.value(incumbent.objective) == incumbent.bound.value:
                        return
                if incumbent.schedule is not None and (clock.over or clock.left <= reserved):
                    return
        except Exception as error:
            self.report.failed.append(failure_note("a hand-written schedule", error))

    def _give_up(self) -> bool:
        """Whether no more hand-written schedules are to be made: none is counted if exact."""
        timed_out = not self.clock.deterministic and self.clock.over
        return timed_out or self.options.stop.is_set()


def _numbered(asked: Problem, searched: Problem, found: Schedule | None) -> Schedule | None:
    """Keep the rule about the order, which costs nothing where microbatches are alike."""
    if found is None or asked is searched or asked.order == "free":
        return found
    ordered = in_number_order(found)
    if violations := check(asked, ordered):
        raise Fault(f"in the order of the numbers, a schedule is not valid: {violations[0]}")
    return ordered


def _noted(schedules: Iterable[Schedule], notes: list[Schedule]) -> Iterator[Schedule]:
    """Yield schedules and note them all, valid or not."""
    for schedule in schedules:
        notes.append(schedule)
        yield schedule


def versions() -> dict[str, str]:
    """Return the versions of packages that results depend on."""
    names = ("pipesat", "ortools", "numpy")
    return {name: importlib.metadata.version(name) for name in names}
