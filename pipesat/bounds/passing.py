"""Bounds where microbatches differ: what devices run before, while and after some of them pass.

A long microbatch is away from each device for as long as it takes to the last stage and back. Its
ops cut the time of a device into parts, and each part is as long as what runs in it. A small
programme (:mod:`pipesat.bounds.counting`) counts how many of every class have started which op, in
which variant, when one of its ops starts: who comes before it, who after it, who overtakes it where
and makes it wait. Where all stages run microbatches in one order, two long ones cut the time
together. docs/proofs/bounds.md derives the rows ("Some that pass, counted").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import combinations, pairwise, product
from typing import NamedTuple, TypeAlias

from pipesat.bounds.counting import Programme, WeightedSum
from pipesat.bounds.devices import classes_of, terms_of
from pipesat.bounds.own_ways import Pass, pass_of
from pipesat.core.claims import Bound
from pipesat.problem.problem import Problem
from pipesat.problem.variants import Variant, variants
from pipesat.schedule.schedule import Objective

_MOST_COUNTS = 1000  # ops of a microbatch times classes and variants: about a second
_MOST_OF_TWO = 2000  # the same, times the ways in which two may stand to each other

_MOST_BESIDE = 4  # of the next class beside two that pass

_OTHERS = -1


class _Kind(NamedTuple):
    """All others of a class, or one that passes, by its number."""

    of_class: int
    one: int = _OTHERS


_Part: TypeAlias = tuple[int, bool]
"""An op, or what is left of a backward (its W)."""
_Apart: TypeAlias = Mapping[tuple[int, int], range]
"""By two that pass, what may be the first stage on which the one is back before the other comes."""
_Known: TypeAlias = dict[tuple[int, _Part, _Kind], list[int]]
"""Per event of a device, part and kind: variables of how many have started it, by variant."""


def passing_bounds(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield a bound for the first and the last microbatch of the class with the longest way.

    And for its first two and its last two. For a single route whose order is not given, or that has
    memory modes; no pairs.
    """
    for source, programmes in passing_programmes(problem, objective):
        yield Bound(min(one.relaxed_cost() for one in programmes), source)


def passing_programmes(
    problem: Problem, objective: Objective
) -> Iterator[tuple[str, Iterable[Programme]]]:
    """Yield arguments and their programmes, of which the least cost is a bound."""
    problem, alone = classes_of(problem)
    (route, *others) = problem.routes
    counts = Counter(route.classes)
    ways = sum(len(_variants(problem, s, of)) for s in route.stages for of in counts)
    covered = problem.order == "given" and not problem.has_modes
    if len(alone) == 1 or others or covered or 2 * ways > _MOST_COUNTS:
        return
    passes = {of: pass_of(alone[of], route.stages) for of in counts}
    own = max(sorted(counts), key=lambda of: passes[of].length)
    for number, name in ((1, "one"), (2, "two")):
        source = f"closed form: counts around {name} of {route.definitions[own].name}"
        for earlier in sorted({0, max(0, counts[own] - number)}):
            made = _Passing(problem, alone, passes, [(own, earlier)] * number)
            if number == 1 or (counts[own] > 1 and made.together):
                yield source, made.programmes(absolute=objective == "makespan")


def _variants(problem: Problem, stage: int, of_class: int) -> list[Variant]:
    """Variants of a class without those that are fused where splitting is no worse."""

    def pays(x: Variant) -> bool:
        amounts = problem.resulting(stage, x.mode, of_class)
        return x.split or not amounts.may_split or amounts.fusing_may_pay

    return [x for x in variants(problem, stage, of_class) if pays(x)]


