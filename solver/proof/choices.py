"""One mode per stage: the choices, each as a problem without modes, the best bound first.

A problem whose first stages have their modes, and whose other stages have the least of each amount,
is a plain one that is no harder (:func:`pipesat.problem.plain_problems.with_choices`). The least
bound of those that remain bounds all of them. Where every stage has its mode, the plain problem is
searched and proven by all that there is for plain ones; its schedules, in these modes, are tried on
the problem. Beside pairs, plain problems say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from pipesat.bounds.closed_form import closed_form_bounds
from pipesat.bounds.feasibility import preflight, sure_order
from pipesat.core.claims import Bound
from pipesat.core.errors import Infeasible
from pipesat.problem.plain_problems import with_choices
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.assign import in_modes_of_stages
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import PROOFS

SOURCE = "choice of a mode per stage"
_SLICES = (3.0, 6.0, 12.0)  # seconds of the first, the second, and every later visit of a choice
_MOST = 20_000  # choices that are open at once; beyond, no further ones are made
_AT_ONCE = 200  # choices made in a step, at most


@dataclass
class _Choice:
    """Modes of the first stages, and what is known of the problem in which they have them."""

    modes: tuple[int, ...]
    problem: Problem
    bound: Bound
    visits: int = 0
    incumbent: Incumbent | None = None


class Choices:
    """Branches over the modes of the stages; see :meth:`step`.

    ``search`` improves an incumbent from starts, with a seed, until its clock is over; it returns
    what failed.
    """

    def __init__(
        self,
        problem: Problem,
        incumbent: Incumbent,
        starts_of: Callable[[Problem], Iterable[Schedule]],
        search: Callable[[Incumbent, Sequence[Schedule], int], list[str]],
        *,
        seed: int,
    ) -> None:
        self.problem, self.incumbent, self.starts_of = problem, incumbent, starts_of
        self.search, self.seed = search, seed
        self.open = list(self._choice(()))
        self.steps = self.visited = 0

    @property
    def report(self) -> str:
        """What it did, in a few words."""
        return f"{SOURCE}: {self.visited} solved for a while, {len(self.open)} open"

    def step(self) -> bool:
        """Visit one choice, by turns the one of least bound and one of fewest visits.

        Returns whether any is left.
        """
        self.steps += 1
        for _ in range(_AT_ONCE):
            value = self.incumbent.value
            if value is not None:
                self.open = [one for one in self.open if one.bound.value < value]
            self._raise_bound()
            if not self.open or self.incumbent.clock.over:
                break
            first = min(self.open, key=self._rank)
            if len(first.modes) == len(self.problem.stages):
                self._visit(first)
                break
            if len(self.open) >= _MOST:
                return False
            self.open.remove(first)
            for mode in self.problem.modes_of(len(first.modes)):
                self.open += self._choice((*first.modes, mode), first.bound)
            self.incumbent.clock.count_ops(self.problem.op_count, checked=True)
        return bool(self.open)

    def _rank(self, choice: _Choice) -> tuple[int, int, int]:
        visits = 0 if self.steps % 2 else choice.visits
        return visits, choice.bound.value, -len(choice.modes)

    def _choice(self, modes: tuple[int, ...], known: Bound | None = None) -> Iterator[_Choice]:
        """Yield the choice, unless nothing fits with it."""
        problem = with_choices(self.problem, modes)
        try:
            preflight(problem)
        except Infeasible:
            return
        bounds = closed_form_bounds(problem, self.incumbent.objective)
        best = max(bounds if known is None else [*bounds, known], key=lambda bound: bound.value)
        yield _Choice(modes, problem, best)

    def _raise_bound(self) -> None:
        """The least bound of what is open, or the incumbent's value, bounds the problem."""
        least = min((one.bound for one in self.open), key=lambda one: one.value, default=None)
        if least is None and (value := self.incumbent.value) is not None:
            least = Bound(value, "none is better")
        if least is not None and least.value > self.incumbent.bound.value:
            self.incumbent.raise_bound(Bound(least.value, f"{SOURCE}: {least.source}"), PROOFS)

    def _visit(self, choice: _Choice) -> None:
        """Search the plain problem of a choice for a while."""
        whole = self.incumbent
        length = _SLICES[min(choice.visits, len(_SLICES) - 1)]
        if (own := choice.incumbent) is None:
            offer = partial(self._offer, choice.modes)
            own = choice.incumbent = whole.narrower(choice.problem, whole.clock, offer)
            own.raise_bound(choice.bound)
        choice.visits += 1
        self.visited += 1

        def over() -> bool:
            return whole.proven or (whole.value is not None and own.bound.value >= whole.value)

        own.clock = whole.clock.part(length, stop=over)
        starts = self._starts(choice, own)
        faults = len(own.faults)
        if own.schedule is not None and not own.proven:
            whole.faults += self.search(own, starts, self.seed + choice.visits)
        whole.faults += own.faults[faults:]
        if own.bound.value > choice.bound.value:
            choice.bound = own.bound

    def _starts(self, choice: _Choice, own: Incumbent) -> list[Schedule]:
        """Valid schedules to start from: hand-written ones at first, then the best so far."""
        if own.schedule is not None:
            return [own.schedule]
        sure = time_order(choice.problem, sure_order(choice.problem), own.objective, SOURCE)
        found = own.valid(chain([sure], self.starts_of(choice.problem)), own.clock)
        return sorted(found, key=lambda start: start.value(own.objective))

    def _offer(self, modes: tuple[int, ...], found: Schedule) -> None:
        """Try what was found for a choice on the problem itself, in the modes chosen."""
        order = in_modes_of_stages(self.problem, found.order, modes)
        self.incumbent.offer(order, f"{SOURCE}, {found.source}")
