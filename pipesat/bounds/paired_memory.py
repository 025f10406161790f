"""All devices of a problem with pairs at once: who saves time by pairs holds memory for longer.

A pair is shorter than its members in turn, but longer than one of them, and for as long as it runs
both microbatches wait. So pairs save a device's time, and lengthen the stay of what every device
before it on the route holds. One programme has the counts of all devices
(:mod:`pipesat.bounds.paired_device`), and for each a row: the memory times time that these counts
take. docs/proofs/bounds.md has the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import NamedTuple, TypeAlias

from pipesat.bounds.counting import Programme, WeightedSum, tangent_points
from pipesat.bounds.devices import area_over_room
from pipesat.bounds.feasibility import certain_activations
from pipesat.bounds.memory_counts import in_whole_microbatches
from pipesat.bounds.paired_device import Count, PairedDevice, Phase, Ways, by_op
from pipesat.bounds.paired_waiting import Course, Waiting, WaitingRows
from pipesat.problem.ops import Kind
from pipesat.problem.problem import Problem, Stage
from pipesat.problem.rules import link_delay

Times: TypeAlias = Mapping[tuple[int, Kind], WeightedSum]
"""Per stage and kind, the time of all items that its ops run in."""
_Corner: TypeAlias = tuple[WeightedSum, int]
"""A row and a constant, whose sum is memory times time."""
_Job: TypeAlias = tuple[int, int]
"""What an op frees, and how long it runs."""


class Around(NamedTuple):
    """A device with what lies around it; ``before`` is the earliest start of its first op."""

    device: int
    ways: Ways
    before: int


class Joint(NamedTuple):
    """The programme of all devices, with an end that some schedule reaches, if there is any."""

    programme: Programme
    counts: Mapping[int, Count]
    times: Times
    longest: int


@dataclass(frozen=True)
class AreaRow:
    """The row of one device: all that it holds fits between its first op and its last.

    ``problem`` has its memory. ``course``: where waiting on the way counts as well.
    """

    joint: Joint
    problem: Problem
    around: Around
    course: Course | None

    def add(self, end: int) -> None:
        """Add it; ``end`` is the variable of the end that counts."""
        around, room = self.around, self.room
        if not room:
            return
        area, taken = self._area
        corners: list[_Corner] = [(WeightedSum(), 0)]
        if is_tight(self.problem, around.device):
            full, constant = self._until_backward()
            area += full
            taken += constant
            corners = self._after_forward()
        for row, constant in corners:
            window = around.before - around.ways.beyond
            self.joint.programme.at_least(
                WeightedSum({end: room}) - area - row, taken + constant + room * window
            )

    @property
    def room(self) -> int:
        """The device's memory; 0 if that is unlimited."""
        return self.problem.devices[self.around.device].room or 0

    @cached_property
    def counts(self) -> Mapping[int, Count]:
        """All devices' counts, which weigh what is held as ``problem`` does."""
        return {d: count.weighed_by(self.problem) for d, count in self.joint.counts.items()}

    @cached_property
    def _waits(self) -> WaitingRows | None:
        if self.course is None:
            return None
        waiting = Waiting(self.problem, self.course)
        return WaitingRows(self.joint.programme, waiting, self.counts, self.joint.longest)

    @property
    def _count(self) -> Count:
        return self.counts[self.around.device]

    @cached_property
    def _holding(self) -> dict[int, Stage]:
        """Those of the device's stages that hold anything."""
        stages = {s: self.problem.stages[s] for s in self.problem.stages_on[self.around.device]}
        return {s: data for s, data in stages.items() if data.held_after_F or data.held_after_B}

    def _ops(self, phase: Phase, *kinds: Kind) -> WeightedSum:
        """The number of their ops of some kinds in a phase, as a row."""
        return sum((self._count.of(stage, phase, *kinds) for stage in self._holding), WeightedSum())

    @property
    def _area(self) -> tuple[WeightedSum, int]:
        """Least memory times time that all microbatches of a device's stages take."""
        problem, row, constant = self.problem, WeightedSum(), 0
        times = self.joint.times
        for stage in problem.stages_on[self.around.device]:
            held = certain_activations(problem)[stage]
            data = problem.stages[stage]
            route = problem.routes[problem.route_of[stage]]
            onward = route.stages[route.stages.index(stage) :]
            constant += held * route.microbatches * delays_between(problem, onward)
            for other in onward:
                for kind in ("F", "B", "BW"):
                    row += times[other, kind] * held
            row += times[stage, "B"] * max(0, data.held_after_B - held)
            row += times[stage, "W"] * data.held_after_B
        return row, constant

    def _until_backward(self) -> _Corner:
        """What nobody can use until the first backward: forwards come one after the other."""
        around, count = self.around, self._count
        row = count.taken(count.before) * -around.ways.until_backward
        if frozenset({"F"}) not in kinds_of_pairs(count.home):
            jobs = [[[(data.held_after_F, data.F)]] for data in self._holding.values()]
            waiting = self._wait(self._ops(count.before, "F"), jobs)
            if self._waits is not None:
                self._waits.while_filling(waiting, around.device)
            row += {waiting: 1}
        return row, self.room * around.ways.until_backward

    def _after_forward(self) -> list[_Corner]:
        """What nobody can use after the last forward, in two ways, each of which holds.

        Microbatches are freed one after the other; and once the last backward has run, what is not
        pending is free.
        """
        count, around, stages = self._count, self.around, self._holding.values()
        ways = around.ways
        if any(max(s.held_after_B, s.held_in_backward) > s.held_after_F for s in stages):
            return [(WeightedSum(), 0)]
        home = ways.after_backward + ways.beyond
        rest = ways.after_forward + home
        one_by_one = all("F" in kinds for kinds in kinds_of_pairs(count.home))
        corners: list[_Corner] = []
        for until_home in (False, True):
            row = count.held_after() * -rest
            if until_home:
                row += count.freed(count.after) * home
            if one_by_one:
                jobs = [_ways_to_free(data, until_home) for data in stages]
                waiting = self._wait(self._ops(count.after, "B", "BW"), jobs)
                if self._waits is not None and not until_home:
                    self._waits.while_emptying(waiting, around.device, ways.beyond)
                    self._waits.of_weights(row, around.device, rest)
                row += {waiting: 1}
            corners.append((row, self.room * rest))
        return corners

    def _wait(self, number: WeightedSum, jobs: Sequence[Sequence[Sequence[_Job]]]) -> int:
        """Return a variable: what waits for others, of n n (n - 1) / 2 times what two of them wait.

        ``jobs``: per stage, per way that its ops may run, what each of these frees, and its time.
        """
        least = min(
            sum(min(a * t, b * s) for (a, s), (b, t) in product(one, other))
            for two in combinations_with_replacement(jobs, 2)
            for one, other in product(*two)
        )
        smallest = min(sum(freed for freed, _ in way) for ways in jobs for way in ways)
        most = self.room // smallest if smallest else 0
        points = tangent_points(most) if least and most else ()
        longest = (2 * self.room + least * most) * self.joint.longest
        return self.joint.programme.of_two(least, number, points, longest)


