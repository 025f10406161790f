"""Narrower problems, searched first: every schedule of theirs is one of the problem itself.

**A stricter order of microbatches.** What keeps to the order given is in one order for all stages,
and what is in one order for all stages is a schedule of the problem whose stages are free. So a
solve begins with the one under the next stricter rule, at a fixed share of its time, with all
starts that keep to the rule, its own closed forms, and in turn its own stricter rule. What it
proves meanwhile, it proves of the freest rule: of all others a proof would say nothing.

**Few microbatches.** Where microbatches differ or have modes, a long run begins with a short one,
searched by all that there is, and repeated (:class:`pipesat.solver.growth.Few`).

What is found is offered at once. Bounds of a narrower problem say nothing of the wider one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile

from pipesat.bounds.closed_form import closed_forms
from pipesat.bounds.feasibility import sure_order
from pipesat.core.claims import Bound
from pipesat.core.errors import Infeasible, NotApplicable
from pipesat.core.progress import doing
from pipesat.core.settings import MicrobatchOrder
from pipesat.problem.plain_problems import memory_varies
from pipesat.problem.problem import Problem
from pipesat.schedule.result import Baseline
from pipesat.schedule.schedule import Schedule, pairs_in
from pipesat.solver.growth.few_microbatches import few_of
from pipesat.solver.growth.start_along import start_along
from pipesat.solver.lanes.incumbent import Incumbent, failure_note
from pipesat.solver.lanes.portfolio import Lanes
from pipesat.solver.lanes.team import SearchReport
from pipesat.solver.proof.whole import offer_any

ONE_BY_ONE = "one microbatch after the other"

_STRICTER: dict[str, MicrobatchOrder] = {"free": "same", "same": "given"}
SHARES = {"free": 1 / 2, "same": 1 / 8}
"""By a problem's order, the share of its time that goes into the next stricter one."""

_FORMS = 1 / 10  # of the time limit, for closed forms
_LEAST_FORMS = 2  # that are taken in any case: no time, and one that says something

Search = Callable[[Incumbent, list[Schedule]], SearchReport]


def stricter(problem: Problem) -> Problem | None:
    """Return the problem under the next stricter rule; ``None`` where there is none.

    Where microbatches are alike, the rule says nothing.
    """
    rule = _STRICTER.get(problem.order) if problem.has_lists and not problem.alike else None
    return None if rule is None else replace(problem, order=rule)


@dataclass
class Level:
    """A problem under one rule for the order of microbatches: its incumbent and its starts.

    Starts are those that keep to its rules, the best of every source, hand-written ones apart from
    others. ``inner`` is the same under the next stricter rule.
    """

    incumbent: Incumbent
    best: dict[tuple[bool, str], Schedule] = field(default_factory=dict)
    inner: Level | None = None

    def __post_init__(self) -> None:
        outer, strict = self.incumbent, stricter(self.incumbent.problem)
        if strict is not None:
            inner = outer.narrower(strict, outer.clock, outer.offer_timed)
            inner.wider = outer
            self.inner = Level(inner)

    def begin(self, forms: Sequence[Bound] | None = None) -> None:
        """Collect what needs no search: as many of the closed forms as a share of the time admits.

        ``forms`` are those of the freer problem, where they do not look at the rule.
        """
        problem, objective = self.incumbent.problem, self.incumbent.objective
        if forms is None:
            clock = self.incumbent.clock
            clock = clock.part(_FORMS * clock.limit)
            coming = closed_forms(problem, objective)
            forms = [*islice(coming, _LEAST_FORMS)]  # however short the time is
            while not clock.over and (bound := next(coming, None)):
                forms.append(bound)
        for bound in sorted(forms, key=lambda bound: bound.value, reverse=True):
            self.incumbent.raise_bound(bound)  # the best first; the others, should it be refuted
        if self.inner is not None:
            self.inner.begin(forms if memory_varies(problem) else None)

    def take(self, schedule: Schedule, *, written: bool) -> Schedule | None:
        """Offer a start; return it as it was timed, or ``None`` if it breaks a rule.

        Nor does it count once the incumbent is closed: that of a solve that went on without it.
        """
        objective = self.incumbent.objective
        timed = self.incumbent.offer_earliest(schedule)
        if timed is None or self.incumbent.closed:
            return None
        known = self.best.get((written, schedule.source))
        if known is None or timed.value(objective) < known.value(objective):
            self.best[written, schedule.source] = timed
        if self.inner is not None:
            self.inner.take(timed, written=written)
        return timed

    def improve(self, search: Search) -> SearchReport:
        """Search under the stricter rule at its share of the time left, then under this one.

        ``search`` improves an incumbent with a schedule until its clock is over; the schedules are
        starts, the best first.
        """
        report = SearchReport([], [])
        mine = self.incumbent
        if mine.schedule is None:
            self.offer_sure()
        if mine.schedule is None and (mine.problem.has_modes or not mine.problem.chains_only):
            report.failed.extend(offer_any(mine))
        if mine.schedule is None:
            return report
        if self.inner is not None and not (mine.proven or mine.clock.over):
            strict = self.inner.incumbent
            strict.clock = mine.part(SHARES[mine.problem.order])
            under = f"with order {strict.problem.order}: "
            with doing(f"the problem {under[:-2]}"):
                found = self.inner.improve(search)
            report.failed.extend(strict.faults)
            report.add(found, under)
        if not (mine.proven or mine.clock.over):
            report.add(search(mine, self.starts))
        return report

    def offer_sure(self) -> None:
        """Offer one microbatch after the other: it fits wherever anything does, but for modes."""
        try:
            self.incumbent.offer(sure_order(self.incumbent.problem), ONE_BY_ONE)
        except Infeasible as error:
            self.incumbent.impossible = str(error)
        except NotApplicable:
            return

    @property
    def baseline(self) -> Baseline | None:
        """The best hand-written start."""
        objective = self.incumbent.objective
        made = [schedule for (written, _), schedule in [*self.best.items()] if written]
        best = min(made, key=lambda schedule: schedule.value(objective), default=None)
        return None if best is None else Baseline(best.source, best.value(objective))

    @property
    def starts(self) -> list[Schedule]:
        """The best start of every source, best first."""
        objective = self.incumbent.objective
        return sorted(self.best.values(), key=lambda start: start.value(objective))


