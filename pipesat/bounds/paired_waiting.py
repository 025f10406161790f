"""How long microbatches wait while a pipeline with pairs fills and empties.

The first forwards of a route and its last backwards run alone, and a device runs them one after the
other: the k-th microbatch is through a device with two stages after k times the work of both. A
device before it gains nothing by taking microbatches in sooner: it holds them while they wait on
their way. docs/proofs/bounds.md has the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pipesat.bounds.ways import Line, line_of, passages
from pipesat.core.ops import Kind
from pipesat.core.problem import Problem


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
class Waits:
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

    def while_filling(self, stage: int, most: int) -> Waits:
        """Least time until a stage's F, and waiting on the way after it.

        From the earliest start of the stage's device, for microbatches whose F of the stage comes
        before the device's first backward, ``most`` of them. Some other F on the way is in a pair,
        which starts no sooner than its device's first backward; or all run alone, and a device
        passes one microbatch after another.
        """
        line, first = self._place(stage)
        here = self.problem.stages_on[self.problem.stages[stage].device]
        start = min(self.course.begin[s] for s in here)
        entry = min(place for place, s in enumerate(line.stages) if s in here)
        found = []
        for _, places in passages(self.problem, line.stages, entry):
            low, top = places[0], places[-1]
            rate = sum(line.forward[x] for x in places)
            way = line.out[first] - line.out[top] - line.forward[top]
            wait = self.course.begin[line.stages[low]] + way + rate - start
            starts = [
                self.course.first_backward[self._device(line, x)]
                + line.out[first]
                - line.out[x]
                - (line.forward[x] if x < first else 0)
                - start
                for x in _others(first, low, top)
            ]
            found.append(
                Waits(_by_rank(most, self.course.begin[stage] - start, wait, rate, starts))
            )
        return _longest(found)

    def while_emptying(self, stage: int, most: int) -> Waits:
        """Least waiting on the way before a stage's backward, and time from its end to the end.

        For microbatches whose backward comes after the device's last forward, ``most`` of them.
        Some other backward on the way is in a pair, which ends no later than its device's last
        forward; or all run alone.
        """
        line, first = self._place(stage)
        found = []
        for _, places in passages(self.problem, line.stages):
            low, top = places[0], places[-1]
            rate = sum(line.backward[x] for x in places)
            way = line.home[first] - line.home[top] - line.backward[top]
            wait = self.course.home[line.stages[low]] + way + rate
            ends = [
                self.course.after_last_forward[self._device(line, y)]
                + line.home[first]
                - line.home[y]
                - (line.backward[y] if y < first else 0)
                for y in _others(first, low, top)
            ]
            ranks = _by_rank(most, self.course.home[stage], wait, rate, ends)
            found.append(Waits(ranks, tuple(self._longer(line.stages[first : top + 1]))))
        return _longest(found)

    @cached_property
    def _lines(self) -> list[Line]:
        return [line_of(self.problem, route) for route in range(len(self.problem.routes))]

    def _place(self, stage: int) -> tuple[Line, int]:
        line = self._lines[self.problem.route_of[stage]]
        return line, self.problem.place_of[stage]

    def _device(self, line: Line, place: int) -> int:
        return self.problem.stages[line.stages[place]].device

    def _longer(self, stages: Sequence[int]) -> Iterator[tuple[int, Kind, int]]:
        """Yield how much longer than the shortest every other backward takes."""
        for stage in stages:
            data = self.problem.stages[stage]
            if data.may_split and data.may_fuse and data.B != data.BW:
                kind: Kind = "B" if data.B > data.BW else "BW"
                yield stage, kind, abs(data.B - data.BW)


def _others(first: int, low: int, top: int) -> list[int]:
    """Places of a passage, and from there to a stage's own, which is left out."""
    return [x for x in range(min(first, low), max(first, top) + 1) if x != first]


def _by_rank(most: int, base: int, wait: int, rate: int, paired: Sequence[int]) -> tuple[int, ...]:
    """Waits by rank: ``base`` at least; one more microbatch before one's own adds ``rate``."""
    limit = max(base, min(paired)) if paired else max(base, wait + most * rate)
    return tuple(min(limit, max(base, wait + k * rate)) for k in range(most))


def _longest(found: Sequence[Waits]) -> Waits:
    """Those that are longest in all; each holds."""
    return max(found, key=lambda waits: sum(waits.by_rank))
