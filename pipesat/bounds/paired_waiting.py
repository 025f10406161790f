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
from pipesat.bounds.feasibility import certain_activations
from pipesat.bounds.paired_device import Count, by_op
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

    Less, if backwards take longer than counted: per stage and kind, ``longer`` says by how much.
    """

    by_rank: tuple[int, ...]
    longer: tuple[tuple[int, Kind, int], ...] = ()

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
        found = self._by_rank(stage, most, way, entry, start)
        return _longest(LeastWaits(ranks) for _, ranks in found)

    def while_emptying(self, stage: int, most: int) -> LeastWaits:
        """Least waiting on the way before a stage's backward, and time from its end to the end.

        For microbatches whose backward comes after the device's last forward, ``most`` of them.
        Some other backward on the way is in a pair, which ends no later than its device's last
        forward; or all run alone.
        """
        line, first = self._place(stage)
        way = (line.backward, line.home, self.course.home, self.course.after_last_forward)
        found = self._by_rank(stage, most, way)
        return _longest(
            LeastWaits(ranks, tuple(self._longer(line.stages[first : top + 1])))
            for top, ranks in found
        )

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

    @cached_property
    def _lines(self) -> list[Line]:
        return [line_of(self.problem, route) for route in range(len(self.problem.routes))]

    def _place(self, stage: int) -> tuple[Line, int]:
        line = self._lines[self.problem.route_of[stage]]
        return line, self.problem.place_of[stage]

    def _longer(self, stages: Sequence[int]) -> Iterator[tuple[int, Kind, int]]:
        """Yield how much longer than the shortest every other backward takes."""
        for stage in stages:
            data = self.problem.stages[stage]
            if data.may_split and data.may_fuse and data.B != data.BW:
                kind: Kind = "B" if data.B > data.BW else "BW"
                yield stage, kind, abs(data.B - data.BW)


def _longest(found: Iterable[LeastWaits]) -> LeastWaits:
    """Those that are longest in all; each holds."""
    return max(found, key=lambda waits: sum(waits.by_rank))


@dataclass(frozen=True)
class WaitingRows:
    """``counts``: per device, its items by phase. ``longest``: an end that some schedule reaches.

    All waits are memory times time.
    """

    programme: Programme
    waiting: Waiting
    counts: Mapping[int, Count]
    longest: int

    def while_filling(self, total: int, device: int) -> None:
        """Let a variable be at least what waits around the forwards before the first backward."""
        row, count = WeightedSum({total: 1}), self.counts[device]
        for stage, most in self._stages(device):
            found = self.waiting.while_filling(stage, most)
            row[self._waits(stage, most, count.of(stage, count.before, "F"), found)] = -1
        self.programme.at_least(row, 0)

    def while_emptying(self, total: int, device: int, beyond: int) -> None:
        """Let a variable be at least what waits around the backwards after the last forward.

        Until the end that counts, and for ``beyond`` after it. From B on, all that its microbatch
        still holds counts as waiting, but for the time of W, which the area has.
        """
        row, count = WeightedSum({total: 1}), self.counts[device]
        for stage, most in self._stages(device):
            data, number = self.problem.stages[stage], count.of(stage, count.after, "B", "BW")
            found = self.waiting.while_emptying(stage, most)
            row[self._waits(stage, most, number, found)] = -1
            row += count.of(stage, count.after, "B") * (data.held_after_B * data.W)
            row -= number * (self._held[stage] * beyond)
        self.programme.at_least(row, 0)

    def of_weights(self, row: WeightedSum, device: int, rest: int) -> None:
        """Add what weight gradients wait whose B ran before the last forward had ended.

        From the end of B to that of the last forward, and for ``rest`` but their own time.
        """
        count, room = self.counts[device], self.problem.devices[device].room or 0
        held = {s: self.problem.stages[s].held_after_B for s, _ in self._stages(device)}
        stages = [s for s, w in held.items() if w and self.problem.stages[s].may_split]
        if not stages:
            return
        together = WeightedSum()
        for stage in stages:
            late = count.of(stage, count.after, "W") + count.of(stage, count.pending, "W")
            late -= count.of(stage, count.after, "B")
            row += late * (held[stage] * max(0, rest - self.problem.stages[stage].W))
            together += late
        apart = min(
            time
            for item, time in count.home.items.items()
            if any(kind == "B" and group.stage in stages for group, kind in item)
        )
        two, most = min(held[s] for s in stages) * apart, room // min(held[s] for s in stages)
        longest = two * max(1, most) ** 2
        row += {self.programme.of_two(two, together, tangent_points(most), longest): 1}

    def _waits(self, stage: int, most: int, number: WeightedSum, found: LeastWaits) -> int:
        """Return a variable: what so many microbatches of a stage wait."""
        held = self._held[stage]
        waits = self.programme.variable(0, 2 * held * most * self.longest)
        for slope, constant in found.tangents(tangent_points(most)):
            line = WeightedSum({waits: 1}) - number * (held * slope)
            for other, kind, longer in found.longer:
                line += self._alone[other, kind] * (held * longer)
            self.programme.at_least(line, held * constant)
        return waits

    @property
    def problem(self) -> Problem:
        """What is bounded."""
        return self.waiting.problem

    def _stages(self, device: int) -> list[tuple[int, int]]:
        """A device's stages, and how many microbatches of each it can hold."""
        room, found = self.problem.devices[device].room or 0, []
        for stage in self.problem.stages_on[device]:
            held = self._held[stage]
            most = min(self.problem.microbatches[stage], room // held) if held else 0
            if most:
                found.append((stage, most))
        return found

    @cached_property
    def _held(self) -> list[int]:
        return certain_activations(self.problem)

    @cached_property
    def _alone(self) -> Mapping[tuple[int, Kind], WeightedSum]:
        """Per stage and kind, how many of its ops run alone."""
        return by_op(self.counts, lambda _, item: len(item) == 1)
