"""Lower bounds with memory modes: how many microbatches of a device run in each, counted.

proofs/bounds.md ("Memory modes") derives the rows. Per device, a small programme in whole numbers
(:mod:`pipesat.bounds.counting`) chooses how many microbatches of each stage run in each *variant*
(a mode, its backward split or fused), and says how long that takes at least: compute time with what
is idle before the first backward and after the last F, memory times time, the time of the copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

from pipesat.bounds.counting import Programme, WeightedSum, least_of
from pipesat.bounds.device_terms import DeviceTerms
from pipesat.bounds.devices import groups_on, terms_of
from pipesat.bounds.memory_counts import in_use
from pipesat.core.claims import Bound
from pipesat.problem.plain_problems import memory_varies, of_each_class
from pipesat.problem.problem import Problem
from pipesat.problem.variants import Variant, variants
from pipesat.schedule.schedule import Objective


class Counted(NamedTuple):
    """A variant of a device's microbatches, and its memory times time at least.

    ``group`` numbers its stage and class.
    """

    group: int
    stage: int
    variant: Variant
    area: int

    @property
    def last(self) -> int:
        """What it holds while its backward runs as the last one, but for the W that follows.

        A backward that takes no time holds nothing: then what is held just after it is all.
        """
        return self.variant.most - self.variant.after if self.variant.backward else 0


def _area(x: Variant, stay: int) -> int:
    """Memory times time at least, if F's end and the backward lie ``stay`` apart or more."""
    beside = x.most * x.backward + x.after * x.weight
    copied = x.out + x.back
    return x.held * (x.forward + copied) + x.rest * max(0, stay - copied) + beside