def is_tight(problem: Problem, device: int) -> bool:
    """Whether some forward of a device surely starts after a backward has."""
    room, stages = problem.devices[device].room, problem.stages_on[device]
    held = sum(problem.stages[s].held_after_F * problem.microbatches[s] for s in stages)
    data = [problem.stages[s] for s in stages]
    takes_time = all(min(s.F, s.B, s.W, s.BW) > 0 for s in data)
    return room is not None and held > room and takes_time


def delays_between(problem: Problem, stages: Sequence[int]) -> int:
    """Delays between these stages of a route, there and back."""
    return sum(
        link_delay(problem, stage, "F") + link_delay(problem, stage, "B") for stage in stages[:-1]
    )


def _ways_to_free(data: Stage, until_home: bool) -> list[list[_Job]]:
    """What a microbatch's ops free, and their times; ``until_home``: W perhaps comes later."""
    ways: list[list[_Job]] = []
    if data.may_split:
        backward = (data.held_after_F - data.held_after_B, data.B)
        ways.append([backward, (data.held_after_B, data.W)])
        if until_home:
            ways.append([backward])
    if data.may_fuse:
        ways.append([(data.held_after_F, data.BW)])
    return ways


def kinds_of_pairs(home: PairedDevice) -> set[frozenset[Kind]]:
    """Return the kinds of two ops that may run as one on a device."""
    return {frozenset(kind for _, kind in item) for item in home.items if len(item) == 2}


