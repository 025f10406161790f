"""Periodic orders: a few microbatches that come again every so often, by annealing.

An order of a device's ops comes again every period, each op of microbatches by a number of turns
later. What is held when an op takes memory follows from the order and the turns, whatever the
times are, and the least period is the time over the turns of the slowest circle of ops that wait
for each other (:mod:`pipesat.kernels.cycles`). Two kinds of start: one microbatch after the other,
and waves.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain, count, pairwise
from operator import attrgetter, sub
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pipesat.bounds.feasibility import sure_order
from pipesat.bounds.period import has_period
from pipesat.check.checker import check
from pipesat.core.arrays import Ints, ints
from pipesat.kernels.arrays import NONE
from pipesat.kernels.cycles import Cycle, anneal, fits, period_of
from pipesat.problem.ops import Copy, Op, Unreadable, members, with_ops
from pipesat.problem.problem import Problem
from pipesat.problem.variants import Variant, variants
from pipesat.schedule.schedule import Order, Schedule, Timed, TimedCopy
from pipesat.solver.growth.packing import jobs_of
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.model.left_out import with_microbatches

SOURCE = "a periodic order"
_MOST, _OPS = 12, 1200  # microbatches of a period, and ops
_LARGE = 20_000  # ops of a schedule
_MOST_READ = 32  # microbatches of one that a schedule may have
_STEPS = 5_000, 20_000, 60_000, 180_000  # from a start, by round: then other chances serve more
_LEAST = 6  # numbers of microbatches in a round
_AT_ONCE = 20_000  # of a chunk, divided by its ops
_SECONDS = 2.5e-8  # of a step and op, as processor time on one core of 2026
_SECONDS_OF_WAVES = 1.2e-5  # of a wave and op
_MANY, _DRAWN = 12, 16  # stages from which waves are drawn, and how many
_HEAT = 1.0  # of the period over its ops: taken with a chance of 1/e at the beginning
_EXACT = 1e-9


def periodic_applies(problem: Problem) -> bool:
    """Whether it is a long run without pairs or modes, in which every op takes time."""
    return (
        has_period(problem)
        and problem.plain
        and problem.overlap is None
        and all(v.forward and v.backward and (v.weight or not v.split) for v in _variants(problem))
    )


def _variants(problem: Problem) -> list[Variant]:
    return [variants(problem, stage, 0)[0] for stage in range(len(problem.stages))]


def periodic_orders(
    problem: Problem, clock: Clock, seed: int
) -> Iterator[tuple[int, Callable[[Problem], Order]]]:
    """Yield orders of better and better periods, and of how many microbatches these are.

    An order is a function of a problem with as many microbatches as there are to be. Rounds begin
    with one. Each next one takes more steps, for the better half of their numbers. To see what a
    large schedule is worth takes its time: then the best of a round is yielded.
    """
    of = _variants(problem)
    load = max(sum(of[s].work for s in own) for own in problem.stages_on)
    rates = dict.fromkeys(range(1, max(1, min(_MOST, _OPS // (3 * len(of)))) + 1), math.inf)
    below, large = math.inf, problem.op_count > _LARGE
    best: _Annealing | None = None
    for turn in count():
        for together in [*rates]:
            found = _Annealing(problem, of, together, seed + turn)
            found.search(_STEPS[min(turn, len(_STEPS) - 1)], clock)
            rates[together] = min(found.rate, rates[together])
            if found.rate < below * (1 - _EXACT):
                below, best = found.rate, found
            ended = clock.over or min(rates.values()) <= load * (1 + _EXACT)
            if best is not None and (ended or together == max(rates) or not large):
                yield best.together, best.order
                best = None
            if ended:
                return
        half = sorted(rates, key=rates.__getitem__)[: max(_LEAST, len(rates) // 2)]
        rates = {together: rates[together] for together in half}


class _Annealing:
    """The search for an order of ``together`` microbatches that come again every period."""

    def __init__(self, problem: Problem, of: list[Variant], together: int, seed: int) -> None:
        self.problem, self.of, self.together = problem, of, together
        self.many = len(of) >= _MANY
        few = with_microbatches(problem, [together])
        rows = [tuple(chain.from_iterable(map(self._split, row))) for row in sure_order(few)]
        self.ops = [*chain.from_iterable(rows)]
        jobs, _ = jobs_of(few, tuple(rows))
        stage, kind = np.divmod(jobs.chain, 3)
        source, delay = np.full((2, len(stage)), NONE)
        waiting = np.repeat(np.arange(len(stage)), np.diff(jobs.inputs.begin))
        other = stage[jobs.inputs.item] != stage[waiting]
        source[waiting[other]] = jobs.inputs.item[other]
        delay[waiting[other]] = (jobs.duration[jobs.inputs.item] + jobs.inputs.delay)[other]
        number = ints(op.microbatch for op in self.ops)
        self.numbers = {one: at for at, one in enumerate(zip(stage, kind, number, strict=True))}
        where, amounts = (jobs.device, stage, kind, number), (jobs.taken, jobs.net)
        self.cycle = Cycle(jobs.begin, jobs.slack, *where, jobs.duration, source, delay, *amounts)
        self.known, self.best = np.full(2, math.inf), np.zeros((2, len(stage)), np.int64)
        self.random = random.Random(seed)  # noqa: S311
        self.draws = ints([self.random.randrange(1, 1 << 62)])

    def _split(self, op: Any) -> list[Op]:
        split = op.kind == "BW" and self.of[op.stage].split
        return [op._replace(kind="B"), op._replace(kind="W")] if split else [op]

    @property
    def rate(self) -> float:
        """The best period over its microbatches."""
        return float(self.known[1]) / self.together

    def order(self, problem: Problem) -> Order:
        """Return the best order for a problem that differs in its number of microbatches only."""
        most, rows = problem.routes[0].microbatches, []
        for begin, end in pairwise(self.cycle.begin):
            own = [(self.ops[at], int(self.best[1, at])) for at in self.best[0, begin:end]]
            late = [later for _, later in own] or [0]
            numbered = (
                op._replace(microbatch=(turn - later) * self.together + op.microbatch)
                for turn in range(min(late), most // self.together + max(late) + 1)
                for op, later in own
            )
            rows.append(tuple(op for op in numbered if 0 <= op.microbatch < most))
        return tuple(rows)

    def search(self, steps: int, clock: Clock) -> None:
        """Take so many steps from every start, as long as there is time."""
        some = max(1, _AT_ONCE // len(self.ops))
        for row, turn in self._starts(clock):
            if not self._fits(row, turn):
                continue
            for done in range(0, steps, some):
                if clock.over:
                    return
                heat = _HEAT / len(self.ops) * (1 - done / steps)
                anneal(self.cycle, row, turn, self.best, self.known, self.draws, some, heat)
                clock.count(_SECONDS * some * len(self.ops))

    def _fits(self, row: Ints, turn: Ints) -> bool:
        return all(fits(self.cycle, row, turn, d) for d in range(len(self.cycle.slack)))

    def _starts(self, clock: Clock) -> Iterator[tuple[Ints, Ints]]:
        """Yield one microbatch after the other; on a chain the best wave, or it alone."""
        cycle, stages = self.cycle, len(self.of)
        alone = np.arange(len(self.ops)), np.zeros(len(self.ops), np.int64)
        chain = all(len(own) == 1 for own in self.problem.stages_on)
        if not (chain and self.many):
            yield alone
        if not chain:
            return
        held = [self.of[own].held for (own,) in self.problem.stages_on]
        most = min(slack / max(1, a) for slack, a in zip(cycle.slack, held, strict=True))
        least = math.ceil(self.together * max(1.0, stages / max(1.0, most)))
        (waits, circle), value = np.zeros((2, len(self.ops) + 1), np.int64), np.zeros(len(self.ops))
        best, found = self.known[1], None
        for slots, enters, late in self._patterns(least):
            clock.count(_SECONDS_OF_WAVES * len(self.ops))
            wave = self._wave(enters, slots, late)
            if clock.over:
                return
            if wave is not None and self._fits(*wave):
                period = period_of(cycle, *wave, waits, value, circle, best)
                if period < best:
                    best, found = period, wave
        if found is not None:
            yield found
        elif self.many:
            yield alone

    def _patterns(self, least: int) -> Iterator[tuple[int, list[int], int]]:
        """Yield numbers of slots, in which of them microbatches enter, and where a period begins.

        Evenly spread ones come first. Others have no such rhythm that F's and backwards miss each
        other in the same way on every device, where there are many.
        """
        together = range(self.together)
        for slots in (least, least + 1):
            for late in range(1 if self.many else slots):
                yield slots, [j * slots // self.together for j in together], late
        for n in range(least, least + (_DRAWN if self.many else 0)):
            slots = least + n % 2
            yield slots, sorted(self.random.sample(range(slots), self.together)), 0

    def _wave(self, enters: Sequence[int], slots: int, late: int) -> tuple[Ints, Ints] | None:
        """Return an order in slots of an F and a B, in which nothing waits but for W's.

        A microbatch runs its F's in one slot, and its backwards in the next one on each device on
        its way home. It enters in ``together`` of so many slots, spread evenly. W's run where F's
        or backwards are missing, where there is no memory else, and before slot ``late`` of a
        period, as few as are left. ``None`` where there is none.
        """
        rows, turns = list[int](), np.zeros(len(self.ops), np.int64)
        for (stage,) in self.problem.stages_on:
            own = sorted(number for key, number in self.numbers.items() if key[0] == stage)
            for spare in range(self.together + 1):
                row = self._in_slots(stage, enters, slots, late, spare)
                if sorted(number for number, _ in row) == own:
                    break
            else:
                return None
            rows += [number for number, _ in row]
            for number, turn in row:
                turns[number] = turn
        return ints(rows), turns

    def _in_slots(
        self, stage: int, enters: Sequence[int], slots: int, late: int, spare: int
    ) -> list[tuple[int, int]]:
        """Return a device's ops of a period and their turns; ``spare`` W's are at its beginning."""
        number_of = {slot: j for j, slot in enumerate(enters)}
        halves = (max(v.forward for v in self.of), max(v.backward for v in self.of))
        home = len(self.of) - 1 - self.problem.routes[0].stages.index(stage)
        slack, last = self.cycle.slack[self.problem.stages[stage].device], home // slots + 4
        row, waiting, held, time = list[tuple[int, int]](), deque[tuple[int, int]](), 0, 0

        def run(kind: int, turn: int, j: int) -> None:
            nonlocal held, time
            number = self.numbers[stage, kind, j]
            row.append((number, last - 1 - turn))
            held, time = held + int(self.cycle.net[number]), time - int(self.cycle.length[number])

        for slot in range(late - slots, late + last * slots):
            if slot % slots == late % slots:
                row.clear()
                for _ in range(min(spare, len(waiting))):
                    run(2, *waiting.popleft())
            for kind, entered in enumerate((slot, slot - home)):
                turn, place = divmod(entered, slots)
                if turn < 0 or place not in number_of:
                    time = max(0, time) + halves[kind]
                    while waiting and time >= self.of[stage].weight:
                        run(2, *waiting.popleft())
                    continue
                taken = self.cycle.taken[self.numbers[stage, kind, 0]]
                while waiting and held + taken > slack:
                    run(2, *waiting.popleft())
                run(kind, turn, number_of[place])
                time = 0
                if kind and self.of[stage].split:
                    waiting.append((turn, number_of[place]))
        return row


def steady_rate(problem: Problem, schedule: Schedule) -> Fraction:
    """Return the time per microbatch at which a schedule of one route can go on, in time units.

    Microbatches right before its middle are repeated, all behind them come later. That is really
    done, as often as nothing at one end can still meet the other, and checked. Where none can be
    repeated so, the whole schedule can, without overlap. Without pairs, these alone are a schedule.
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
        first, times = middle - together, 2 * (longest // period) + 3
        alone = problem.overlap is None
        step = _Step(first, middle, period, times, first if alone else 0)
        some = [part for part in parts if first <= part[0] < middle] if alone else parts
        every = together if alone else m
        if not check(
            with_microbatches(problem, [every + times * together]),
            step.repeated(some, len(problem.devices)),
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
    """Microbatches from ``first`` to before ``last`` come ``times`` more, every ``period``.

    The first ones, as many as ``left_out``, are none of the schedule.
    """

    first: int
    last: int
    period: int
    times: int
    left_out: int

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
        more, time = turn * (self.last - self.first) - self.left_out, turn * self.period

        def op_of(op: Any) -> Any:
            return op._replace(microbatch=op.microbatch + more)

        what: Any = timed[0]
        moved: Any = op_of(what) if isinstance(what, Copy) else with_ops(what, op_of)
        return type(timed)(moved, timed.start + time, timed.end + time)
