"""What one device must do, whatever the modes: ways of its microbatches, idle times, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from pipesat.bounds.ways import time_from_backward, time_until_forward
from pipesat.core.problem import Problem
from pipesat.core.rules import round_trip


class Way(NamedTuple):
    """How one (stage, microbatch) may run: times, what it holds, and memory times time at least.

    ``group`` numbers its stage and class; ``rest`` is held between F and backward at least,
    ``most`` at any time at most, which it does while its backward runs.
    """

    group: int
    stage: int
    mode: int
    forward: int
    backward: int
    weight: int
    held: int
    rest: int
    after: int
    most: int
    area: int
    out: int
    back: int

    @property
    def work(self) -> int:
        """Compute time."""
        return self.forward + self.backward + self.weight

    @property
    def last(self) -> int:
        """What it holds while its backward runs as the last one, but for the W that follows.

        A backward that takes no time holds nothing: then what is held just after it is all.
        """
        return self.most - self.after if self.backward else 0


@dataclass(frozen=True)
class Counts:
    """The programme of one device; times from the origin (``absolute``) or from its first op."""

    problem: Problem
    least: Problem
    device: int
    absolute: bool

    @cached_property
    def groups(self) -> list[tuple[int, int, int]]:
        """(stage, class, how many microbatches) of the device."""
        found: list[tuple[int, int, int]] = []
        for stage in self.problem.stages_on[self.device]:
            route = self.problem.routes[self.problem.route_of[stage]]
            counted = Counter(route.classes) if route.classes else Counter({0: route.microbatches})
            found += [(stage, kind, count) for kind, count in sorted(counted.items())]
        return found

    @cached_property
    def ways(self) -> list[Way]:
        """All ways of the device's microbatches."""
        found: list[Way] = []
        for group, (stage, kind, _) in enumerate(self.groups):
            for mode in self.problem.modes_of(stage):
                found += self._ways_in(group, stage, mode, kind)
        return found

    def _ways_in(self, group: int, stage: int, mode: int, kind: int) -> Iterator[Way]:
        s = self.problem.resulting(stage, mode, kind)
        a, w, x, stay = s.held_after_F, s.held_after_B, s.held_in_backward, self._stay(stage)
        rest, out, back = a, 0, 0
        area = a * (s.F + stay)
        if s.offload is not None:
            rest, out, back = s.offload.held, s.offload.time_out, s.offload.time_in
            area = a * (s.F + out + back) + rest * max(0, stay - out - back)
        both = (group, stage, mode, s.F)
        if s.may_split:
            most = max(a, w, x)
            own = area + most * s.B + w * s.W
            yield Way(*both, s.B, s.W, a, rest, w, most, own, out, back)
        if s.may_fuse:
            most = max(a, x)
            yield Way(*both, s.BW, 0, a, rest, 0, most, area + most * s.BW, out, back)

    def _stay(self, stage: int) -> int:
        """Least time from the end of F to the start of the backward."""
        return round_trip(self.least, stage)

    @cached_property
    def start(self) -> int:
        """Earliest start of anything on the device."""
        lows = (chunks[0] for chunks in self.problem.chunks_on[self.device].values())
        return min(map(self._begin, lows))

    def _begin(self, stage: int) -> int:
        return time_until_forward(self.least, stage) if self.absolute else 0

    @cached_property
    def first_backward(self) -> int:
        """Earliest start of a backward on the device."""
        options = []
        for chunks in self.problem.chunks_on[self.device].values():
            low, top = chunks[0], chunks[-1]
            way = time_until_forward(self.least, top) - time_until_forward(self.least, low)
            way += self.least.stages[top].F + self._stay(top)
            options.append(self._begin(low) + way)
        return min(options)

    @cached_property
    def tail(self) -> int:
        """Least time from the end of the last F to the end of the device's last op."""
        options = []
        for chunks in self.problem.chunks_on[self.device].values():
            low, top = chunks[0], chunks[-1]
            home = time_from_backward(self.least, top, None if self.absolute else low)
            options.append(self._stay(top) + max(home, time_from_backward(self.least, top, low)))
        return min(options)

    @cached_property
    def end(self) -> int:
        """Least time from the end of the last backward to that of the route's first stage."""
        if not self.absolute:
            return 0
        options = []
        for chunks in self.problem.chunks_on[self.device].values():
            low = chunks[0]
            if self.problem.previous[low] is None:
                return 0
            home = time_from_backward(self.least, low, None)
            options.append(home - self.least.stages[low].shortest_backward)
        return min(options)

    @property
    def room(self) -> int | None:
        """Memory for activations."""
        return self.problem.devices[self.device].room

    @cached_property
    def takes_time(self) -> bool:
        """Whether every F takes time, so that what it takes is surely held."""
        return all(way.forward for way in self.ways)

    @property
    def lasts(self) -> list[int]:
        """What the last backward may hold beside the W's pending after it."""
        return sorted({way.last for way in self.ways})

    @cached_property
    def all_may_wait(self) -> bool:
        """Whether all F's might run before the first backward."""
        if self.room is None or not self.takes_time:
            return True
        rests = [
            min(way.rest for way in self.ways if way.group == group) * count
            for group, (_, _, count) in enumerate(self.groups)
        ]
        return sum(rests) <= self.room

    @cached_property
    def unused(self) -> int:
        """Memory times time that nobody can use: while the device fills, and while it empties.

        With j F's begun, at most j times the most that one holds is in use, until the next begins.
        At a time t before the last op's end, what is held must still be worked off in t and what
        is left of one op.
        """
        room, ways = self.room, self.ways
        if not room:
            return 0
        most = max(way.most for way in ways)
        shortest = min(way.forward for way in ways)
        count = sum(count for *_, count in self.groups)
        steps = min(count, (room - 1) // most) if most else 0
        filling = sum(room - j * most for j in range(1, steps + 1)) * shortest
        emptying, length = self._emptying(room)
        load = sum(
            count * min(way.work for way in ways if way.group == group)
            for group, (*_, count) in enumerate(self.groups)
        )
        if steps * shortest + length <= load:
            return filling + emptying
        return max(filling if steps * shortest <= load else 0, emptying if length <= load else 0)

    def _emptying(self, room: int) -> tuple[int, int]:
        """Memory times time unused while the device empties, and how long that takes at most."""
        rates = [(way.most, way.backward + way.weight) for way in self.ways]
        rates += [(way.after, way.weight) for way in self.ways if way.after]
        if any(held and not time for held, time in rates):
            return 0, 0
        held, time = max(
            ((held, time) for held, time in rates if held),
            key=lambda rate: Fraction(*rate),
            default=(0, 1),
        )
        if not held:
            return 0, 0
        longest = max(max(way.backward, way.weight) for way in self.ways)
        # (t + longest) * held / time is less than room until this t
        length = room * time // held - longest
        if length <= 0:
            return 0, 0
        # the integral of room - (t + longest) * held / time over t from 0 to length, rounded down
        twice = 2 * room * length * time - held * length * (length + 2 * longest)
        return max(0, twice // (2 * time)), length
