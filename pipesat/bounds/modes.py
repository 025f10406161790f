"""Lower bounds with memory modes: how many microbatches of a device run in each, counted.

proofs/bounds.md ("Memory modes") derives the rows. Per device, a small programme in whole numbers
(:mod:`pipesat.bounds.counting`) chooses how many microbatches of each stage run in each *way* (a
mode, its backward split or fused), and says how long that takes at least: compute time with what is
idle before the first backward and after the last F, memory times time, the time of the copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from pipesat.bounds.counting import Programme, least_of
from pipesat.bounds.mode_counts import Counts
from pipesat.core.claims import Bound
from pipesat.core.least import memory_varies, of_each_class
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective

_MOST_WAYS = 60  # of a device: beyond, the programme is left out
_MOST_CHOICES = 40  # of one mode per stage: beyond, microbatches are taken to choose


def counted_bounds(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield a bound per device of a problem with memory modes, in time units; none without."""
    if not memory_varies(problem) or problem.overlap is not None:
        return
    alone = of_each_class(problem)
    for device, stages in enumerate(problem.stages_on):
        if not stages:
            continue
        counts = Counts(problem, alone, device, absolute=objective == "makespan")
        if len(counts.ways) <= _MOST_WAYS:
            value = least_of(_programmes(counts))
            name = problem.device_name(device)
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
    """Rows of proofs/bounds.md over counts per way; ``before``: all F's run before any backward.

    ``last`` says what the last backward holds beside the W's that are pending after it.

    Variables per way: ``run`` how many; ``head`` of them with F before the first backward, ``out``
    of these copied out by then; ``whole`` and ``part`` of which the whole backward, or W alone, is
    left after the last F; ``late`` of which W is left after the last backward.
    """

    counts: Counts
    fixed: dict[int, int] | None
    before: bool
    last: int
    rows: Programme = field(default_factory=Programme)

    def __post_init__(self) -> None:
        counts, rows = self.counts, self.rows
        sizes = [count for *_, count in counts.groups]
        self.total = rows.variable(1, self._far(sizes))
        self.first = rows.variable(0, self._far(sizes))  # when the first backward starts
        kinds = ("run", "head", "out", "whole", "part", "late")
        self.number = {
            kind: [rows.variable(0, sizes[way.group]) for way in counts.ways] for kind in kinds
        }
        for variables in self.number.values():
            rows.total(variables)
        self._add_choice(sizes)
        self._add_time()
        if counts.room is not None:
            self._add_memory(counts.room)
        self._add_copies()

    def _far(self, sizes: Sequence[int]) -> int:
        """A time in which everything is done one after the other, and memory is no matter."""
        counts = self.counts
        work = sum(
            size * max(way.work + way.out + way.back for way in counts.ways if way.group == group)
            for group, size in enumerate(sizes)
        )
        area = sum(
            size * max(way.area for way in counts.ways if way.group == group)
            for group, size in enumerate(sizes)
        )
        once = counts.first_backward + counts.tail + counts.end + counts.start
        return 4 * (work + once) + (area + counts.unused) // max(1, counts.room or 1)

    def _sum(self, kind: str, amounts: Sequence[int]) -> dict[int, int]:
        return dict(zip(self.number[kind], amounts, strict=True))

    def _add_choice(self, sizes: Sequence[int]) -> None:
        rows, ways, number = self.rows, self.counts.ways, self.number
        for group, size in enumerate(sizes):
            own = [n for n, way in zip(number["run"], ways, strict=True) if way.group == group]
            rows.equals(dict.fromkeys(own, 1), size)
        for i, way in enumerate(ways):
            run, head, out, whole, part, late = (number[kind][i] for kind in number)
            if self.fixed is not None and self.fixed[way.stage] != way.mode:
                rows.at_most({run: 1}, 0)
            rows.at_most({head: 1, run: -1}, 0)
            if self.before:
                rows.at_least({head: 1, run: -1}, 0)
            rows.at_most({out: 1, head: -1}, 0)
            rows.at_most({whole: 1, part: 1, run: -1}, 0)
            rows.at_most({late: 1, run: -1}, 0)
        ending = [n for n, way in zip(number["run"], ways, strict=True) if way.last == self.last]
        rows.at_least(dict.fromkeys(ending, 1), 1)

    def _add_time(self) -> None:
        """Compute time, with what is idle before the first backward and at the end."""
        counts, rows = self.counts, self.rows
        ways = counts.ways
        work = self._sum("run", [-way.work for way in ways])
        forward = self._sum("head", [way.forward for way in ways])
        rows.at_least({self.first: 1}, counts.first_backward)
        rows.at_least({self.first: 1} | _negative(forward), counts.start)
        busy = {self.total: 1, self.first: -1} | work | forward
        rows.at_least(busy, 0)
        late = self._sum("late", [way.weight for way in ways])
        rows.at_least(busy | late, counts.end)
        if not self.before and counts.takes_time:
            left = self._sum("whole", [way.backward + way.weight for way in ways])
            left |= self._sum("part", [way.weight for way in ways])
            rows.at_least(busy | left, counts.tail)

    def _add_memory(self, room: int) -> None:
        counts, rows = self.counts, self.rows
        ways = counts.ways
        after = [way.after for way in ways]
        if counts.takes_time:
            held = self._sum("head", [way.held for way in ways])
            rows.at_most(held | self._sum("out", [way.rest - way.held for way in ways]), room)
            stored = self._sum("whole", [way.rest for way in ways]) | self._sum("part", after)
            rows.at_most(stored, room)
        left = max(0, room - self.last)
        rows.at_most(self._sum("late", after), left)
        if least := min((amount for amount in after if amount), default=0):
            pending = self._sum("late", [1 if amount else 0 for amount in after])
            rows.at_most(pending, left // least)
        area = self._sum("run", [-way.area for way in ways])
        rows.at_least({self.total: room} | area, counts.unused + room * counts.start)

    def _add_copies(self) -> None:
        """Copies of a channel one after the other, from the first F's end to the last backward."""
        counts, rows = self.counts, self.rows
        ways = counts.ways
        begin = counts.start + min(way.forward for way in ways)
        end = min(way.backward for way in ways)
        out, back = [-way.out for way in ways], [-way.back for way in ways]
        if counts.problem.devices[counts.device].copy_channels == 1:
            both = [one + other for one, other in zip(out, back, strict=True)]
            rows.at_least({self.total: 1} | self._sum("run", both), begin + end)
        else:
            rows.at_least({self.total: 1} | self._sum("run", out), begin + end)
            rows.at_least({self.total: 1} | self._sum("run", back), begin + end)
        rows.at_least({self.first: 1} | self._sum("out", out), begin)


def _negative(row: dict[int, int]) -> dict[int, int]:
    return {variable: -value for variable, value in row.items()}
