"""Finite schedules from the steady state: the door to this package."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule
from pipesat.solver.model.times import rounded, unit_for
from pipesat.solver.packing.justify import justified
from pipesat.solver.steady.period import why_not
from pipesat.solver.steady.repetend import Repetend, unroll
from pipesat.solver.steady.search import Budget, shortened, shorter_and_shorter

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
    seconds: float,
    workers: int = 1,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
    deterministic: float | None = None,
    improve: Callable[[Schedule], Schedule] | None = None,
    last_passes: int | None = 500,
) -> Iterator[Schedule]:
    """Yield finite schedules, timed as early as possible, each of smaller makespan than all before.

    For one to four microbatches per period: find shorter and shorter repetends, unroll each
    over all microbatches, and shorten warm-up and cool-down by justification; last, justify the
    best schedule once more. Ends when that is done, when ``seconds`` are over (the time of the
    consumer included), or when ``stop`` says so.

    Parameters
    ----------
    deterministic
        Limit of every CP-SAT solve in its deterministic time.
    improve
        Applied to every schedule before it is yielded; must return a valid one, timed as early as
        possible.
    last_passes
        Passes of the last justification; ``None``: until the time is over.
    """
    coarse = _coarse(problem)
    if coarse is None:
        return
    whole = Budget(seconds, workers, seed, deterministic, stop)
    best: Schedule | None = None
    for schedule in _from_all_periods(problem, coarse, whole):
        if best is None or schedule.makespan < best.makespan:
            best = schedule if improve is None else improve(schedule)
            yield best
    if best is None or whole.spent:
        return
    for schedule in _justified(problem, best.order, whole, last_passes, best.source):
        if schedule.makespan < best.makespan:
            best = schedule if improve is None else improve(schedule)
            yield best


def _from_all_periods(problem: Problem, coarse: Problem, whole: Budget) -> Iterator[Schedule]:
    """For each number of microbatches: search, and complete the first and the last two repetends.

    The search is that of ``coarse``, whose times may be rounded. Completing takes as long as
    searching, at most.
    """
    for least, share in zip(_PERIODS, _SHARES, strict=True):
        if why_not(problem, least) or whole.spent:
            continue
        part = whole.part(share * whole.left)
        last: deque[Repetend] = deque(maxlen=2)
        for number, repetend in enumerate(repetends(coarse, least, part.part(part.left / 2))):
            if number:
                last.append(repetend)
            else:
                yield from completions(problem, coarse, repetend, whole.part(part.left / 4))
        while last:
            budget = whole.part(part.left / len(last))
            yield from completions(problem, coarse, last.pop(), budget)


def repetends(problem: Problem, least: int, budget: Budget) -> Iterator[Repetend]:
    """Yield repetends of shorter and shorter periods, then a short one of the last period."""
    last = None
    for repetend in shorter_and_shorter(problem, least, budget.part(_SEARCH * budget.left)):
        last = repetend
        yield last
    if last is not None:
        shorter = shortened(problem, last, budget)
        if shorter is not None:
            yield shorter


def completions(
    problem: Problem, coarse: Problem, repetend: Repetend, budget: Budget
) -> Iterator[Schedule]:
    """Yield the unrolled schedule and what justification makes of it, better and better.

    The repetend is one of ``coarse``; an order of it is one of the problem.
    """
    source = f"{SOURCE}, period of {'+'.join(map(str, repetend.microbatches))}"
    return _justified(problem, unroll(coarse, repetend), budget, _PASSES, source)


def _justified(
    problem: Problem, order: Order, budget: Budget, passes: int | None, source: str
) -> Iterator[Schedule]:
    return justified(
        problem,
        order,
        seed=budget.seed,
        give_up=lambda: budget.spent,
        passes=passes,
        source=source,
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