@dataclass(frozen=True)
class Counts:
    """What a programme of one device counts; times from the origin (``absolute``) or its first op.

    ``alone`` has the problem of each class, with the least of each amount over the modes.
    """

    problem: Problem
    alone: Sequence[Problem]
    device: int
    absolute: bool

    @cached_property
    def terms(self) -> DeviceTerms:
        """What the device must do whatever the modes."""
        return terms_of(self.problem, self.alone, self.device)

    @cached_property
    def groups(self) -> list[tuple[int, int, int]]:
        """(stage, class, how many microbatches) of the device."""
        return groups_on(self.problem, self.device)

    @cached_property
    def counted(self) -> list[Counted]:
        """All variants of the device's microbatches."""
        return [
            Counted(group, stage, x, _area(x, self.terms.work[group].stay))
            for group, (stage, of_class, _) in enumerate(self.groups)
            for x in variants(self.problem, stage, of_class)
        ]

    @property
    def variants(self) -> list[Variant]:
        """The same without what is particular to the device."""
        return [x.variant for x in self.counted]

    @property
    def start(self) -> int:
        """Earliest start of anything on the device."""
        return int(self.terms.start * self.absolute)

    @property
    def first_backward(self) -> int:
        """Earliest start of a backward on the device."""
        return int(self.terms.first_backward(absolute=self.absolute))

    @property
    def tail(self) -> int:
        """Least time from the end of the last F to the end of the device's last op."""
        last = (way for way in self.terms.ways if way.last)
        return min(int(way.trip + max(way.back, way.home * self.absolute)) for way in last)

    @property
    def end(self) -> int:
        """Least time from the end of the last backward to that of the route's first stage."""
        return int(self.terms.way_home * self.absolute)

    @cached_property
    def slack(self) -> int | None:
        """Memory for activations, as far as whatever is held can fill it."""
        held = (held for x in self.variants for held in (x.held, x.rest, x.after, x.most))
        found: int | None = in_use(self.terms.memory, held)
        return found

    def fits(self, x: Variant) -> bool:
        """Whether there is memory for a variant while its own F, or its backward, runs."""
        return self.terms.memory is None or x.surely_held <= self.terms.memory

    @cached_property
    def takes_time(self) -> bool:
        """Whether every F takes time, so that what it takes is surely held."""
        return all(x.forward for x in self.variants)

    @property
    def lasts(self) -> list[int]:
        """What the last backward may hold beside the W's pending after it."""
        return sorted({x.last for x in self.counted})

    @cached_property
    def all_may_wait(self) -> bool:
        """Whether all F's might run before the first backward."""
        if self.slack is None or not self.takes_time:
            return True
        return self.in_all(lambda own: min(x.variant.rest for x in own)) <= self.slack

    def in_all(self, of: Callable[[list[Counted]], int]) -> int:
        """Sum over microbatches of something of the variants that each may run."""
        found = ([x for x in self.counted if x.group == n] for n in range(len(self.groups)))
        return sum(count * of(own) for own, (*_, count) in zip(found, self.groups, strict=True))

    @cached_property
    def unused(self) -> int:
        """Memory times time that no one can use: while the device fills, and while it empties.

        With j F's begun, at most j times the most that one holds is in use, until the next begins.
        At a time t before the last op's end, what is held must still be worked off in t and what
        is left of one op.
        """
        slack, variants = self.slack, self.variants
        if not slack:
            return 0
        most = max(x.most for x in variants)
        shortest = min(x.forward for x in variants)
        count = sum(count for *_, count in self.groups)
        steps = min(count, (slack - 1) // most) if most else 0
        filling = sum(slack - j * most for j in range(1, steps + 1)) * shortest
        emptying, length = self._emptying(slack)
        load = self.in_all(lambda own: min(x.variant.work for x in own))
        if steps * shortest + length <= load:
            return filling + emptying
        return max(filling if steps * shortest <= load else 0, emptying if length <= load else 0)

    def _emptying(self, slack: int) -> tuple[int, int]:
        """Memory times time unused while the device empties, and how long that takes at most."""
        rates = [(x.most, x.backward + x.weight) for x in self.variants]
        rates += [(x.after, x.weight) for x in self.variants if x.after]
        if any(held and not time for held, time in rates):
            return 0, 0
        held, time = max(
            ((held, time) for held, time in rates if held),
            key=lambda rate: Fraction(*rate),
            default=(0, 1),
        )
        if not held:
            return 0, 0
        longest = max(max(x.backward, x.weight) for x in self.variants)
        # (t + longest) * held / time is less than slack until this t
        length = slack * time // held - longest
        if length <= 0:
            return 0, 0
        # the integral of slack - (t + longest) * held / time over t from 0 to length, rounded down
        twice = 2 * slack * length * time - held * length * (length + 2 * longest)
        return max(0, twice // (2 * time)), length


_MOST_VARIANTS = 60  # of a device: beyond, the programme is left out
_MOST_CHOICES = 40  # of one mode per stage: beyond, microbatches are taken to choose


def counted_bounds(problem: Problem, objective: Objective, beyond: int = -1) -> Iterator[Bound]:
    """Yield a bound per device of a problem with memory modes, in time units; none without.

    One of ``beyond`` is known: a device that proves no more has none here.
    """
    if not memory_varies(problem) or problem.overlap is not None:
        return
    alone = of_each_class(problem)
    for device in problem.busy:
        counts = Counts(problem, alone, device, absolute=objective == "makespan")
        if len(counts.counted) <= _MOST_VARIANTS:
            value = least_of(_programmes(counts), beyond)
            if value > beyond:
                beyond, name = value, problem.device_name(device)
                yield Bound(value, f"closed form: modes counted on {name}")


def _choices(counts: Counts) -> Iterator[dict[int, int] | None]:
    """Modes of the device's stages, where each has one for all; ``None``: any mixture."""
    problem, stages = counts.problem, counts.problem.stages_on[counts.device]
    numbers = [problem.modes_of(stage) for stage in stages]
    if problem.mode_choice == "microbatch" or prod(map(len, numbers)) > _MOST_CHOICES:
        yield None
        return
    for chosen in product(*numbers):
        yield dict(zip(stages, chosen, strict=True))


def _programmes(counts: Counts) -> Iterator[Programme]:
    """One for each choice of modes, and for how the device begins and ends."""
    befores = (False, True) if counts.all_may_wait else (False,)
    for fixed, before, last in product(_choices(counts), befores, counts.lasts):
        yield _Rows(counts, fixed, before, last).rows


@dataclass
class _Rows:
    """Rows of proofs/bounds.md over counts by variant; ``before``: all F's run before a backward.

    ``last`` says what the last backward holds beside the W's that are pending after it.

    Variables by variant: ``run`` how many; ``head`` of them with F before the first backward,
    ``out`` of these copied out by then; ``whole`` and ``part`` of which the whole backward, or W
    alone, is left after the last F; ``late`` of which W is left after the last backward.
    """

    counts: Counts
    fixed: dict[int, int] | None
    before: bool
    last: int
    rows: Programme = field(default_factory=Programme)

    def __post_init__(self) -> None:
        counts, rows = self.counts, self.rows
        sizes = [count for *_, count in counts.groups]
        self.total = rows.variable(1, self._far)
        self.first = rows.variable(0, self._far)  # when the first backward starts
        roles = ("run", "head", "out", "whole", "part", "late")
        self.number = {
            role: [rows.variable(0, sizes[x.group]) for x in counts.counted] for role in roles
        }
        for variables in self.number.values():
            rows.total(variables)
        self._add_choice(sizes)
        self._add_time()
        if counts.slack is not None:
            self._add_memory(counts.slack)
        self._add_copies()

    @property
    def _far(self) -> int:
        """A time in which everything is done one after the other, and memory is no matter."""
        counts = self.counts
        work = counts.in_all(lambda own: max(v.work + v.out + v.back for *_, v, _ in own))
        area = counts.in_all(lambda own: max(x.area for x in own))
        once = counts.first_backward + counts.tail + counts.end + counts.start
        return 4 * (work + once) - -(area + counts.unused) // max(1, counts.slack or 1)

    def _sum(self, role: str, of: Callable[[Variant], int]) -> WeightedSum:
        return self._row(role, map(of, self.counts.variants))

    def _row(self, role: str, amounts: Iterable[int]) -> WeightedSum:
        return WeightedSum(zip(self.number[role], amounts, strict=True))

    def _add_choice(self, sizes: Sequence[int]) -> None:
        rows, counted, number = self.rows, self.counts.counted, self.number
        for group, size in enumerate(sizes):
            own = [n for n, x in zip(number["run"], counted, strict=True) if x.group == group]
            rows.equals(dict.fromkeys(own, 1), size)
        for i, x in enumerate(counted):
            run, head, out, whole, part, late = (number[role][i] for role in number)
            other = self.fixed is not None and self.fixed[x.stage] != x.variant.mode
            if other or not self.counts.fits(x.variant):
                rows.at_most({run: 1}, 0)
            rows.at_most({head: 1, run: -1}, 0)
            if self.before:
                rows.at_least({head: 1, run: -1}, 0)
            rows.at_most({out: 1, head: -1}, 0)
            rows.at_most({whole: 1, part: 1, run: -1}, 0)
            rows.at_most({late: 1, run: -1}, 0)
        ending = [n for n, x in zip(number["run"], counted, strict=True) if x.last == self.last]
        rows.at_least(dict.fromkeys(ending, 1), 1)

    def _add_time(self) -> None:
        """Compute time, with what is idle before the first backward and at the end."""
        counts, rows = self.counts, self.rows
        forward = self._sum("head", lambda x: x.forward)
        rows.at_least({self.first: 1}, counts.first_backward)
        rows.at_least(WeightedSum({self.first: 1}) - forward, counts.start)
        busy = forward - self._sum("run", lambda x: x.work) + {self.total: 1, self.first: -1}
        rows.at_least(busy, 0)
        rows.at_least(busy + self._sum("late", lambda x: x.weight), counts.end)
        if not self.before and counts.takes_time:
            left = self._sum("whole", lambda x: x.backward + x.weight)
            rows.at_least(busy + left + self._sum("part", lambda x: x.weight), counts.tail)

    def _add_memory(self, slack: int) -> None:
        counts, rows = self.counts, self.rows
        if counts.takes_time:
            held = self._sum("head", lambda x: x.held)
            rows.at_most(held + self._sum("out", lambda x: x.rest - x.held), slack)
            stored = self._sum("whole", lambda x: x.rest)
            rows.at_most(stored + self._sum("part", lambda x: x.after), slack)
        left = max(0, slack - self.last)
        rows.at_most(self._sum("late", lambda x: x.after), left)
        if least := min((x.after for x in counts.variants if x.after), default=0):
            rows.at_most(self._sum("late", lambda x: int(x.after > 0)), left // least)
        area = WeightedSum({self.total: slack}) - self._row("run", [x.area for x in counts.counted])
        rows.at_least(area, counts.unused + slack * counts.start)

    def _add_copies(self) -> None:
        """Copies of a channel one after the other, from the first F's end to the last backward."""
        counts, rows = self.counts, self.rows
        begin = counts.start + min(x.forward for x in counts.variants)
        end = min(x.backward for x in counts.variants)
        out, back = (
            self._sum("run", lambda x: x.out),
            self._sum("run", lambda x: x.back),
        )
        shared = counts.problem.devices[counts.device].copy_channels == 1
        for copied in (out + back,) if shared else (out, back):
            rows.at_least(WeightedSum({self.total: 1}) - copied, begin + end)
        rows.at_least(WeightedSum({self.first: 1}) - self._sum("out", lambda x: x.out), begin)
