"""How long microbatches wait while a pipeline with pairs fills and empties.

The first forwards of a route and its last backwards run alone, and a device runs them one after the
other: the k-th microbatch is through a device with two stages after k times the work of both. A
device before it gains nothing by taking microbatches in sooner: it holds them while they wait on
their way. docs/proofs/bounds.md has the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pipesat.bounds.counting import Programme, WeightedSum, tangent_points
from pipesat.bounds.devices import Line, line_of, passages
from pipesat.bounds.paired_device import Count, HeldPart, RunGroup, by_op
from pipesat.problem.ops import Kind
from pipesat.problem.problem import Problem


@dataclass(frozen=True)
class Course:
    """Least times of a problem's microbatches, from the origin to the end that counts.

    Per stage: when its first F can start (``begin``), and from the end of a backward to the end
    (``home``). Per device: when its first backward can start, and from the end of its last forward
    to the end.
    """

    begin: Sequence[int]
    home: Sequence[int]
    first_backward: Sequence[int]
    after_last_forward: Sequence[int]


@dataclass(frozen=True)
class LeastWaits:
    """Microbatches of a stage wait this long at least, sorted: n of them the sum of the first n.

    Less, if ops of the stages ``on_way`` take longer alone than the least.
    """

    by_rank: tuple[int, ...]
    on_way: Sequence[int]

    def tangents(self, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield slope and constant of lines nowhere above the sum of the first n, for all whole n.

        Each meets it at one of ``numbers``, and one before it.
        """
        for n in numbers:
            slope = self.by_rank[n - 1]
            yield slope, sum(self.by_rank[:n]) - n * slope


