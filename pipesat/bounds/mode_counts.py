"""What one device must do, whatever the modes: ways of its microbatches, idle times, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from pipesat.bounds.device_terms import DeviceTerms
from pipesat.bounds.devices import groups_on, terms_of
from pipesat.bounds.work_in_memory import in_use
from pipesat.core.problem import Problem


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
    def ways(self) -> list[Way]:
        """All ways of the device's microbatches."""
        return [
            way
            for group, (stage, kind, _) in enumerate(self.groups)
            for mode in self.problem.modes_of(stage)
            for way in self._ways_in(group, stage, mode, kind)
        ]

    def _ways_in(self, group: int, stage: int, mode: int, kind: int) -> Iterator[Way]:
        s, stay = self.problem.resulting(stage, mode, kind), self.terms.work[group].stay
        a, w, x = s.held_after_F, s.held_after_B, s.held_in_backward
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
    def room(self) -> int | None:
        """Memory for activations, as far as whatever is held can fill it."""
        held = (held for way in self.ways for held in (way.held, way.rest, way.after, way.most))
        found: int | None = in_use(self.terms.memory, held)
        return found

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
