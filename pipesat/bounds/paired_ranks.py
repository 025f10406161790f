"""When the k-th backward of a device can start, and what must follow its k-th last forward.

Microbatches come to a device one after another, at the pace of the slowest device on their way. So
its first backwards are spread, and so are its last forwards, seen from the end: it can make no
more pairs meanwhile. docs/proofs/bounds.md has the argument ("Ranks").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

from pipesat.bounds.ways import Line, line_of, passages, places_of
from pipesat.core.ops import PHASE_OF
from pipesat.core.problem import Problem
from pipesat.core.rules import pair_time_of_kinds


@dataclass(frozen=True)
class Ranks:
    """Least times of the first backwards and the last forwards of devices, by rank.

    ``least`` is the problem with the least times that ops can last, ``first_backward`` every
    device's earliest start of a backward, and ``after_last_forward`` the least time to the end
    after its last forward. All times count from the route's first F on, to the end that counts.
    """

    problem: Problem
    least: Problem
    first_backward: Sequence[int]
    after_last_forward: Sequence[int]

    @cached_property
    def apply(self) -> bool:
        """Whether the argument holds: one route, no two ops of a phase in a pair, all take time."""
        if len(self.problem.routes) != 1:
            return False
        timed = all(
            (s.F and (not s.may_split or (s.B and s.W)) and (not s.may_fuse or s.BW))
            for s in self.least.stages
        )
        return timed and not any(map(self._pairs_two, self.problem.stages_on))

    def _pairs_two(self, stages: Sequence[int]) -> bool:
        kinds = [(s, kind) for s in stages for kind in PHASE_OF]
        return any(
            pair_time_of_kinds(self.problem, one, other) is not None
            for one, other in combinations_with_replacement(kinds, 2)
            if (one[1] == "F") == (other[1] == "F") and "W" not in (one[1], other[1])
        )

    def backwards(self, device: int, most: int, *, own: bool = False) -> list[int]:
        """Earliest starts of a device's 1st, 2nd, ... backward, from the origin.

        ``own``: as far as they are later, too, if the device's first op is, as its own window asks.
        """
        since = self._own[device][0] if own else 0
        starts = sorted(
            self._backward(self._place[stage], k, since)
            for stage in self.problem.stages_on[device]
            for k in range(1, min(most, self._microbatches) + 1)
        )[:most]
        return [max(start, self.first_backward[device]) for start in starts]

    def forwards(self, device: int, most: int) -> list[int]:
        """Least times from the end of a device's last, 2nd last, ... forward to the end."""
        ends = sorted(
            self._forward(self._place[stage], k)
            for stage in self.problem.stages_on[device]
            for k in range(1, min(most, self._microbatches) + 1)
        )[:most]
        return [max(end, self.after_last_forward[device]) for end in ends]

    def _backward(self, place: int, k: int, since: int) -> int:
        """Earliest start of a stage's k-th backward: k microbatches have passed all others.

        ``since``: the first place that is looked at.
        """
        found = [self._begin_backward(place)]
        for device, places in self._passages:
            low, top = places[0], places[-1]
            if low < since:
                continue
            end = self._out[low] + k * sum(self._f[x] for x in places)
            if (over := self._over(device, k * len(places))) > 0:
                freed = self.first_backward[device] + over * self._shortest(device, self._b)
                end = max(end, freed + min(self._f[x] for x in self._own[device]))
            found.append(end + self._begin_backward(place) - self._out[top] - self._f[top])
            if low > place:
                work = k * sum(self._b[x] for x in places)
                back = self._in[low] - self._in[place] - self._b[low]
                found.append(self._begin_backward(top) + work + back)
        return max(found)

    def _forward(self, place: int, k: int) -> int:
        """Least time to the end after a stage's k-th last forward: k microbatches go on."""
        ended = self._out[place] + self._f[place]
        found = [self._begin_backward(0) + self._home(0) - ended]
        for device, places in self._passages:
            low, top = places[0], places[-1]
            work = k * sum(self._b[x] for x in places)
            rest = work + self._home(low) - self._b[low]
            if (over := self._over(device, k * len(places))) > 0:
                taken = over * self._shortest(device, self._f)
                least = self._shortest(device, self._b)
                rest = max(rest, least + taken + self.after_last_forward[device])
            found.append(self._begin_backward(top) - ended + rest)
            if low > place:
                work = k * sum(self._f[x] for x in places)
                after = self._begin_backward(0) + self._home(0) - self._out[top] - self._f[top]
                found.append(self._out[low] - ended + work + after)
        return max(found)

    @cached_property
    def _route(self) -> Sequence[int]:
        return self.problem.routes[0].stages

    @cached_property
    def _microbatches(self) -> int:
        return self.problem.routes[0].microbatches

    @cached_property
    def _place(self) -> dict[int, int]:
        return {stage: place for place, stage in enumerate(self._route)}

    @cached_property
    def _own(self) -> dict[int, list[int]]:
        return places_of(self.problem, self._route)

    @cached_property
    def _passages(self) -> list[tuple[int, list[int]]]:
        return list(passages(self.problem, self._route))

    @cached_property
    def _line(self) -> Line:
        return line_of(self.least, 0)

    @property
    def _f(self) -> Sequence[int]:
        return self._line.forward

    @property
    def _b(self) -> Sequence[int]:
        return self._line.backward

    @property
    def _out(self) -> Sequence[int]:
        return self._line.out

    @cached_property
    def _in(self) -> list[int]:
        """From the start of every place's backward to that of the first place's."""
        line = self._line
        return [line.home[x] + own - line.backward[0] for x, own in enumerate(line.backward)]

    def _begin_backward(self, place: int) -> int:
        """Earliest start of a place's backward of one microbatch that enters at the origin."""
        return self._out[-1] + self._in[-1] - self._in[place]

    def _home(self, place: int) -> int:
        """From the start of a place's backward until all work on the first stage has ended."""
        return self._in[place] + self.least.stages[self._route[0]].least_backward_work

    def _over(self, device: int, forwards: int) -> int:
        """How many of some forwards a device's room does not admit at once."""
        room = self.problem.devices[device].room
        least = min(self.problem.stages[self._route[x]].held_after_F for x in self._own[device])
        return 0 if room is None or least <= 0 else forwards - room // least

    def _shortest(self, device: int, times: Sequence[int]) -> int:
        return min(times[x] for x in self._own[device])
