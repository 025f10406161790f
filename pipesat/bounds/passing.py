"""Bounds where microbatches differ: what devices run before, while and after one of them passes.

A long microbatch is away from each device for as long as it takes to the last stage and back. Its
ops cut the time of a device into parts, and each part is as long as what runs in it. A small
programme (:mod:`pipesat.bounds.counting`) counts how many of every class have started which op when
one of its ops starts: who comes before it, who after it, who overtakes it where and makes it wait.
docs/proofs/bounds.md derives the rows ("One that passes, counted").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from pipesat.bounds.counting import Programme, WeightedSum
from pipesat.bounds.device_terms import Work
from pipesat.bounds.devices import classes_of, terms_of, work_of
from pipesat.bounds.own_ways import Pass, pass_of
from pipesat.core.claims import Bound
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective

_MOST_COUNTS = 1000  # ops of a microbatch times classes: about a second


def passing_bounds(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield a bound for the first and the last microbatch of the class with the longest way.

    For a single route whose order is not given; no pairs.
    """
    problem, alone = classes_of(problem)
    (route, *others) = problem.routes
    counts = Counter(route.classes)
    few = 2 * len(route.stages) * len(counts) <= _MOST_COUNTS
    if len(alone) == 1 or others or problem.order == "given" or not few:
        return
    passes = {of: pass_of(alone[of], route.stages) for of in counts}
    own = max(sorted(counts), key=lambda of: passes[of].length)
    source = f"closed form: counts around one of {route.definitions[own].name}"
    for earlier in sorted({0, counts[own] - 1}):
        made = _Passing(problem, alone, passes, own, earlier)
        made.write(absolute=objective == "makespan")
        yield Bound(made.programme.relaxed_cost(), source)


