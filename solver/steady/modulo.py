"""A first repetend without search: greedy modulo scheduling.

Ops are placed one after the other, each at the earliest time from its input's arrival on at which
its device is free in every period (B. R. Rau, "Iterative modulo scheduling", 1994, without its
backtracking). Memory is counted afterwards; where it does not fit, the period is made longer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipesat.core.event_engine import fits_in_order
from pipesat.core.ops import Event, Kind, Op
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, duration, memory_change
from pipesat.solver.steady.repetend import Repetend

_STEP = 1.02  # from one period tried to the next
_JITTER = 0.6  # of the distance between microbatches, by which they may start off even distances
_SKIPPING = (0.0, 0.0, 0.05, 0.15)


def greedy_repetend(
    problem: Problem,
    counts: tuple[int, ...],
    bound: int,
    give_up: Callable[[], bool] = lambda: False,
) -> Repetend | None:
    """Return a repetend of the first period from ``bound`` on that the greedy makes valid.

    ``None`` if told to give up, or if even a period so long that ops of different periods hardly
    meet does not fit (stages whose backward must be split, where it takes much memory).
    """
    work = sum(
        count * sum(s.F + s.B + s.W + s.BW for s in map(problem.stages.__getitem__, r.stages))
        for r, count in zip(problem.routes, counts, strict=True)
    )
    delays = sum(link.F + link.B for link in problem.links.values())
    longest = work + max(counts) * delays
    period = bound
    while True:
        repetend = _place(problem, counts, period, _even(counts, period))
        if repetend is not None and fits(problem, repetend):
            return repetend
        if period >= longest or give_up():
            return None
        period = min(longest, int(period * _STEP) + 1)


def random_repetend(
    problem: Problem, counts: tuple[int, ...], period: int, chance: random.Random
) -> Repetend | None:
    """One try with chance deciding order, starts and gaps; valid if not ``None``."""
    repetend = _place(problem, counts, period, _random(counts, period, chance))
    return repetend if repetend is not None and fits(problem, repetend) else None


def fits(problem: Problem, repetend: Repetend) -> bool:
    """Whether the infinite schedule keeps within every capacity, counted by order."""
    for device, row in zip(problem.devices, repetend.rows(problem), strict=True):
        # when a period begins, an op has run in all periods up to the one before, less its count
        held = -sum(count * memory_change(problem, op).net for _, count, op in row)
        if not fits_in_order(problem, (op for _, _, op in row), device.room, held):
            return False
    return True


@dataclass(frozen=True)
class _Whim:
    """What chance decides about one try."""

    begin: tuple[tuple[int, ...], ...]  # per route and microbatch, the time of its first F
    whole_microbatches: bool  # one after the other, or first the F's of all, then the backwards
    skipping: float  # probability that an op leaves the first gap to others
    chance: random.Random | None = None


def _even(counts: tuple[int, ...], period: int) -> _Whim:
    begin = tuple(tuple(j * period // count for j in range(count)) for count in counts)
    return _Whim(begin, whole_microbatches=True, skipping=0.0)


def _random(counts: tuple[int, ...], period: int, chance: random.Random) -> _Whim:
    begin: list[tuple[int, ...]] = []
    for count in counts:
        own = chance.random() if begin else 0.0  # where in the period the route begins
        shifts = [_JITTER * (chance.random() - 0.5) for _ in range(count)]
        begin.append(
            tuple(max(0, int(period * (own + (j + x) / count))) for j, x in enumerate(shifts))
        )
    return _Whim(tuple(begin), chance.random() < 0.5, chance.choice(_SKIPPING), chance)


def _place(problem: Problem, counts: tuple[int, ...], period: int, whim: _Whim) -> Repetend | None:
    """First fit of all ops; ``None`` if gaps are too small for one of them."""
    taken: list[list[tuple[int, int]]] = [[] for _ in problem.devices]
    times: dict[Op, int] = {}
    ends: dict[Event, int] = {}
    for op in _in_order_of_flow(problem, counts, whim):
        row = taken[problem.stages[op.stage].device]
        need = awaited(problem, op)
        if need is None:
            start = whim.begin[problem.route_of[op.stage]][op.microbatch]
        else:
            start = ends[need.event] + need.delay
        length = duration(problem, op)
        place = _first_gap(row, start, length, period)
        if place is None:
            return None
        if whim.chance is not None and whim.chance.random() < whim.skipping:
            later = _first_gap(row, place + length, length, period)
            place = place if later is None else later
        times[op] = place
        ends[op.event] = place + length
        row.append((place % period, length))
    return Repetend(period, counts, times)


def _in_order_of_flow(problem: Problem, counts: tuple[int, ...], whim: _Whim) -> Iterator[Op]:
    """F's and backwards first; W's go into what is left."""
    pipelines = [
        (route.stages, j)
        for route, count in zip(problem.routes, counts, strict=True)
        for j in range(count)
    ]
    if whim.whole_microbatches and whim.chance is not None:
        whim.chance.shuffle(pipelines)
    parts = [pipelines] if not whim.whole_microbatches else [[one] for one in pipelines]
    for part in parts:
        for stages, j in part:
            yield from (Op(s, "F", j) for s in stages)
        for stages, j in part:
            yield from (Op(s, _backward(problem, s), j) for s in reversed(stages))
    for stages, j in pipelines:
        yield from (Op(s, "W", j) for s in reversed(stages) if _backward(problem, s) == "B")


def _backward(problem: Problem, stage: int) -> Kind:
    data = problem.stages[stage]
    return "BW" if data.fusing_may_pay or not data.may_split else "B"


def _first_gap(taken: list[tuple[int, int]], earliest: int, length: int, period: int) -> int | None:
    """Earliest start from ``earliest`` on that is free in every period."""
    start = earliest
    while start < earliest + period:
        place = start % period
        for begin, other in taken:
            behind = (place - begin) % period
            if behind < other or (period - behind < length and period - behind < period):
                start += other - behind if behind < other else period - behind + other
                break
        else:
            return start if length <= period else None
    return None
