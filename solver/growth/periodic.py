"""Periodic orders: a few microbatches that come again every so often, by a small cyclic model.

The model sees times in units so large that a period has about a dozen of them. A device's ops lie
on a circle that begins with an F, each with a count of turns; what is held when an op takes memory
follows from these counts and from the order on the circle. The order is all that is taken: timed
exactly it keeps to memory, and has about the rate that it has in large units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, combinations, pairwise, product
from operator import attrgetter, sub
from typing import Any, NamedTuple, TypeAlias

from ortools.sat.python import cp_model

from pipesat.bounds.period import has_period
from pipesat.check.checker import check
from pipesat.problem.ops import Copy, Kind, Op, Unreadable, members, with_ops
from pipesat.problem.problem import Problem
from pipesat.problem.rules import link_delay
from pipesat.problem.variants import Variant, variants
from pipesat.schedule.schedule import Order, Schedule, Timed, TimedCopy
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.runner import FOUND, Runner
from pipesat.solver.model.left_out import with_microbatches

SOURCE = "a periodic order"
_UNITS = range(6, 25)  # of a period of no idling
_FINER = 40  # units more that are worth as much as an error twice as large
_MOST = 8  # microbatches of a period that the model has
_MOST_READ = 32  # of one that a schedule may have
_OPS = 200  # of a period's model
_LONGEST = 6  # times the load: a longer period is not looked for
_EACH = 3.0  # seconds of one model


_Before: TypeAlias = dict[tuple[Op, Op], cp_model.LinearExprT]


class _LargeTimes(NamedTuple):
    """Times in large units: of F, B (or BW) and W by stage, and of delays forth and back."""

    F: list[int]
    B: list[int]
    W: list[int]
    forth: list[int]
    home: list[int]


def periodic_applies(problem: Problem) -> bool:
    """Whether it is a long run without pairs or modes, in which every op takes time."""
    return (
        has_period(problem)
        and problem.plain
        and problem.overlap is None
        and all(v.forward and v.backward and (v.weight or not v.split) for v in _variants(problem))
    )


def _variants(problem: Problem) -> list[Variant]:
    return [variants(problem, stage)[0] for stage in range(len(problem.stages))]


def periodic_orders(problem: Problem, runner: Runner, clock: Clock, seed: int) -> Iterator[Order]:
    """Yield orders of better and better periods, of one microbatch and then of more."""
    times = large_units(problem)
    load = max(
        sum(times.F[s] + times.B[s] + times.W[s] for s in stages) for stages in problem.stages_on
    )
    best = float(_LONGEST * load)
    most = min(_MOST, _OPS // (3 * len(problem.stages)) or 1)
    for together in range(1, most + 1):
        low, high = load * together, int(best * together - 1e-9)
        while low <= high and not clock.over and best > load:
            period = (low + high) // 2 if low > load * together else low
            order = periodic_order(problem, times, together, period, runner, clock, seed)
            if order is None:
                low = period + 1
            else:
                best, high = period / together, period - 1
                yield order


def periodic_order(
    problem: Problem,
    times: _LargeTimes,
    together: int,
    period: int,
    runner: Runner,
    clock: Clock,
    seed: int,
) -> Order | None:
    """Return an order in which so many microbatches come again every period; ``None``: none found.

    Microbatches beyond those that there are are left out.
    """
    model = _Cycle(problem, times, together, period)
    solver, status = runner.solve(model.cp, limit=min(_EACH, clock.left), seed=seed)
    if status not in FOUND:
        return None
    rows: list[list[tuple[int, Op]]] = [[] for _ in problem.devices]
    for op, at in model.start.items():
        row, start = rows[problem.stages[op.stage].device], solver.value(at)
        for number in range(op.microbatch, problem.routes[0].microbatches, together):
            later = number // together * period
            row.append((start + later, op._replace(microbatch=number)))
    return tuple(tuple(op for _, op in sorted(row)) for row in rows)


def large_units(problem: Problem) -> _LargeTimes:
    """Return times in the unit in which they are rounded least, for how few make a period."""
    of, stages = _variants(problem), range(len(problem.stages))
    loads = [sum(of[s].work for s in own) for own in problem.stages_on]
    exact = [[v.forward for v in of], [v.backward for v in of], [v.weight for v in of]]
    exact += [[link_delay(problem, s, phase) for s in stages] for phase in ("F", "B")]

    def rounded(unit: float) -> _LargeTimes:
        ops = ([max(min(1, x), round(x / unit)) for x in row] for row in exact[:3])
        return _LargeTimes(*ops, *([round(x / unit) for x in row] for row in exact[3:]))

    def error(units: int) -> float:
        unit = max(loads) / units
        both = zip(exact[:3], rounded(unit)[:3], strict=True)
        off = sum(abs(x - unit * n) for a, b in both for x, n in zip(a, b, strict=True))
        return (off + max(loads) / _FINER) * (1 + units / _FINER)

    return rounded(max(loads) / min(_UNITS, key=error))


class _Cycle:
    """The model of some microbatches, ``together``, that come again every ``period``."""

    def __init__(self, problem: Problem, times: _LargeTimes, together: int, period: int) -> None:
        self.problem, self.times = problem, times
        self.together, self.period = together, period
        self.cp, self.of = cp_model.CpModel(), _variants(problem)
        self.turn: dict[Op, cp_model.IntVar] = {}
        self.start: dict[Op, cp_model.LinearExpr] = {}
        for device, own in enumerate(problem.stages_on):
            ops = [op for s in own for j in range(together) for op in self._ops(s, j)]
            before = self._on_a_circle(ops)
            if (slack := problem.devices[device].slack) is not None:
                for op in ops:
                    self._hold(op, own, before, slack)
                self._make_fit(own, slack)
        route = problem.routes[0].stages
        self.cp.add(self.start[Op(route[0], "F", 0)] == 0)  # else any time is as good
        for stage, after in zip(route, (*route[1:], None), strict=True):
            for j in range(together):
                self._wait(stage, after, j)

    def _ops(self, stage: int, j: int) -> list[Op]:
        kinds: tuple[Kind, ...] = ("F", "B", "W") if self.of[stage].split else ("F", "BW")
        return [Op(stage, kind, j) for kind in kinds]

    def _length(self, op: Op) -> int:
        return (self.times.F, self.times.B, self.times.W)["FBW".index(op.kind[0])][op.stage]

    def _on_a_circle(self, ops: Sequence[Op]) -> _Before:
        """Place a device's ops on a circle that begins with the first; say what is before what."""
        cp, period = self.cp, self.period
        begin, place = cp.new_int_var(0, period - 1, ""), dict[Op, cp_model.IntVar]()
        for op in ops:
            most = period - self._length(op) if op is not ops[0] else 0
            place[op] = cp.new_int_var(0, max(0, most), "")
            self.turn[op] = cp.new_int_var(0, 2 * len(self.of) + self.together, "")
            self.start[op] = begin + place[op] + period * self.turn[op]
        before: _Before = {(op, op): 0 for op in ops}
        for one, other in combinations(ops, 2):
            literal = cp.new_bool_var("")
            before[one, other], before[other, one] = literal, 1 - literal
            after = place[one] + self._length(one) <= place[other]
            cp.add(after).only_enforce_if(literal)
            cp.add(place[other] + self._length(other) <= place[one]).only_enforce_if(~literal)
        return before

    def _hold(self, op: Op, own: Sequence[int], before: _Before, slack: int) -> None:
        """Let an op that takes memory find memory for it."""
        mine = self.of[op.stage]
        takes = mine.held if op.kind == "F" else mine.most - mine.held
        if takes <= 0 or op.kind == "W":
            return
        held: list[cp_model.LinearExprT] = [takes]
        for stage, j in product(own, range(self.together)):
            amounts = (self.of[stage].held, self.of[stage].after)
            ops = self._ops(stage, j)
            ran = [cp_model.LinearExpr.sum([before[x, op], -self.turn[x]]) for x in ops]
            held += [a * (x - y) for a, (x, y) in zip(amounts, pairwise(ran), strict=False)]
        self.cp.add(sum(held) <= slack)

    def _make_fit(self, own: Sequence[int], slack: int) -> None:
        """Say at once what follows: no more than fit are between an F and its backward's end."""
        for stage, held in zip(own, accumulate(self.of[s].held for s in own), strict=True):
            for j in range(self.together if held else 0):
                forward, backward, *_ = self._ops(stage, j)
                turns, number = divmod(j + slack // held, self.together)
                begun = self.start[forward._replace(microbatch=number)] + self.period * turns
                self.cp.add(self.start[backward] + self._length(backward) <= begun)

    def _wait(self, stage: int, after: int | None, j: int) -> None:
        """Let a microbatch's ops on a stage wait for its others, or for those before it."""
        forward, backward, *weight = self._ops(stage, j)
        waits = [(backward, forward, 0)] + [(op, backward, 0) for op in weight]
        if after is not None:
            there, home, *_ = self._ops(after, j)
            waits[0] = (backward, home, self.times.home[stage])
            waits.append((there, forward, self.times.forth[stage]))
        for op, source, delay in waits:
            self.cp.add(self.start[op] >= self.start[source] + self._length(source) + delay)
        for op in weight:  # turns that it comes later than that serve nothing
            after_all = self.start[backward] + self._length(backward) + self.period
            self.cp.add(self.start[op] < after_all)
        for op in (forward, backward, *weight):
            later = op._replace(microbatch=(j + 1) % self.together)
            turn = self.period * (j + 1 == self.together)
            self.cp.add(self.start[later] + turn >= self.start[op] + self._length(op))


def steady_rate(problem: Problem, schedule: Schedule) -> Fraction:
    """Return the time per microbatch at which a schedule of one route can go on, in time units.

    Microbatches right before its middle are repeated, all behind them come later. That is really
    done, as often as nothing at one end can still meet the other, and checked. Where none can be
    repeated so, the whole schedule can, without overlap.
    """
    m = problem.routes[0].microbatches
    parts = [*_parts(schedule)]
    begin, end = [schedule.makespan] * m, [0] * m
    work = [[0] * m for _ in problem.devices]
    for lead, device, timed in parts:
        begin[lead], end[lead] = min(begin[lead], timed.start), max(end[lead], timed.end)
        if isinstance(timed, Timed):
            work[device][lead] += timed.end - timed.start
    longest, middle = max(map(sub, end, begin)), m // 2
    for together in range(1, min(_MOST_READ, middle) + 1):
        period = begin[middle] - begin[middle - together]
        ahead = zip(begin[middle - together : middle], begin[middle:], strict=False)
        load = max(sum(row[middle - together : middle]) for row in work)
        if period < max(1, load) or any(later - earlier != period for earlier, later in ahead):
            continue  # a device cannot do more than it has time for
        step = _Step(middle - together, middle, period, 2 * (longest // period) + 3)
        if not check(
            with_microbatches(problem, [m + step.times * together]),
            step.repeated(parts, len(problem.devices)),
        ):
            return Fraction(period, together)
    return Fraction(schedule.makespan, m)


_Part: TypeAlias = tuple[int, int, Timed | TimedCopy]


def _parts(schedule: Schedule) -> Iterator[_Part]:
    """Items and copies: the first microbatch that each is of, its device, and its times."""
    for device, row in enumerate(schedule.devices):
        for timed in row:
            if not isinstance(timed.item, Unreadable):
                yield min(op.microbatch for op in members(timed.item)), device, timed
        for copied in schedule.copies_of(device):
            if not isinstance(copied.copy, Unreadable):
                yield copied.copy.microbatch, device, copied


class _Step(NamedTuple):
    """Microbatches from ``first`` to before ``last`` come ``times`` more, every ``period``."""

    first: int
    last: int
    period: int
    times: int

    def repeated(self, parts: Iterable[_Part], devices: int) -> Schedule:
        """Return the schedule with these repetitions."""
        rows: list[list[Any]] = [[] for _ in range(devices)]
        copies: list[list[Any]] = [[] for _ in range(devices)]
        for lead, device, timed in parts:
            often = range(self.times + 1) if lead >= self.first else range(1)
            for turn in often if lead < self.last else [self.times]:
                later = self._later(timed, turn)
                (copies if isinstance(later, TimedCopy) else rows)[device].append(later)
        in_time = attrgetter("start", "end")
        return Schedule(
            tuple(tuple(sorted(row, key=in_time)) for row in rows),
            copies=tuple(tuple(sorted(row, key=in_time)) for row in copies),
        )

    def _later(self, timed: Timed | TimedCopy, turn: int) -> Timed | TimedCopy:
        more, time = turn * (self.last - self.first), turn * self.period

        def op_of(op: Any) -> Any:
            return op._replace(microbatch=op.microbatch + more)

        what: Any = timed[0]
        moved: Any = op_of(what) if isinstance(what, Copy) else with_ops(what, op_of)
        return type(timed)(moved, timed.start + time, timed.end + time)