_SHARE = 0.4  # of the time left that goes into few microbatches
_WORTH = 2.0  # seconds: in less, guides with modes put into them are worth more
_STARTS = 0.25  # of that time, at most, goes into hand-written schedules
_PATIENCE = 1 / 6  # of the time limit, without a better schedule of few microbatches


def search_all(
    lanes: Lanes, guides: Sequence[Schedule], mine: Incumbent, starts: list[Schedule]
) -> SearchReport:
    """Search few microbatches for a share of the time, then the problem itself.

    ``guides`` are schedules without modes, valid or not, for starts with modes along them.
    """
    report = _search_few(lanes, mine)
    if mine.problem.has_modes:
        lanes.hand(mine, starts)
        usable = (g for g in guides if mine.problem.overlap is not None or not pairs_in(g.order))
        report.failed.extend(start_along(mine, [*usable], lanes.options.seed))
    if not (mine.proven or mine.clock.over):
        report.add(lanes.search(mine, starts))
    return report


def _search_few(lanes: Lanes, mine: Incumbent) -> SearchReport:
    """Search the problem of few microbatches, if there is one; offer what repeats its schedules.

    Where microbatches are alike and have no modes, growth looks for one with better means.
    """
    report, problem = SearchReport([], []), mine.problem
    worth = not problem.plain and problem.chains_only and mine.clock.left >= _WORTH
    few = few_of(problem) if worth else None
    if few is None:
        return report

    def offer(found: Schedule) -> None:
        for order in few.orders(found):
            mine.offer(order, found.source)

    def stalled() -> bool:
        return own.clock.elapsed - own.found_at > _PATIENCE * mine.clock.limit

    clock = mine.part(_SHARE)
    own = mine.narrower(few.problem, clock, offer)
    own.wider = mine
    for bound in takewhile(lambda _: not stalled(), closed_forms(few.problem, mine.objective)):
        own.raise_bound(bound)
    if not stalled():
        with suppress(Infeasible, NotApplicable):
            own.offer(sure_order(few.problem), ONE_BY_ONE)
    if own.schedule is None:
        return report
    made: list[Schedule] = []
    known: list[Schedule] = []
    try:
        made.extend(lanes.starts_of(few.problem))
        known.extend(own.valid(made, clock.part(_STARTS * clock.left)))
    except Exception as error:
        report.failed.append(failure_note("a hand-written schedule", error))
    known.sort(key=lambda start: start.value(mine.objective))
    if not (own.clock.over or own.proven):
        own.clock = clock.part(clock.left, stop=stalled)
        own.found_at = own.clock.elapsed
        if few.problem.has_modes:
            report.failed.extend(start_along(own, made, lanes.options.seed))
        with doing("few microbatches"):
            report.add(lanes.search(own, known), "few microbatches: ")
    report.failed.extend(own.faults)
    return report