@dataclass(frozen=True)
class Waiting:
    """Waits of a problem in which every pair has exactly one forward."""

    problem: Problem
    course: Course

    def while_filling(self, stage: int, most: int) -> LeastWaits:
        """Least time until a stage's F, and waiting on the way after it.

        From the earliest start of the stage's device, for microbatches whose F of the stage comes
        before the device's first backward, ``most`` of them. Some other F on the way is in a pair,
        which starts no sooner than its device's first backward; or all run alone, and a device
        passes one microbatch after another.
        """
        line, _ = self._place(stage)
        here = self.problem.stages_on[self.problem.stages[stage].device]
        start = min(self.course.begin[s] for s in here)
        entry = min(place for place, s in enumerate(line.stages) if s in here)
        way = (line.forward, line.out, self.course.begin, self.course.first_backward)
        return self._longest(stage, self._by_rank(stage, most, way, entry, start))

    def while_emptying(self, stage: int, most: int) -> LeastWaits:
        """Least waiting on the way before a stage's backward, and time from its end to the end.

        For microbatches whose backward comes after the device's last forward, ``most`` of them.
        Some other backward on the way is in a pair, which ends no later than its device's last
        forward; or all run alone.
        """
        line, _ = self._place(stage)
        way = (line.backward, line.home, self.course.home, self.course.after_last_forward)
        return self._longest(stage, self._by_rank(stage, most, way))

    def _by_rank(
        self, stage: int, most: int, way: tuple[Sequence[int], ...], entry: int = 0, start: int = 0
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield waits by rank for every passage of a device, each with its last place.

        One more microbatch before one's own adds the passage's work; ``start`` is taken off.

        Parameters
        ----------
        way
            By place, the times of ops and the way that they add up to; by stage, what one that runs
            alone takes to or from it at least; by device, what bounds those that run in pairs.
        """
        (times, sums, alone, paired), (line, first) = way, self._place(stage)
        base = alone[stage] - start
        for _, places in passages(self.problem, line.stages, entry):
            low, top = places[0], places[-1]
            rate = sum(times[x] for x in places)
            wait = alone[line.stages[low]] + sums[first] - sums[top] - times[top] + rate - start
            limits = [
                paired[self.problem.stages[line.stages[x]].device]
                + sums[first]
                - sums[x]
                - (times[x] if x < first else 0)
                - start
                for x in range(min(first, low), max(first, top) + 1)
                if x != first
            ]
            limit = max(base, min(limits, default=wait + most * rate))
            yield top, tuple(min(limit, max(base, wait + k * rate)) for k in range(most))

    def _place(self, stage: int) -> tuple[Line, int]:
        problem = self.problem
        return line_of(problem, problem.route_of[stage]), problem.place_of[stage]

    def _longest(self, stage: int, found: Iterable[tuple[int, tuple[int, ...]]]) -> LeastWaits:
        """Those that are longest in all; each holds."""
        (line, first), (top, ranks) = self._place(stage), max(found, key=lambda one: sum(one[1]))
        return LeastWaits(ranks, line.stages[first : top + 1])


@dataclass(frozen=True)
class WaitingRows:
    """``counts``: per device, its items by phase. ``longest``: an end that some schedule reaches.

    All waits are memory times time.
    """

    programme: Programme
    waiting: Waiting
    counts: Mapping[int, Count]
    longest: int

    def while_filling(self, total: int, count: Count, level: HeldPart) -> None:
        """Let a variable be at least what waits around the forwards before the first backward."""
        row = WeightedSum({total: 1})
        for groups, most in self._stages(count, level):
            found = self.waiting.while_filling(groups[0].stage, most)
            number = count.of(groups, [count.before], "F")
            row[self._waits(level.step, most, number, found, "F")] = -1
        self.programme.at_least(row, 0)

    def while_emptying(self, total: int, count: Count, level: HeldPart, beyond: int) -> None:
        """Let a variable be at least what waits around the backwards after the last forward.

        Until the end that counts, and for ``beyond`` after it. From B on, all that its microbatch
        still holds counts as waiting, but for the time of W, which the area has.
        """
        row = WeightedSum({total: 1})
        for groups, most in self._stages(count, level):
            number = count.of(groups, [count.after], "B", "BW")
            found = self.waiting.while_emptying(groups[0].stage, most)
            row[self._waits(level.step, most, number, found, "B", "BW")] = -1
            for group in groups:
                of_weight = level.of_weight(count.data[group]) * group.data.W
                row += count.of([group], [count.after], "B") * of_weight
            row -= number * (level.step * beyond)
        self.programme.at_least(row, 0)

    def of_weights(self, row: WeightedSum, count: Count, rest: int) -> None:
        """Add what weight gradients wait whose B ran before the last forward had ended.

        From the end of B to that of the last forward, and for ``rest`` but their own time.
        """
        held = {g: x.held_after_B for g, x in count.data.items() if x.held_after_B and x.may_split}
        if not held:
            return
        together = WeightedSum()
        for group, w in held.items():
            late = count.of([group], [count.after, count.pending], "W")
            late -= count.of([group], [count.after], "B")
            row += late * (w * max(0, rest - group.data.W))
            together += late
        apart = min(
            time
            for item, time in count.home.items.items()
            if any(kind == "B" and group in held for group, kind in item)
        )
        least = min(held.values())
        two, most = least * apart, self._slack(count) // least
        longest = two * max(1, most) ** 2
        row += {self.programme.of_two(two, together, tangent_points(most), longest): 1}

    def _waits(
        self, step: int, most: int, number: WeightedSum, found: LeastWaits, *kinds: Kind
    ) -> int:
        """Return a variable: what so many microbatches of a stage wait, times ``step``."""
        waits = self.programme.variable(0, 2 * step * most * self.longest)
        longer = WeightedSum()
        for (group, kind), row in self._alone.items():
            if group.stage in found.on_way and kind in kinds:
                data = self.waiting.problem.stages[group.stage]
                least = data.F if kind == "F" else data.shortest_backward
                longer += row * (getattr(group.data, kind) - least)
        for slope, constant in found.tangents(tangent_points(most)):
            line = (longer - number * slope) * step + {waits: 1}
            self.programme.at_least(line, step * constant)
        return waits

    def _slack(self, count: Count) -> int:
        return count.problem.devices[count.home.device].slack or 0

    def _stages(self, count: Count, level: HeldPart) -> Iterator[tuple[list[RunGroup], int]]:
        """Those of a level by stage, and how many of each there is memory for."""
        for groups in level.by_stage():
            number = self.waiting.problem.microbatches[groups[0].stage]
            most = min(number, self._slack(count) // level.high)
            if most:
                yield groups, most

    @cached_property
    def _alone(self) -> Mapping[tuple[RunGroup, Kind], WeightedSum]:
        """Per group and kind, how many of its ops run alone."""
        return by_op(self.counts, lambda _, item: len(item) == 1)