class _Passing:
    """The programme around one microbatch: its class, and how many of that come before it.

    Ops of a microbatch are numbered along its way: F's, then backwards. ``started[at, op][of]`` is
    the variable of how many others of a class have started an op when op ``at`` of this one starts,
    ``ended[at, op]`` of how many have done all work of that backward.
    """

    def __init__(
        self,
        problem: Problem,
        alone: Sequence[Problem],
        passes: Mapping[int, Pass],
        own: int,
        earlier: int,
    ) -> None:
        self.problem, self.alone, self.passes = problem, alone, passes
        self.own, self.earlier = own, earlier
        (route,) = problem.routes
        self.stages = [*route.stages, *reversed(route.stages)]
        self.turn = len(route.stages)
        number = Counter(route.classes)
        self.work = {
            (s, of): work_of(alone[of], s, number[of]) for s in route.stages for of in passes
        }
        self.others = {of: number[of] - (of == own) for of in passes}
        self.programme = Programme()
        backwards = sum(x.number * max(x.B + x.W, x.BW) for x in self.work.values())
        horizon = backwards + sum(number[of] * way.length for of, way in passes.items())
        self.end = self.programme.variable(1, horizon)  # one after the other takes no longer
        self.start = [self.programme.variable(0, horizon) for _ in self.stages]
        self.in_turn = problem.order == "same"
        self.started: dict[tuple[int, int], dict[int, int]] = {}
        self.ended: dict[tuple[int, int], dict[int, int]] = {}

    def write(self, *, absolute: bool) -> None:
        """Write all rows; ``absolute`` if every device's work ends within what is asked for."""
        for at in range(len(self.stages)):
            known = self.started.get((0, 0)) if self.in_turn else None
            self.started[at, at] = known or self._counts()
            self.programme.equals({self.started[at, at][self.own]: 1}, self.earlier)
        self._pass()
        for device, stages in enumerate(self.problem.stages_on):
            ops = [op for op, stage in enumerate(self.stages) if stage in stages]
            if ops:
                self._count(ops)
                self._fill(device, ops, absolute=absolute)
                self._fit(device, ops)

    def _counts(self) -> dict[int, int]:
        return {of: self.programme.variable(0, most) for of, most in self.others.items()}

    def _count(self, ops: Sequence[int]) -> None:
        """Counts of a device's ops: none falls, and who has started an op has done those before."""
        at_least, backwards = self.programme.at_least, ops[len(ops) // 2 :]
        for at in ops:
            for op in ops:
                if at != op:
                    self.started[at, op] = self._counts()
            for op in backwards:
                self.ended[at, op] = self._counts()
            for of in self.others:
                for op, following in pairwise(ops):
                    at_least({self.started[at, op][of]: 1, self.started[at, following][of]: -1}, 0)
                for op in backwards:
                    at_least({self.started[at, op][of]: 1, self.ended[at, op][of]: -1}, 0)
        for counted, counted_ops in ((self.started, ops), (self.ended, backwards)):
            for at, following in pairwise(ops):
                for op in counted_ops:
                    for of, later in counted[following, op].items():
                        at_least({later: 1, counted[at, op][of]: -1}, 0)

    def _length(self, op: int, of: int) -> int:
        return int(self.passes[of].times[op])

    def _rest(self, op: int, of: int) -> int:
        """Work of a backward beyond its shortest time."""
        work = self.work[self.stages[op], of]
        return int(work.least - work.shortest) if op >= self.turn else 0

    def _done(self, at: int, ops: Sequence[int], *, rest: bool = True) -> WeightedSum:
        """Work of others on a device when an op starts there."""
        done = WeightedSum()
        for of in self.others:
            for op in ops:
                done += {self.started[at, op][of]: self._length(op, of)}
                if rest and op >= self.turn:
                    done += {self.ended[at, op][of]: self._rest(op, of)}
        return done

    def _all(self, ops: Sequence[int], *, rest: bool) -> int:
        """All work of others on a device."""
        return sum(
            number * (self._length(op, of) + rest * self._rest(op, of))
            for of, number in self.others.items()
            for op in ops
        )

    def _fill(self, device: int, ops: Sequence[int], *, absolute: bool) -> None:
        """Parts of a device's time take as long as what runs in them."""
        terms = terms_of(self.problem, self.alone, device)
        at_least, start, first, last = self.programme.at_least, self.start, ops[0], ops[-1]
        at_least(self._done(first, ops) * -1 + {start[first]: 1}, terms.start)
        for op, following in pairwise(ops):
            within = self._done(op, ops) - self._done(following, ops)
            at_least(within + {start[following]: 1, start[op]: -1}, self._length(op, self.own))
        after = WeightedSum({self.end: 1, start[last]: -1})
        least = self._all(ops, rest=False) + self._length(last, self.own) + terms.way_home
        at_least(after + self._done(last, ops, rest=False), least)
        if absolute or first == 0:
            own = self._length(last, self.own) + self._rest(last, self.own)
            at_least(after + self._done(last, ops), self._all(ops, rest=True) + own)

    def _fit(self, device: int, ops: Sequence[int]) -> None:
        """What is held while this one runs fits."""
        room = self.problem.devices[device].room
        for at in ops:
            if room is None or not self._length(at, self.own):
                continue
            held, beside = WeightedSum(), 0
            for op in ops[: len(ops) // 2]:
                back = 2 * self.turn - 1 - op
                beside += self.work[self.stages[op], self.own].held * (op <= at <= back)
                for of in self.others:
                    work: Work = self.work[self.stages[op], of]
                    held += {self.started[at, op][of]: work.held}
                    held += {self.started[at, back][of]: work.held_after_B - work.held}
                    held += {self.ended[at, back][of]: -work.held_after_B}
            self.programme.at_most(held, max(0, room - beside))  # it may not fit even alone

    def _pass(self) -> None:
        """Its way: each op after the one before, its delay, and who overtakes it there."""
        own = self.passes[self.own]
        for op in range(1, len(self.stages)):
            way = WeightedSum({self.start[op]: 1, self.start[op - 1]: -1})
            for of, most in self.others.items() if not self.in_turn else ():
                other = self.passes[of]
                sooner = own.delays[op] - other.times[op - 1] - other.delays[op]
                waits = int(other.times[op] - max(0, sooner))
                if of != self.own and waits > 0:
                    overtake = self.programme.variable(0, most)
                    now, before = self.started[op, op][of], self.started[op - 1, op - 1][of]
                    self.programme.at_least({overtake: 1, now: -1, before: 1}, 0)
                    way += {overtake: -waits}
            self.programme.at_least(way, int(own.times[op - 1] + own.delays[op]))
