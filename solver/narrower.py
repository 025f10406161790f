"""Narrower problems, searched first: every schedule of theirs is one of the problem itself.

**A stricter order of microbatches.** What keeps to the order given is in one order for all stages,
and what is in one order for all stages is a schedule of the problem whose stages are free. So a
solve begins with the one under the next stricter rule, at a fixed share of its time, with all
starts that keep to the rule, its own closed forms, and in turn its own stricter rule. What it
proves meanwhile, it proves of the freest rule: of all others a proof would say nothing.

**Few microbatches.** Where microbatches differ or have modes, a long run begins with a short one,
searched by all that there is, and repeated (:class:`pipesat.solver.growth.Few`).

**No pairs, one mode.** Where a problem mixes memory modes with pairs, or has several modes, what is
best of one of them alone is a start that no guide gives: all of the search is for it.

What is found is offered at once. Bounds of a narrower problem say nothing of the wider one, but
that it has nothing better: then it is not searched, or its search ends. So it does when it stalls,
and it is not searched where what it starts from is far from what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, takewhile
from typing import NamedTuple

from pipesat.bounds.closed_form import closed_forms
from pipesat.bounds.feasibility import preflight, sure_order
from pipesat.core.claims import Bound
from pipesat.core.errors import Infeasible, NotApplicable
from pipesat.core.progress import doing
from pipesat.core.settings import MicrobatchOrder
from pipesat.problem.plain_problems import memory_varies, with_modes_of_stages
from pipesat.problem.problem import Problem
from pipesat.schedule.result import Baseline
from pipesat.schedule.schedule import Order, Schedule, has_modes, has_pairs
from pipesat.solver.growth.assign import in_modes_of_stages
from pipesat.solver.growth.few_microbatches import few_of
from pipesat.solver.growth.mode_starts import mode_names, mode_number
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
        """Offer a start; return it as it was timed, or ``None`` if it breaks a rule."""
        objective = self.incumbent.objective
        timed = self.incumbent.offer_earliest(schedule)
        if timed is None:
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
            limit = SHARES[mine.problem.order] * mine.clock.left
            strict.clock = mine.clock.part(limit, stop=lambda: mine.proven)
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
        made = [schedule for (written, _), schedule in self.best.items() if written]
        best = min(made, key=lambda schedule: schedule.value(objective), default=None)
        return None if best is None else Baseline(best.source, best.value(objective))

    @property
    def starts(self) -> list[Schedule]:
        """The best start of every source, best first."""
        objective = self.incumbent.objective
        return sorted(self.best.values(), key=lambda start: start.value(objective))


_SHARE = 0.4  # of the time left, for all narrower problems together
_WORTH = 2.0  # seconds: in less, guides with modes put into them are worth more
_STARTS = 0.25  # of the time of one, at most, goes into hand-written schedules
_NEAR = 1.1  # times what is known: the best start of one that is worth a search


class Narrower(NamedTuple):
    """A narrower problem, and what its schedules are for the problem itself.

    ``patience`` is the share of the time limit without a better one after which its search ends.
    """

    name: str
    problem: Problem
    widened: Callable[[Schedule], Iterable[Order]]
    patience: float = 1 / 12


def few_alone(problem: Problem) -> Iterator[Narrower]:
    """Yield the problem of few microbatches whose schedules are repeated, if there is one.

    Where microbatches are alike and have no modes, growth looks for one with better means.
    """
    few = None if problem.plain or not problem.chains_only else few_of(problem)
    if few is not None:
        yield Narrower("few microbatches", few.problem, few.orders, 1 / 6)


def narrower(problem: Problem) -> Iterator[Narrower]:
    """Yield the problems that are left if pairs, or all modes but one, are not used.

    Where a stage has a mode for all of its microbatches, the search branches over the modes itself.
    """
    if not problem.has_modes:
        return
    if problem.mode_choice == "microbatch":
        for name in ("keep", *mode_names(problem)):
            modes = tuple(mode_number(problem, s, name) for s in range(len(problem.stages)))
            alone = with_modes_of_stages(problem, modes)
            if alone is not None and _fits(alone):
                yield Narrower(name, alone, partial(_in_modes, problem, modes))
    if problem.overlap is not None:
        yield Narrower("no pairs", replace(problem, overlap=None), lambda found: [found.order])


def _in_modes(problem: Problem, modes: Sequence[int], found: Schedule) -> Iterator[Order]:
    yield in_modes_of_stages(problem, found.order, modes)


def _fits(problem: Problem) -> bool:
    with suppress(Infeasible):
        preflight(problem)
        return True
    return False


def search_all(
    lanes: Lanes, guides: Sequence[Schedule], mine: Incumbent, starts: list[Schedule]
) -> SearchReport:
    """Search what is narrower than a problem, for a share of the time, then the problem itself.

    ``guides`` are schedules without modes, valid or not, for starts with modes along them.
    """
    report = search_narrower(lanes, mine, starts, few_alone(mine.problem))
    if mine.problem.has_modes:
        lanes.hand(mine, starts)
        along = [*allowed(mine.problem, guides)]
        report.failed.extend(start_along(mine, along, lanes.options.seed))
        report.add(search_narrower(lanes, mine, starts, narrower(mine.problem)))
    if not (mine.proven or mine.clock.over):
        report.add(lanes.search(mine, starts))
    return report


def search_narrower(
    lanes: Lanes, mine: Incumbent, starts: Sequence[Schedule], problems: Iterable[Narrower]
) -> SearchReport:
    """Search narrower problems for a share of the time; offer what is found to ``mine``."""
    report = SearchReport([], [])
    problems = list(problems) if mine.clock.left >= _WORTH else []
    whole = mine.clock.part(_SHARE * mine.clock.left, stop=lambda: mine.proven)

    def hopeless() -> bool:
        stalls = own.clock.elapsed - own.found_at > narrow.patience * mine.clock.limit
        return stalls or (mine.value is not None and own.bound.value >= mine.value)

    for number, narrow in enumerate(problems):
        if whole.over:
            break
        clock = whole.part(whole.left / (len(problems) - number))
        own = mine.narrower(narrow.problem, clock, partial(_offer, mine, narrow))
        own.wider = mine
        forms = closed_forms(narrow.problem, mine.objective)
        for bound in takewhile(lambda _: not hopeless(), forms):
            own.raise_bound(bound)
        if hopeless():
            continue
        with suppress(Infeasible, NotApplicable):
            own.offer(sure_order(narrow.problem), ONE_BY_ONE)
        if own.schedule is None:
            continue
        made: list[Schedule] = []
        known: list[Schedule] = []
        try:
            same = narrow.problem.microbatches == mine.problem.microbatches
            made.extend(lanes.starts_of(narrow.problem))
            mine_too = allowed(narrow.problem, starts) if same else ()
            known.extend(own.valid(chain(mine_too, made), clock.part(_STARTS * clock.left)))
        except Exception as error:
            report.failed.append(failure_note("a hand-written schedule", error))
        known.sort(key=lambda start: start.value(mine.objective))
        far = mine.value is not None and own.value is not None and own.value > _NEAR * mine.value
        if not (own.clock.over or own.proven or far):
            own.clock = clock.part(clock.left, stop=hopeless)
            own.found_at = own.clock.elapsed
            if narrow.problem.has_modes:
                report.failed.extend(start_along(own, made, lanes.options.seed))
            with doing(f"the narrower problem {narrow.name}"):
                report.add(lanes.search(own, known), f"{narrow.name}: ")
        report.failed.extend(own.faults)
    return report


def allowed(problem: Problem, schedules: Iterable[Schedule]) -> Iterator[Schedule]:
    """Those schedules that have no pairs or modes, where a problem allows none."""
    return (
        each
        for each in schedules
        if (problem.overlap is not None or not has_pairs(each.order))
        and (problem.has_modes or not has_modes(each.order))
    )


def _offer(mine: Incumbent, narrow: Narrower, found: Schedule) -> None:
    for order in narrow.widened(found):
        mine.offer(order, found.source)
