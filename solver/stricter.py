"""The same problem under a stricter rule about the order of its microbatches, solved first.

What keeps to the order given is in one order for all stages, and what is in one order for all
stages is a schedule of the problem whose stages are free. So a solve begins with the one under the
next stricter rule, at a fixed share of its time: it is a whole solve, with all starts that keep to
the rule, its own bound, and in turn its own stricter rule. What it finds is offered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from pipesat.bounds.closed_form import closed_forms
from pipesat.bounds.feasibility import sure_order
from pipesat.core.claims import Bound
from pipesat.core.least import memory_varies
from pipesat.core.problem import MicrobatchOrder, Problem
from pipesat.core.result import Baseline
from pipesat.core.schedule import Schedule
from pipesat.solver.portfolio import SearchReport
from pipesat.solver.run.incumbent import Incumbent

ONE_BY_ONE = "one microbatch after the other"

_STRICTER: dict[str, MicrobatchOrder] = {"free": "same", "same": "given"}
SHARES = {"free": 1 / 2, "same": 1 / 8}
"""By a problem's order, the share of its time that goes into the next stricter one."""

_FORMS = 1 / 10  # of the time limit, for closed forms

Search = Callable[[Incumbent, list[Schedule]], SearchReport]


def stricter(problem: Problem) -> Problem | None:
    """Return the problem under the next stricter rule; ``None`` where there is none.

    Where microbatches are alike, the rule says nothing.
    """
    rule = _STRICTER.get(problem.order) if problem.has_lists and not problem.alike else None
    return None if rule is None else replace(problem, order=rule)


@dataclass
class Solve:
    """An incumbent with the starts that keep to its problem's rules, the best of every source.

    Those that are hand-written are kept apart from others. ``inner`` is the same under the next
    stricter rule.
    """

    incumbent: Incumbent
    best: dict[tuple[bool, str], Schedule] = field(default_factory=dict)
    inner: Solve | None = None

    def __post_init__(self) -> None:
        outer, strict = self.incumbent, stricter(self.incumbent.problem)
        if strict is not None:
            self.inner = Solve(outer.narrower(strict, outer.clock, outer.offer_timed))

    def begin(self, forms: Sequence[Bound] | None = None) -> None:
        """Collect what needs no search: as many of the closed forms as a share of the time admits.

        ``forms`` are those of the freer problem, where they do not look at the rule.
        """
        problem, objective = self.incumbent.problem, self.incumbent.objective
        if forms is None:
            clock = self.incumbent.clock
            clock = clock.part(_FORMS * clock.limit)
            coming = closed_forms(problem, objective)
            forms = [next(coming), *takewhile(lambda _: not clock.over, coming)]
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
            mine.offer(sure_order(mine.problem), ONE_BY_ONE)
        if mine.schedule is None:
            return SearchReport(["no schedule found"], [])
        if self.inner is not None and not (mine.proven or mine.clock.over):
            strict = self.inner.incumbent
            limit = SHARES[mine.problem.order] * mine.clock.left
            strict.clock = mine.clock.part(limit, stop=lambda: mine.proven)
            found = self.inner.improve(search)
            under = f"with order {strict.problem.order}: "
            report.notes.extend(under + note for note in found.notes)
            report.failed.extend([*strict.faults, *found.failed])
        if not (mine.proven or mine.clock.over):
            found = search(mine, self.starts)
            report.notes.extend(found.notes)
            report.failed.extend(found.failed)
        return report

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
