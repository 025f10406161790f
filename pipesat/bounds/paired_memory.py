"""All devices of a problem with pairs at once: who saves time by pairs holds memory for longer.

A pair is shorter than its members in turn, but longer than one of them, and for as long as it runs
both microbatches wait. So pairs save a device's time, and lengthen the stay of what every device
before it on the route holds. One programme has the counts of all devices
(:mod:`pipesat.bounds.paired_device`), and for each the memory times time that these counts take.
docs/bounds.md has the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import TypeAlias

from pipesat.bounds.counting import Programme, add_to, tangent_points
from pipesat.bounds.feasibility import certain_holdings
from pipesat.bounds.paired_device import Count, PairedDevice, Ways
from pipesat.bounds.paired_waiting import Course, Waiting
from pipesat.bounds.paired_waiting_rows import WaitingRows
from pipesat.core.ops import Kind
from pipesat.core.problem import Problem, Stage
from pipesat.core.rules import link_delay

_MOST_VARIABLES = 700

_Row: TypeAlias = dict[int, int]
_Corner: TypeAlias = tuple[_Row, int]
"""A row and a constant, whose sum is memory times time."""
_Job: TypeAlias = tuple[int, int]
"""What an op frees, and how long it runs."""


@dataclass(frozen=True)
class Around:
    """A device with what lies around it; ``before`` is the earliest start of its first op."""

    device: int
    ways: Ways
    before: int


def least_end_in_memory(
    problem: Problem, devices: Sequence[Around], course: Course | None = None
) -> int:
    """Least end that counts, for all devices together; 0 if nothing is known, or all is too large.

    Devices of unlimited memory take part with their load alone. ``course`` is given where all
    devices have one origin and one end.
    """
    joint = _Joint(problem, devices, course)
    if not joint.is_worth_it:
        return 0
    least = joint.programme.relaxed_cost()
    return least if least <= joint.longest else 0


@dataclass
class _Joint:
    problem: Problem
    devices: Sequence[Around]
    course: Course | None
    programme: Programme = field(default_factory=Programme)
    waits: WaitingRows | None = None

    @cached_property
    def homes(self) -> list[PairedDevice]:
        return [PairedDevice(self.problem, around.device, alike=False) for around in self.devices]

    @cached_property
    def is_worth_it(self) -> bool:
        """Whether some device cannot hold all at once, and the programme is of a size to solve."""
        if not any(self._is_tight(around.device) for around in self.devices):
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
            route.microbatches * self._delays(route.stages) for route in self.problem.routes
        )
        return alone + delays

    def _build(self) -> None:
        end = self.programme.variable(1, self.longest)
        counts = {}
        for around, home in zip(self.devices, self.homes, strict=True):
            ways, first = around.ways, len(self.programme.costs)
            if not self._is_tight(around.device):  # its forwards may all run before its backwards
                ways = ways._replace(after_forward=0, own=ways.after_backward)
            counts[around.device] = Count(home, ways, apart=True, programme=self.programme)
            row = {end: 1}
            for variable in range(first, len(self.programme.costs)):
                row[variable] = -self.programme.costs[variable]
                self.programme.costs[variable] = 0
            self.programme.at_least(row, around.before + sum(ways[:3]))
        times = _times_by_stage(counts)
        kinds = set[frozenset[Kind]]().union(*map(_kinds_of_pairs, self.homes))
        if self.course is not None and all("F" in pair and len(pair) == 2 for pair in kinds):
            waiting = Waiting(self.problem, self.course)
            self.waits = WaitingRows(self.programme, waiting, counts, self.longest)
        for around in self.devices:
            self._fit(end, around, counts[around.device], times)

    def _fit(self, end: int, around: Around, count: Count, times: _Times) -> None:
        """All that a device holds, times how long, fits between its first op and its last."""
        room = self.problem.devices[around.device].room
        if not room:
            return
        area, taken = self._area(around.device, times)
        corners: list[_Corner] = [({}, 0)]
        if self._is_tight(around.device):
            full, constant = self._until_backward(around, count, room)
            add_to(area, full, 1)
            taken += constant
            corners = self._after_forward(around, count, room)
        for row, constant in corners:
            total = {end: room}
            add_to(total, area, -1)
            add_to(total, row, -1)
            window = around.before - around.ways.beyond
            self.programme.at_least(total, taken + constant + room * window)

    def _stages(self, device: int) -> list[Stage]:
        return [self.problem.stages[stage] for stage in self.problem.stages_on[device]]

    def _is_tight(self, device: int) -> bool:
        """Whether some forward surely starts after a backward has."""
        problem, room = self.problem, self.problem.devices[device].room
        held = sum(
            problem.stages[s].held_after_F * problem.microbatches[s]
            for s in problem.stages_on[device]
        )
        return room is not None and held > room and self._takes_time(device)

    def _takes_time(self, device: int) -> bool:
        return all(min(s.F, s.B, s.W, s.BW) > 0 for s in self._stages(device))

    def _delays(self, stages: Sequence[int]) -> int:
        """Delays between these stages, there and back."""
        return sum(
            link_delay(self.problem, stage, "F") + link_delay(self.problem, stage, "B")
            for stage in stages[:-1]
        )

    def _area(self, device: int, times: _Times) -> tuple[_Row, int]:
        """Least memory times time that all microbatches of a device's stages take."""
        problem, row, constant = self.problem, dict[int, int](), 0
        for stage in problem.stages_on[device]:
            held = certain_holdings(problem)[stage].activation
            data = problem.stages[stage]
            route = problem.routes[problem.route_of[stage]]
            onward = route.stages[route.stages.index(stage) :]
            constant += held * route.microbatches * self._delays(onward)
            for other in onward:
                for kind in ("F", "B", "BW"):
                    add_to(row, times.get((other, kind), {}), held)
            add_to(row, times.get((stage, "B"), {}), max(0, data.held_after_B - held))
            add_to(row, times.get((stage, "W"), {}), data.held_after_B)
        return row, constant

    def _until_backward(self, around: Around, count: Count, room: int) -> _Corner:
        """What nobody can use until the first backward: forwards come one after the other."""
        row: _Row = {}
        add_to(row, count.held_before(), -around.ways.until_backward)
        if frozenset({"F"}) not in _kinds_of_pairs(count.home):
            jobs = [[[(data.held_after_F, data.F)]] for data in self._stages(around.device)]
            waiting = self._wait(count.ops(count.before, "F"), jobs, room)
            if self.waits is not None:
                self.waits.while_filling(waiting, around.device)
            add_to(row, {waiting: 1}, 1)
        return row, room * around.ways.until_backward

    def _after_forward(self, around: Around, count: Count, room: int) -> list[_Corner]:
        """What nobody can use after the last forward, in two ways, each of which holds.

        Microbatches are freed one after the other; and once the last backward has run, what is not
        pending is free.
        """
        stages, ways = self._stages(around.device), around.ways
        if any(max(s.held_after_B, s.held_in_backward) > s.held_after_F for s in stages):
            return [({}, 0)]
        home = ways.after_backward + ways.beyond
        rest = ways.after_forward + home
        one_by_one = all("F" in kinds for kinds in _kinds_of_pairs(count.home))
        corners: list[_Corner] = []
        for until_home in (False, True):
            row: _Row = {}
            add_to(row, count.held_after(), -rest)
            if until_home:
                add_to(row, count.freed_after(), home)
            if one_by_one:
                jobs = [_ways_to_free(data, until_home) for data in stages]
                waiting = self._wait(count.ops(count.after, "B", "BW"), jobs, room)
                if self.waits is not None and not until_home:
                    self.waits.while_emptying(waiting, around.device, ways.beyond)
                    self.waits.of_weights(row, around.device, rest)
                add_to(row, {waiting: 1}, 1)
            corners.append((row, room * rest))
        return corners

    def _wait(
        self, number: Mapping[int, int], jobs: Sequence[Sequence[Sequence[_Job]]], room: int
    ) -> int:
        """Return a variable: what waits for others, of n n (n - 1) / 2 times what two of them wait.

        ``jobs``: per stage, per way that its ops may run, what each of these frees, and its time.
        """
        least = min(
            sum(min(a * t, b * s) for (a, s), (b, t) in product(one, other))
            for two in combinations_with_replacement(jobs, 2)
            for one, other in product(*two)
        )
        smallest = min(sum(freed for freed, _ in way) for ways in jobs for way in ways)
        most = room // smallest if smallest else 0
        waiting = self.programme.variable(0, (2 * room + least * most) * self.longest)
        if least and most:
            for n in tangent_points(most):
                # k (k - 1) / 2 >= n k - n (n + 1) / 2 for all whole numbers
                tangent = {j: -least * n * value for j, value in number.items()} | {waiting: 1}
                self.programme.at_least(tangent, -least * n * (n + 1) // 2)
        return waiting


_Times: TypeAlias = Mapping[tuple[int, Kind], _Row]


def _times_by_stage(counts: Mapping[int, Count]) -> _Times:
    """Per stage and kind, the time of all items that its ops run in, twice where both are such."""
    found: dict[tuple[int, Kind], _Row] = {}
    for count in counts.values():
        for phase in count.phases:
            for item, variable in phase.items():
                for group, kind in item:
                    row = found.setdefault((group.stage, kind), {})
                    row[variable] = row.get(variable, 0) + count.home.items[item]
    return found


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


def _kinds_of_pairs(home: PairedDevice) -> set[frozenset[Kind]]:
    return {frozenset(kind for _, kind in item) for item in home.items if len(item) == 2}
