"""Ways to a schedule beside windows: packing, growth from few microbatches, the steady state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.solver.growth.search import SOURCE as GROWTH
from pipesat.solver.growth.search import grown_orders
from pipesat.solver.incumbent import Incumbent
from pipesat.solver.packing.justify import justified
from pipesat.solver.search_parts import Parts
from pipesat.solver.steady.schedules import steady_schedules

_STARTS = 3  # of different sources: chance and where one comes from decide where packing ends
_ROUNDS = 4  # of packing them, each with other chances
_FIRST_PACKING = 0.04, 2.5  # share of the time left; seconds at most
_PACKING = 0.1, 8.0
_FAR = 1000  # between the seeds of rounds: lanes' seeds lie in between
_GROWTH = 0.5, 30.0  # it ends early where it does not help
_STEADY = 0.15, 10.0
_PACKED_OPS, _FEWEST_PASSES = 200_000, 3  # ops of all passes together: some 6 s


def other_starts(
    incumbent: Incumbent,
    starts: Sequence[Schedule],
    seed: int,
    parts: Parts,
    over: Callable[[], bool],
) -> Iterator[Callable[[], None]]:
    """Yield what to try, one after the other, when windows do not help.

    The first of it, growth and packing, is worth trying before windows. ``starts`` are valid
    schedules of different sources, the best first.
    """
    yield partial(_take_first, incumbent, starts[:_STARTS], seed=seed, parts=parts, over=over)
    if parts.steady and not incumbent.clock.deterministic:
        yield partial(_take_steady, incumbent, seed=seed, over=over)
    if parts.packing:
        yield partial(_take_packed, incumbent, None, seed=seed + 1, limit=_PACKING, over=over)
        for turn in range(1, _ROUNDS):
            chances = seed + turn * _FAR
            yield partial(_take_packed_starts, incumbent, starts[:_STARTS], seed=chances, over=over)


def _take_first(
    incumbent: Incumbent,
    starts: Sequence[Schedule],
    *,
    seed: int,
    parts: Parts,
    over: Callable[[], bool],
) -> None:
    if parts.growth and not incumbent.clock.deterministic:
        _take_grown(incumbent, starts, seed=seed, over=over)
    if parts.packing:
        _take_packed_starts(incumbent, starts, seed=seed, over=over)


def _take_packed_starts(
    incumbent: Incumbent, starts: Sequence[Schedule], *, seed: int, over: Callable[[], bool]
) -> None:
    for start in starts:
        if not over():
            _take_packed(incumbent, start, seed=seed, limit=_FIRST_PACKING, over=over)


def _take_packed(
    incumbent: Incumbent,
    start: Schedule | None,
    *,
    seed: int,
    limit: tuple[float, float],
    over: Callable[[], bool],
) -> None:
    """Pack a schedule, by default the incumbent, forward and backward by turns."""
    clock, problem = incumbent.clock, incumbent.problem
    expires = clock.elapsed + _seconds(incumbent, limit)
    schedule = start or incumbent.schedule
    if schedule is None:
        return
    for packed in justified(
        problem,
        schedule.order,
        seed=seed,
        give_up=lambda: over() or clock.elapsed > expires,
        passes=max(_FEWEST_PASSES, _PACKED_OPS // problem.op_count),
        source=f"{schedule.source}, justified",
    ):
        incumbent.offer_earliest(packed)


def _take_grown(
    incumbent: Incumbent, starts: Sequence[Schedule], *, seed: int, over: Callable[[], bool]
) -> None:
    """Offer what grows from schedules of few microbatches, and pack the best of it."""
    problem, objective = incumbent.problem, incumbent.objective
    best: Schedule | None = None
    for order in grown_orders(
        problem, starts, objective, seconds=_seconds(incumbent, _GROWTH), seed=seed, stop=over
    ):
        timed = time_order(problem, order, objective, GROWTH)
        value = incumbent.offer_timed(timed)
        if value is not None and (best is None or value < best.value(objective)):
            best = timed
    if best is not None and not over():
        _take_packed(incumbent, best, seed=seed, limit=_FIRST_PACKING, over=over)


def _take_steady(incumbent: Incumbent, *, seed: int, over: Callable[[], bool]) -> None:
    """Offer what the steady state gives."""
    seconds = _seconds(incumbent, _STEADY)
    for found in steady_schedules(incumbent.problem, seconds=seconds, seed=seed, stop=over):
        incumbent.offer_earliest(found)


def _seconds(incumbent: Incumbent, limit: tuple[float, float]) -> float:
    share, most = limit
    return min(share * incumbent.clock.left, most)