_MOST_VARIABLES = 700
_SHARE_THAT_COUNTS = 0.9  # of what the rooms ask for; limits of less add time, not strength


def least_end_in_memory(
    problem: Problem, devices: Sequence[Around], course: Course | None = None
) -> int:
    """Least end that counts, for all devices together; 0 if nothing is known, or all is too large.

    Devices of unlimited memory take part with their load alone. ``course`` is given where all
    devices have one origin and one end.
    """
    joint = _Together(problem, devices, course)
    if not joint.is_worth_it:
        return 0
    least = joint.programme.relaxed_cost()
    return least if least <= joint.longest else 0


@dataclass
class _Together:
    problem: Problem
    devices: Sequence[Around]
    course: Course | None
    programme: Programme = field(default_factory=Programme)

    @cached_property
    def homes(self) -> list[PairedDevice]:
        return [PairedDevice(self.problem, around.device, alike=False) for around in self.devices]

    @cached_property
    def is_worth_it(self) -> bool:
        """Whether some device cannot hold all at once, and the programme is of a size to solve."""
        if not any(is_tight(self.problem, around.device) for around in self.devices):
            return False
        if sum(2 * len(home.items) for home in self.homes) > _MOST_VARIABLES:
            return False
        self._build()
        return len(self.programme.costs) <= _MOST_VARIABLES

    @cached_property
    def longest(self) -> int:
        """An end that some schedule reaches, if there is any."""
        alone = sum(home.one_after_the_other for home in self.homes)
        delays = sum(
            route.microbatches * delays_between(self.problem, route.stages)
            for route in self.problem.routes
        )
        return alone + delays

    def _build(self) -> None:
        end = self.programme.variable(1, self.longest)
        counts = {}
        for around, home in zip(self.devices, self.homes, strict=True):
            ways, first = around.ways, len(self.programme.costs)
            if not is_tight(self.problem, around.device):  # all its forwards may come first
                ways = ways._replace(after_forward=0, own=ways.after_backward)
            counts[around.device] = Count(home, ways, apart=True, programme=self.programme)
            row = {end: 1}
            for variable in range(first, len(self.programme.costs)):
                row[variable] = -self.programme.costs[variable]
                self.programme.costs[variable] = 0
            self.programme.at_least(row, around.before + sum(ways[:3]))
        times = by_op(counts, lambda count, item: count.home.items[item])
        joint = Joint(self.programme, counts, times, self.longest)
        kinds = set[frozenset[Kind]]().union(*map(kinds_of_pairs, self.homes))
        one_forward = all("F" in pair and len(pair) == 2 for pair in kinds)
        course = self.course if one_forward else None
        most = max(area_over_room(self.problem, around.device) for around in self.devices)
        for around in self.devices:
            AreaRow(joint, self.problem, around, course).add(end)
            for counted in in_whole_microbatches(self.problem, around.device):
                if area_over_room(counted, around.device) < _SHARE_THAT_COUNTS * most:
                    continue
                counts[around.device].weighed_by(counted).fit_into_memory()
                AreaRow(joint, counted, around, course).add(end)
