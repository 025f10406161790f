"""The search of problems with memory modes: starts along guides, then windows in every lane."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from pipesat.core.errors import Deadlock
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import earliest_ends, linearize, time_order
from pipesat.solver.model.times import LARGEST, latest_end, unit_for
from pipesat.solver.modes.choices import Choices
from pipesat.solver.modes.starts import Start, orders_from, pack_by_turns
from pipesat.solver.modes.whole import Whole, whole_applies
from pipesat.solver.modes.window import ModeWindows
from pipesat.solver.neighbourhood.search import WindowSearch, windows_apply
from pipesat.solver.portfolio import SearchReport
from pipesat.solver.proof.search import ProofSearch, proofs_for
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import Lanes, Runner
from pipesat.solver.search_parts import SearchParts

_STARTS = 0.2  # of the time left, at most, goes into starts along guides
_PACKED, _PACKING = 12, 0.12  # starts that are packed, and the share of the time left for that
_LEAST_STEP = 0.01  # seconds that a step counts, at least
PACKED = "packed with modes"


@dataclass(frozen=True)
class _Proofs:
    """The proofs of what was asked for, by one lane."""

    proofs: ProofSearch
    runner: Runner

    @property
    def report(self) -> str:
        """What they did, in a few words."""
        return self.proofs.report

    def step(self) -> bool:
        """Ask one question; return whether there may be another."""
        self.proofs.step(self.runner)
        return not self.proofs.finished


_Search: TypeAlias = WindowSearch | ModeWindows | Choices | _Proofs | Whole


def search_with_modes(
    written_for: Callable[[Problem], Iterable[Schedule]],
    problem: Problem,
    incumbent: Incumbent,
    guides: Sequence[Schedule],
    *,
    threads: int,
    seed: int,
    parts: SearchParts,
) -> SearchReport:
    """Improve an incumbent until it is proven, or out of time or stopped; say what happened.

    ``guides`` are schedules without modes, valid or not; ``written_for`` makes some for problems in
    which every stage has its mode.
    """
    clock = incumbent.clock.part(incumbent.clock.left, stop=lambda: incumbent.proven)
    lanes = Lanes(clock)
    schedule = incumbent.schedule
    reliable = schedule is not None and schedule.makespan <= LARGEST  # CP-SAT on such times
    over_time = parts.windows and reliable and problem.overlap is None
    # by order, no time is rounded: modes' times never are
    latest = latest_end(problem, incumbent.objective, incumbent.value or 0)
    by_order = parts.windows and unit_for(latest) == 1 and windows_apply(problem, incumbent)
    use_windows = over_time or by_order
    searches: list[_Search] = []

    def lane(number: int) -> Callable[[], None]:
        own: list[_Search] = []
        runner = lanes.runner()
        if not number and problem.mode_choice == "stage" and problem.overlap is None:
            own.append(Choices(problem, incumbent, written_for, seed=seed, parts=parts))
        both = threads == 1 and not problem.has_copies
        if over_time and (both or problem.has_copies or not number % 2):
            own.append(ModeWindows(problem, incumbent, runner=runner, seed=seed + number))
        if by_order and (both or not over_time or (number % 2 and not problem.has_copies)):
            own.append(WindowSearch(problem, incumbent, runner=runner, seed=seed + number))
        if not number and use_windows and whole_applies(problem, latest):
            own.append(Whole(problem, incumbent, runner=runner, seed=seed))
        if number == min(1, threads - 1) and use_windows and reliable:
            own.append(_Proofs(proofs_for(incumbent, seed=seed, parts=parts), runner))
        searches.extend(own)
        chance = random.Random(seed + number)  # noqa: S311
        return partial(_run, problem, incumbent, () if number else guides, own, chance)

    failed = lanes.run([lane(number) for number in range(threads if use_windows else 1)])
    told = (x for x in searches if not (incumbent.wider and isinstance(x, _Proofs)))
    notes = [search.report for search in told]
    if parts.windows and not use_windows:
        notes.append("windows stepped aside: they cannot take such long times, or have no time")
    return SearchReport(notes, failed)


def _run(
    problem: Problem,
    incumbent: Incumbent,
    guides: Sequence[Schedule],
    searches: Sequence[_Search],
    rng: random.Random,
) -> None:
    """One lane: starts along guides and packing, if it has any, then searches by turns."""
    clock = incumbent.clock.part(_STARTS * incumbent.clock.left, stop=lambda: incumbent.proven)
    best: list[tuple[int, Order]] = []

    def worth(length: int) -> bool:
        value = incumbent.value
        return incumbent.objective == "span" or value is None or length < value

    for start in orders_from(problem, guides, worth):
        if clock.over:
            break
        length = _offer(problem, incumbent, start)
        clock.count_ops(problem.op_count)
        if length is not None and length not in [known for known, _ in best]:
            best = sorted([*best, (length, start.order)], key=lambda found: found[0])[:_PACKED]
    clock = incumbent.clock.part(_PACKING * incumbent.clock.left, stop=lambda: incumbent.proven)

    def offer(packed: Order) -> int | None:
        clock.count_ops(problem.op_count)
        return _offer(problem, incumbent, Start(packed, PACKED))

    pack_by_turns(problem, [order for _, order in best], rng, offer, lambda: clock.over)
    spent = [0.0 for _ in searches]
    going = list(range(len(searches)))
    while going and not (incumbent.clock.over or incumbent.proven):
        number = min(going, key=spent.__getitem__)  # each gets as much time
        before = incumbent.clock.elapsed
        if not searches[number].step():
            going.remove(number)
        spent[number] += max(_LEAST_STEP, incumbent.clock.elapsed - before)


def _offer(problem: Problem, incumbent: Incumbent, start: Start) -> int | None:
    """Offer an order; return its value if valid.

    One that is too long even without copies is not offered; returned is how long it is without.
    """
    try:
        if incumbent.objective == "makespan" and incumbent.value is not None:
            sequence = linearize(problem, start.order)
            least = max(earliest_ends(sequence, [0 for _ in problem.devices]), default=0)
            if least >= incumbent.value:
                return least
        timed = time_order(problem, start.order, incumbent.objective, start.source)
    except Deadlock:
        return None
    return incumbent.offer_timed(timed)
