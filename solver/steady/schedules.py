"""Finite schedules from the steady state: the door to this package."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.solver.model.times import rounded, unit_for
from pipesat.solver.packing import justified
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.runner import Runner
from pipesat.solver.steady.period import why_not
from pipesat.solver.steady.repetend import Repetend, unroll
from pipesat.solver.steady.search import shortened, shorter_and_shorter

SOURCE = "steady state"
LARGEST = 1 << 60  # of time x memory, summed up: CP-SAT's limit is 2^63
_FINEST = 10_000  # units of a microbatch's way; with fewer, nothing is worth searching
_PERIODS = (1, 2, 3, 4)  # microbatches (or shares of all routes) per period, in this order
_SHARES = (0.2, 0.25, 0.25, 0.3)  # of the time left, per entry of _PERIODS
_PASSES = 20  # of justification per repetend, while the search goes on
_SEARCH = 0.8  # of the search's time; the rest looks for a shorter repetend of the same period


def steady_schedules(
    problem: Problem,
    *,
    runner: Runner,
    clock: Clock,
    seed: int = 0,
    last_passes: int | None = 500,
) -> Iterator[Schedule]:
    """Yield finite schedules, timed as early as possible, each of smaller makespan than all before.

    For one to four microbatches per period: find shorter and shorter repetends, unroll each
    over all microbatches, and shorten warm-up and cool-down by justification; last, justify the
    best schedule once more. Ends when that is done, or when ``clock`` is over, a part of the
    runner's (the time of the consumer included).

    Parameters
    ----------
    last_passes
        Passes of the last justification; ``None``: until the time is over.
    """
    coarse = _coarse(problem)
    if coarse is None:
        return
    best: Schedule | None = None
    for schedule in _Steady(problem, coarse, runner, seed).from_all_periods(clock):
        if best is None or schedule.makespan < best.makespan:
            best = schedule
            yield best
    if best is None or clock.over:
        return
    for schedule in justified(
        problem, best.order, seed=seed, clock=clock, passes=last_passes, source=best.source
    ):
        if schedule.makespan < best.makespan:
            best = schedule
            yield best


@dataclass(frozen=True)
class _Steady:
    """The search of ``coarse``, whose times may be rounded, for schedules of the problem."""

    problem: Problem
    coarse: Problem
    runner: Runner
    seed: int

    def from_all_periods(self, clock: Clock) -> Iterator[Schedule]:
        """Search each number of microbatches; complete the first and the last two repetends.

        Completing takes as long as searching, at most.
        """
        for least, share in zip(_PERIODS, _SHARES, strict=True):
            if why_not(self.problem, least) or clock.over:
                continue
            part = clock.part(share * clock.left)
            last: deque[Repetend] = deque(maxlen=2)
            for number, repetend in enumerate(self.repetends(least, part.part(part.left / 2))):
                if number:
                    last.append(repetend)
                else:
                    yield from self.completions(repetend, clock.part(part.left / 4))
            while last:
                yield from self.completions(last.pop(), clock.part(part.left / (len(last) + 1)))

    def repetends(self, least: int, clock: Clock) -> Iterator[Repetend]:
        """Yield repetends of shorter and shorter periods, then a short one of the last period."""
        last, runner, seed = None, self.runner, self.seed
        for repetend in shorter_and_shorter(
            self.coarse, least, runner=runner, clock=clock.part(_SEARCH * clock.left), seed=seed
        ):
            last = repetend
            yield last
        if last is not None:
            shorter = shortened(self.coarse, last, runner=runner, clock=clock, seed=seed)
            if shorter is not None:
                yield shorter

    def completions(self, repetend: Repetend, clock: Clock) -> Iterator[Schedule]:
        """Yield the unrolled schedule and what justification makes of it, better and better.

        The repetend is one of ``coarse``; an order of it is one of the problem.
        """
        return justified(
            self.problem,
            unroll(self.coarse, repetend),
            seed=self.seed,
            clock=clock,
            passes=_PASSES,
            source=f"{SOURCE}, period of {'+'.join(map(str, repetend.microbatches))}",
        )


def _coarse(problem: Problem) -> Problem | None:
    """Round times so that the cyclic model's numbers stay small; ``None`` if little would be left.

    A model's horizon is a few times as many periods as a route has stages, and each of them at most
    as long as all microbatches of a period one after the other. Its sums are of time x memory.
    """
    way = sum(s.F + s.B + s.W + s.BW for s in problem.stages)
    way += sum(link.F + link.B for link in problem.links.values())
    largest = max((d.room or 0 for d in problem.devices), default=0)
    held = sum(s.held_after_F + s.held_after_B for s in problem.stages)
    stages = len(problem.stages) + 1
    unit = max(
        unit_for(_PERIODS[-1] * stages * (way + 1)),
        -(-(way + 1) * (largest + held + 1) * stages // LARGEST),
    )
    return rounded(problem, unit) if unit == 1 or way // unit >= _FINEST else None
