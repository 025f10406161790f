"""A repetend: the ops of one period with their times, to be repeated for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipesat.core.ops import PHASE_OF, Op
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, duration
from pipesat.core.schedule import Order


@dataclass(frozen=True)
class Repetend:
    """A schedule that repeats itself every ``period`` time units.

    A period serves ``microbatches[r]`` microbatches of route r. ``times`` has the start of every op
    of the first of these: microbatch ``n * microbatches[r] + j`` runs as ``j`` does,
    ``n * period`` later. Nothing is left out: of two ops that are far apart in time, the later one
    just meets, on its device, ops of microbatches that started long after its own.
    """

    period: int
    microbatches: tuple[int, ...]
    times: Mapping[Op, int]

    def length(self, problem: Problem) -> int:
        """Time from the first start to the last end of one period's microbatches.

        ``makespan(m) <= (ceil(m / k) - 1) * period + length`` for k microbatches per period.
        """
        ends = (t + duration(problem, op) for op, t in self.times.items())
        return max(ends) - min(self.times.values())

    def rows(self, problem: Problem) -> list[list[tuple[int, int, Op]]]:
        """Per device, ``(start within the period, periods since the origin, op)``, in order.

        The origin is the device's earliest op; no op lies across a period's end, because the
        origin's op stands there.
        """
        ops: list[list[tuple[int, Op]]] = [[] for _ in problem.devices]
        for op, time in self.times.items():
            ops[problem.stages[op.stage].device].append((time, op))
        rows = []
        for row in ops:
            origin = min(time for time, _ in row) if row else 0
            placed = []
            for time, op in row:
                count, offset = divmod(time - origin, self.period)
                older_first = (-count, *_flow(problem, op))
                length = duration(problem, op)
                placed.append(((offset, length, older_first), (offset, count, op)))
            rows.append([entry for _, entry in sorted(placed)])
        return rows


def _flow(problem: Problem, op: Op) -> tuple[int, int, int]:
    """Sort key for ops that share an instant, which takes ops of length zero.

    Earlier microbatches first, so that what they free is free; each in the order of its data flow.
    """
    place = problem.routes[problem.route_of[op.stage]].stages.index(op.stage)
    return op.microbatch, "FBW".index(PHASE_OF[op.kind]), place if op.kind == "F" else -place


def unroll(problem: Problem, repetend: Repetend) -> Order:
    """Repeat a repetend for as many microbatches as the problem has, as an order.

    *Every rule is kept.* Times of the repetend keep data flow and never overlap, for any set of
    microbatches. Memory: at any time the infinite schedule holds a sum over all microbatches, past
    and future, of amounts that are not negative; the finite one holds the part of that sum that
    belongs to microbatches 0 to m - 1, which is no more. So warm-up and cool-down need no care, m
    need not be a multiple of the period's microbatches, and routes may differ in m. Memory depends
    on the order alone, so timing the order as early as possible keeps it.
    """
    rows: list[list[tuple[tuple[int, ...], Op]]] = [[] for _ in problem.devices]
    for op, time in repetend.times.items():
        length = duration(problem, op)
        k = repetend.microbatches[problem.route_of[op.stage]]
        _, phase, place = _flow(problem, op)
        for periods, microbatch in enumerate(
            range(op.microbatch, problem.microbatches[op.stage], k)
        ):
            key = (time + periods * repetend.period, length, microbatch, phase, place, op.stage)
            rows[problem.stages[op.stage].device].append((key, Op(op.stage, op.kind, microbatch)))
    return tuple(tuple(op for _, op in sorted(row)) for row in rows)


def tightened(problem: Problem, repetend: Repetend, least: int = 1) -> Repetend:
    """Shorten the period of a repetend as far as its order allows, and time it early.

    Order means: the cyclic order of each device, and how many periods lie between two ops. Memory
    depends on these alone. With h the periods between x and y, a period T is possible if and only
    if the differences ``y >= x + length(x) + delay - T h`` have a solution, that is, no cycle of
    them has a positive sum; this holds for all T from some least one on, found by bisection between
    ``least`` (at least 1) and the period that is known to work.
    """
    edges = _edges(problem, repetend)
    ops = list(repetend.times)
    low, high = max(1, min(least, repetend.period)), repetend.period
    times = earliest(len(ops), edges, high)
    if times is None:  # zero-length ops that share an instant may be sorted against their flow
        return repetend
    while low < high:
        middle = (low + high) // 2
        found = earliest(len(ops), edges, middle)
        if found is None:
            low = middle + 1
        else:
            high, times = middle, found
    return Repetend(high, repetend.microbatches, dict(zip(ops, times, strict=True)))


Edge = tuple[int, int, int, int]
"""``(x, y, length, h)``: y starts at least ``length - T h`` after x."""


def _edges(problem: Problem, repetend: Repetend) -> list[Edge]:
    number = {op: i for i, op in enumerate(repetend.times)}
    by_event = {op.event: op for op in number}
    edges = []
    for op, i in number.items():
        if (need := awaited(problem, op)) is not None:
            source = by_event[need.event]
            length = duration(problem, source)
            edges.append((number[source], i, length + need.delay, 0))
    for row in repetend.rows(problem):
        for place, (_, count, op) in enumerate(row):
            _, next_count, after = row[(place + 1) % len(row)]
            periods = count - next_count + (place + 1 == len(row))
            length = duration(problem, op)
            edges.append((number[op], number[after], length, periods))
    return edges


def earliest(count: int, edges: list[Edge], period: int) -> list[int] | None:
    """Least times >= 0 that keep all differences, or ``None`` if there are none (Bellman-Ford)."""
    times = [0] * count
    lags = [(x, y, length - period * h) for x, y, length, h in edges]
    for _ in range(count + 1):
        changed = False
        for x, y, lag in lags:
            if times[x] + lag > times[y]:
                times[y] = times[x] + lag
                changed = True
        if not changed:
            return times
    return None