class _Passing:
    """Programmes around some microbatches: ``ones`` has their classes, in their order.

    And how many others of the class come before each. Ops of a microbatch are numbered along its
    way: F's, then backwards.
    """

    def __init__(
        self,
        problem: Problem,
        alone: Sequence[Problem],
        passes: Mapping[int, Pass],
        ones: Sequence[tuple[int, int]],
    ) -> None:
        self.problem, self.alone, self.passes, self.ones = problem, alone, passes, ones
        (route,) = problem.routes
        self.stages = [*route.stages, *reversed(route.stages)]
        self.turn = len(route.stages)
        self.in_turn = problem.order != "free"
        self.own = [_Kind(of, one) for one, (of, _) in enumerate(ones)]
        counts = Counter(route.classes) - Counter(of for of, _ in ones)
        self.others = {of: counts[of] for of in passes}
        self.kinds = {_Kind(of): n for of, n in self.others.items()} | dict.fromkeys(self.own, 1)
        self.variants = {(s, of): _variants(problem, s, of) for s in route.stages for of in passes}

    @property
    def together(self) -> bool:
        """Whether it is known how several stand to each other on all stages, in few ways."""
        ways = (self.turn + 1) * 2 * sum(map(len, self.variants.values()))
        known = self.in_turn or not self.problem.has_modes
        return (
            known
            and self.problem.one_stage_per_device
            and ways <= _MOST_OF_TWO
            and all(x.forward and x.backward for own in self.variants.values() for x in own)
        )

    def programmes(self, *, absolute: bool) -> Iterator[Programme]:
        """Yield one for each first stage on which the first is back before the second comes."""
        if len(self.ones) == 1:
            yield self._programme({}, absolute=absolute)
            return
        for stage in range(self.turn + 1):
            apart = {(0, 1): range(stage, stage + 1)}
            made = self._programme(apart, absolute=absolute)
            if self.in_turn and not self.problem.has_modes:
                made.cases = partial(self._cases, 0, 0, apart, absolute=absolute)
            yield made

    def _cases(
        self, left: int, right: int, apart: _Apart, *, absolute: bool
    ) -> Iterator[Programme]:
        """Yield those in which more is known of two with so many of the next class beside them.

        How all stand on one more stage; or else where one more of that class is: of the others the
        first is before the two; or none is, and the last is after; or all are between.
        """
        if any(len(stages) > 1 for stages in apart.values()):
            yield from self._on_one_more_stage(left, right, apart, absolute=absolute)
            return
        for some, last in ((left + 1, 0), (left, right + 1))[right > 0 :]:
            new, every = left + 2 * (last > 0), range(len(self.ones) + some + last)
            known = {(i + (i >= new), j + (j >= new)): stages for (i, j), stages in apart.items()}
            for one in every:
                if one != new:
                    known[min(one, new), max(one, new)] = range(self.turn + 1)
            yield from self._on_one_more_stage(some, last, known, absolute=absolute)
        of, made = self._with(left, right)
        between = made._programme(apart, absolute=absolute)
        first, second = (before[of] for before in made.before[left : left + 2])
        between.at_least({second: 1, first: -1}, made.others[of])
        yield between

    def _with(self, left: int, right: int) -> tuple[int, _Passing]:
        """The class with the next longest way, and the two with its first and last beside them."""
        of = max(sorted({*self.passes} - {self.ones[0][0]}), key=lambda x: self.passes[x].length)
        last = of, self.others[of] - left - right
        ones = [*[(of, 0)] * left, *self.ones, *[last] * right]
        return of, _Passing(self.problem, self.alone, self.passes, ones)

    def _on_one_more_stage(
        self, left: int, right: int, apart: _Apart, *, absolute: bool
    ) -> Iterator[Programme]:
        """Yield one for each way to stand to each other on the first stage of which some are open.

        As far as memory admits.
        """
        of, made = self._with(left, right)
        at = min(stages[0] for stages in apart.values() if len(stages) > 1)
        pairs = [two for two, stages in apart.items() if stages[0] == at < stages[-1]]
        for back in product((True, False), repeat=len(pairs)):
            now = {
                two: range(at, at + 1) if there else range(at + 1, apart[two][-1] + 1)
                for two, there in zip(pairs, back, strict=True)
            }
            if (known := made._tightened({**apart, **now})) is None:
                continue
            found = made._programme(known, absolute=absolute)
            if right:
                found.equals({made.before[left][of]: 1}, 0)
            is_open = any(len(stages) > 1 for stages in known.values())
            if is_open or (made.others[of] and left + right < _MOST_BESIDE):
                found.cases = partial(self._cases, left, right, known, absolute=absolute)
            yield found

    def _tightened(self, apart: _Apart) -> _Apart | None:
        """What follows of how all stand to each other, ``None`` if memory does not admit it.

        Who is back before the next comes is back before any later one.
        """
        known, before = dict(apart), dict[tuple[int, int], range]()
        while before != known:
            before = dict(known)
            for i, j, k in combinations(range(len(self.ones)), 3):
                least, most = known[i, k][0], min(known[x][-1] for x in ((i, k), (i, j), (j, k)))
                known[i, k] = range(least, most + 1)
                for one in ((i, j), (j, k)):
                    known[one] = range(max(least, known[one][0]), known[one][-1] + 1)
                if not all((known[i, k], known[i, j], known[j, k])):
                    return None
        for at, stage in enumerate(self.stages[: self.turn]):
            slack = self.problem.devices[self.problem.stages[stage].device].slack
            held = [min(x.rest for x in self.variants[stage, of]) for of, _ in self.ones]
            for last, own in enumerate(held):
                away = sum(held[one] for one in range(last) if known[one, last][0] > at)
                if slack is not None and own + away > slack:
                    return None
        return known

    def _events(self, ops: Sequence[int], apart: _Apart) -> list[tuple[int, int]]:
        """Ops of those that pass on a device, in its row.

        Of two that stand to each other in a way that is open, an op of one beside the two long ones
        is left out.
        """
        if not apart:
            return [(0, op) for op in ops]
        (forward, back), found, returned = ops, list[tuple[int, int]](), 0
        long = max(self.passes[of].length for of, _ in self.ones)
        for one in range(len(self.ones)):
            while returned < one and forward >= apart[returned, one][-1]:
                found.append((returned, back))
                returned += 1
            found.append((one, forward))
        found += [(one, back) for one in range(returned, len(self.ones))]
        left_out = {
            (two, forward) if self.passes[self.ones[two][0]].length < long else (one, back)
            for (one, two), stages in apart.items()
            if stages[0] <= forward < stages[-1]
        }
        return [event for event in found if event not in left_out]

    def _programme(self, apart: _Apart, *, absolute: bool) -> Programme:
        """Write all rows; ``absolute`` if every device's work ends within what is asked for."""
        splits = list[int]()
        self.programme = Programme(splits=splits)
        variable, horizon = self.programme.variable, self._horizon
        self.end = variable(1, horizon)
        self.start = {
            (one, op): variable(0, horizon)
            for one in range(len(self.ones))
            for op in range(len(self.stages))
        }
        self.run = {
            (stage, kind): [variable(0, n) for _ in self.variants[stage, kind.of_class]]
            for stage in self.stages[: self.turn]
            for kind, n in self.kinds.items()
        }
        for (_, kind), run in self.run.items():
            self.programme.equals(dict.fromkeys(run, 1), self.kinds[kind])
            if kind.one != _OTHERS and len(run) > 1:
                splits += run
        self.before = [self._counts() for _ in self.ones] if self.in_turn else []
        for before, (of, earlier) in zip(self.before, self.ones, strict=False):
            self.programme.equals({before[of]: 1}, earlier)
        self.at = dict[tuple[int, int], Mapping[int, Sequence[int]]]()
        for device, stages in enumerate(self.problem.stages_on):
            ops = [op for op, stage in enumerate(self.stages) if stage in stages]
            if ops:
                ends = absolute or not ops[0]
                self._device(device, self._events(ops, apart), ops, ends=ends)
        for one in range(len(self.ones)):
            self._pass(one)
        return self.programme

    @cached_property
    def _horizon(self) -> int:
        """All microbatches one after the other take no longer."""
        work = sum(
            self.kinds[kind] * max(x.work + x.out + x.back for x in self.variants[s, kind.of_class])
            for s in self.stages[: self.turn]
            for kind in self.kinds
        )
        return work + sum(
            n * int(self.passes[of].delays.sum()) for (of, _), n in self.kinds.items()
        )

    def _counts(self) -> dict[int, int]:
        return {of: self.programme.variable(0, most) for of, most in self.others.items()}

    def _device(
        self, device: int, events: Sequence[tuple[int, int]], ops: Sequence[int], *, ends: bool
    ) -> None:
        """Rows of a device, between whose ``events`` parts run; whether all work ``ends`` in time.

        Parts of its time take as long as what runs in them.
        """
        at_least, terms = self.programme.at_least, terms_of(self.problem, self.alone, device)
        parts = [
            (op, rest) for op in ops for rest in ((False, True) if op >= self.turn else (False,))
        ]
        known = self._count(events, ops, parts)
        for part, kind in product(parts, self.kinds):
            known[len(events), part, kind] = self.run[self.stages[part[0]], kind]
        done = [self._work(known, at, parts) for at in range(len(events) + 1)]
        start = [self.start[event] for event in events]
        at_least(done[0] * -1 + {start[0]: 1}, terms.start)
        for at, (one, following) in enumerate(pairwise(start)):
            at_least(done[at] - done[at + 1] + {following: 1, one: -1}, 0)
        last = WeightedSum({self.end: 1, start[-1]: -1})
        early = [part for part in parts if not part[1]]
        before, after = (self._work(known, len(events) - 1 + x, early) for x in (0, 1))
        at_least(last + before - after, terms.way_home)
        if ends:
            at_least(last + done[-2] - done[-1], 0)
        if (slack := self.problem.devices[device].slack) is not None:
            for at, event in enumerate(events):
                self._fit(known, at, event, ops, slack)

    def _count(
        self, events: Sequence[tuple[int, int]], ops: Sequence[int], parts: Sequence[_Part]
    ) -> _Known:
        """Counts at a device's events: none falls, and who has started an op has done those before.

        Of one that passes itself, the order of the events says what it has started but its W's.
        """
        known: _Known = {}
        for at, (one, of_one) in enumerate(events):
            for kind, number in self.kinds.items():
                for op, rest in parts:
                    run = self.run[self.stages[op], kind]
                    loose = kind.one == _OTHERS or (kind.one, op) not in events
                    begun = loose or (kind.one, op) in events[:at]
                    new = rest or loose
                    found = [self.programme.variable(0, number) for _ in run] if new else run
                    known[at, (op, rest), kind] = found if begun else []
                    if at:
                        self._grow(known[at - 1, (op, rest), kind], known[at, (op, rest), kind])
                for op in ops[: len(ops) // 2]:
                    back = len(self.stages) - 1 - op
                    chain = [
                        known[at, part, kind] for part in ((back, True), (back, False), (op, False))
                    ]
                    for fewer, more in pairwise([*chain, self.run[self.stages[op], kind]]):
                        self._grow(fewer, more)
                for op, following in pairwise(ops):
                    more, fewer = known[at, (op, False), kind], known[at, (following, False), kind]
                    if kind.one == _OTHERS:
                        total = WeightedSum(dict.fromkeys(more, 1)) - dict.fromkeys(fewer, 1)
                        self.programme.at_least(total, 0)
            now = {of: known[at, (of_one, False), _Kind(of)] for of in self.others}
            self.at[one, of_one] = now
            for of, numbers in now.items():
                if self.in_turn:
                    total = WeightedSum(dict.fromkeys(numbers, 1))
                    self.programme.equals(total - {self.before[one][of]: 1}, 0)
                elif of == self.ones[one][0] and not (of_one and self.problem.has_modes):
                    self.programme.equals(dict.fromkeys(numbers, 1), self.ones[one][1])
        return known

    def _grow(self, fewer: Sequence[int], more: Sequence[int]) -> None:
        for one, other in zip(fewer, more, strict=False):
            if one != other:
                self.programme.at_least({other: 1, one: -1}, 0)

    def _work(self, known: _Known, at: int, parts: Iterable[_Part]) -> WeightedSum:
        """All work that a device has done at an event."""
        done = WeightedSum()
        for op, rest in parts:
            for kind in self.kinds:
                own = self.variants[self.stages[op], kind.of_class]
                for n, x in zip(known[at, (op, rest), kind], own, strict=False):
                    done += {n: x.weight if rest else x.backward if op >= self.turn else x.forward}
        return done

    def _fit(
        self, known: _Known, at: int, event: tuple[int, int], ops: Sequence[int], slack: int
    ) -> None:
        """What is held while this op runs fits, if it surely takes time."""
        one, own_op = event
        stage, own = self.stages[own_op], self.own[one]
        mine = self.variants[stage, own.of_class]
        if not all(x.backward if own_op >= self.turn else x.forward for x in mine):
            return
        held = WeightedSum()
        for op in ops[: len(ops) // 2]:
            back = len(self.stages) - 1 - op
            for kind in self.kinds:
                of_kind = self.variants[self.stages[op], kind.of_class]
                amounts = [(x.rest, x.after - x.rest, -x.after) for x in of_kind]
                for part, change in ((op, False), 0), ((back, False), 1), ((back, True), 2):
                    for n, of_one in zip(known[at, part, kind], amounts, strict=False):
                        held += {n: of_one[change]}
        for n, x in zip(self.run[stage, own], mine, strict=True):
            held += {n: x.most - x.rest if own_op >= self.turn else x.held}
        self.programme.at_most(held, slack)

    def _pass(self, one: int) -> None:
        """Its way: each op after the one before, its delay, and who overtakes it there."""
        own, of_one = self.passes[self.own[one].of_class], self.own[one]
        for op in range(1, len(self.stages)):
            begin = self.stages[op - 1]
            way = WeightedSum({self.start[one, op]: 1, self.start[one, op - 1]: -1})
            run = self.run[begin, of_one]
            for n, x in zip(run, self.variants[begin, of_one.of_class], strict=True):
                way += {n: -(x.backward if op > self.turn else x.forward)}
            for of, most in self.others.items() if not self.in_turn else ():
                other = self.passes[of]
                sooner = own.delays[op] - other.times[op - 1] - other.delays[op]
                waits = int(other.times[op] - max(0, sooner))
                if waits > 0:
                    overtake = self.programme.variable(0, most)
                    fewer, more = (dict.fromkeys(self.at[one, x][of], 1) for x in (op - 1, op))
                    total = WeightedSum(fewer) - more
                    self.programme.at_least(total + {overtake: 1}, 0)
                    way += {overtake: -waits}
            self.programme.at_least(way, int(own.delays[op]))
