"""All devices of a problem with pairs at once: who saves time by pairs holds memory for longer.

A pair is shorter than its members in turn, but longer than one of them, and for as long as it runs
both microbatches wait. So pairs save a device's time, and lengthen the stay of what every device
before it on the route holds. One programme has the counts of all devices
(:mod:`pipesat.bounds.paired_device`), and for each a row: the memory times time that these counts
take. docs/proofs/bounds.md has the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import Final, NamedTuple, TypeAlias

from pipesat.bounds.counting import Programme, WeightedSum, tangent_points
from pipesat.bounds.devices import area_over_slack
from pipesat.bounds.memory_counts import in_whole_microbatches
from pipesat.bounds.paired_device import (
    Count,
    HeldPart,
    PairedDevice,
    RunGroup,
    Runs,
    Ways,
    by_op,
    held_by_kind,
    left,
    one_class,
)
from pipesat.bounds.paired_waiting import Course, Waiting, WaitingRows
from pipesat.problem.ops import Kind
from pipesat.problem.problem import Problem, Stage
from pipesat.problem.rules import link_delay

Rows: TypeAlias = Mapping[tuple[RunGroup, Kind], WeightedSum]
"""A row per group and kind."""
PHASES: Final[tuple[tuple[Kind, ...], ...]] = ("F",), ("B", "BW")
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
    """The programme of all devices, with an end that some schedule reaches, if there is any.

    ``items`` has, per group and kind, how many items its ops run in, ``times`` their time;
    ``shortest`` variables that have been added.
    """

    programme: Programme
    counts: Mapping[int, Count]
    items: Rows
    times: Rows
    longest: int
    shortest: dict[object, int]


@dataclass(frozen=True)
class AreaRow:
    """The row of one device: all that it holds fits between its first op and its last.

    ``count`` has its memory. ``apart``: whether a forward surely starts after a backward has.
    ``course``: where waiting on the way counts as well.
    """

    joint: Joint
    count: Count
    around: Around
    apart: bool
    course: Course | None

    def add(self, end: int) -> None:
        """Add it; ``end`` is the variable of the end that counts."""
        around, slack = self.around, self.slack
        if not slack:
            return
        area, taken = self._area, 0
        corners: list[_Corner] = [(WeightedSum(), 0)]
        if self.apart:
            full, taken = self._until_backward()
            area += full
            corners = self._after_forward()
        for row, constant in corners:
            window = around.before - around.ways.beyond
            self.joint.programme.at_least(
                WeightedSum({end: slack}) - area - row, taken + constant + slack * window
            )

    @property
    def slack(self) -> int:
        """The device's memory; 0 if that is unlimited."""
        return self.count.problem.devices[self.around.device].slack or 0

    @cached_property
    def _waits(self) -> WaitingRows | None:
        if self.course is None:
            return None
        waiting = Waiting(self.count.problem, self.course)
        return WaitingRows(self.joint.programme, waiting, self.joint.counts, self.joint.longest)

    @property
    def _area(self) -> WeightedSum:
        """Least memory times time that all microbatches of a device's stages take."""
        row, count, times = WeightedSum(), self.count, self.joint.times
        for level in count.levels:
            for groups in level.by_stage():
                row += self._stay(groups) * level.step
        for group, data in count.data.items():
            for kind, held in held_by_kind(data).items():  # W comes after what is left is freed
                row += times[group, kind] * (held - (left(data) if kind != "W" else 0))
            if data.offload is not None:
                times_of_both = data.offload.time_out + data.offload.time_in
                copied = times_of_both * (data.held_after_F - left(data))
                row += count.of([group], count.phases, "F") * copied
        return row

    def _stay(self, groups: Sequence[RunGroup]) -> WeightedSum:
        """Least time from F's start to the backward's end, of all of some groups of a stage."""
        row, problem, (stage, *_) = WeightedSum(), self.count.problem, [g.stage for g in groups]
        route = problem.routes[problem.route_of[stage]]
        onward = route.stages[route.stages.index(stage) :]
        delays = delays_between(problem, onward)
        for own in one_class(groups):
            number = self.count.of(own, self.count.phases, "F")
            row += number * delays
            all_of_class = self._of_class(stage, own[0].of_class)
            for other in onward:
                there = own if other == stage else self._of_class(other, own[0].of_class)
                for kinds in PHASES:
                    members = [(group, kind) for group in there for kind in kinds]
                    if other == stage or len(own) == len(all_of_class):
                        row += sum((self.joint.times[one] for one in members), WeightedSum())
                    else:
                        row += {self._shortest(number, members): 1}
        return row

    def _of_class(self, stage: int, of_class: int) -> list[RunGroup]:
        home = self.joint.counts[self.count.problem.stages[stage].device].home
        return [g for g in home.groups if (g.stage, g.of_class) == (stage, of_class)]

    def _shortest(self, number: WeightedSum, members: Sequence[tuple[RunGroup, Kind]]) -> int:
        """Return a variable: what so many of some ops take at least, those of least time.

        Whatever d is, each takes d, but for items that take less.
        """
        key = (*number.items(), *members)
        if key in self.joint.shortest:
            return self.joint.shortest[key]
        counted, times = (
            sum((rows[one] for one in members), WeightedSum())
            for rows in (self.joint.items, self.joint.times)
        )
        each = {item: time // counted[item] for item, time in times.items()}
        most = max(each.values()) * members[0][0].ops
        least = self.joint.shortest[key] = self.joint.programme.variable(0, most)
        for d in sorted({*each.values()}):
            less = {item: n * max(0, d - each[item]) for item, n in counted.items()}
            self.joint.programme.at_least(number * -d + less + {least: 1}, 0)
        return least

    @property
    def _within(self) -> bool:
        """Whether what counts as held surely fits: else waits may lie where nothing is free."""
        return all(data.offload is None for data in self.count.data.values())

    def _until_backward(self) -> _Corner:
        """What no one can use until the first backward: forwards come one after the other."""
        around, count = self.around, self.count
        row = count.taken(count.before, held=_taken) * -around.ways.until_backward
        if self._within and frozenset({"F"}) not in kinds_of_pairs(count.home):
            for level in count.levels:
                jobs = [[[(level.step, group.data.F)]] for group in level.groups]
                waiting = self._wait(count.of(level.groups, [count.before], "F"), jobs, level)
                if self._waits is not None:
                    self._waits.while_filling(waiting, count, level)
                row += {waiting: 1}
        return row, self.slack * around.ways.until_backward

    def _after_forward(self) -> list[_Corner]:
        """What no one can use after the last forward, in two ways, each of which holds.

        Microbatches are freed one after the other; and once the last backward has run, what is not
        pending is free.
        """
        count, around, stages = self.count, self.around, self.count.data.values()
        ways = around.ways
        if any(s.held_after_B > s.held_after_F for s in stages):
            return [(WeightedSum(), 0)]
        home = ways.after_backward + ways.beyond
        rest = ways.after_forward + home
        one_by_one = all("F" in kinds for kinds in kinds_of_pairs(count.home))
        more = max(max(0, s.held_in_backward - s.held_after_F) for s in stages)
        corners: list[_Corner] = []
        for until_home in (False, True):
            row = count.held_after(_taken) * -rest
            if until_home:
                row += count.freed(count.after) * home
            if one_by_one and self._within and not more:
                for level in count.levels:
                    jobs = [_ways_to_free(level, count.data[g], until_home) for g in level.groups]
                    number = count.of(level.groups, [count.after], "B", "BW")
                    waiting = self._wait(number, jobs, level)
                    if self._waits is not None and not until_home:
                        self._waits.while_emptying(waiting, count, level, ways.beyond)
                    row += {waiting: 1}
                if self._waits is not None and not until_home:
                    self._waits.of_weights(row, count, rest)
            corners.append((row, (self.slack - more * (2 - one_by_one)) * rest))
        return corners

    def _wait(
        self, number: WeightedSum, jobs: Sequence[Sequence[Sequence[_Job]]], level: HeldPart
    ) -> int:
        """Return a variable: what waits for others, of n n (n - 1) / 2 times what two of them wait.

        ``jobs``: per group, per way that its ops may run, what each of these frees, and its time.
        """
        least = min(
            sum(min(a * t, b * s) for (a, s), (b, t) in product(one, other))
            for two in combinations_with_replacement(jobs, 2)
            for one, other in product(*two)
        )
        most = self.slack // level.high
        points = tangent_points(most) if least and most else ()
        longest = (2 * self.slack + least * most) * self.joint.longest
        return self.joint.programme.of_two(least, number, points, longest)


def _taken(data: Stage) -> int:
    """What a microbatch may hold between F and backward."""
    return data.held_after_F


def is_tight(home: PairedDevice, of: Callable[[Iterable[int]], int] = min) -> bool:
    """Whether some forward of a device surely starts after a backward has.

    ``of`` says what counts of what a microbatch may hold in its modes.
    """
    slack = home.problem.devices[home.device].slack
    classes = [own for groups in home.together for own in one_class(groups)]
    total = sum(own[0].ops * of(left(g.data) for g in own) for own in classes)
    takes_time = all(min(g.data.F, g.data.B, g.data.W, g.data.BW) > 0 for g in home.groups)
    return slack is not None and total > slack and takes_time


def delays_between(problem: Problem, stages: Sequence[int]) -> int:
    """Delays between these stages of a route, there and back."""
    return sum(
        link_delay(problem, stage, "F") + link_delay(problem, stage, "B") for stage in stages[:-1]
    )


def _ways_to_free(level: HeldPart, data: Stage, until_home: bool) -> list[list[_Job]]:
    """What one's ops free of a level, and their times; ``until_home``: W perhaps comes later."""
    ways: list[list[_Job]] = []
    if data.may_split:
        of_weight = level.of_weight(data)
        backward = (level.step - of_weight, data.B)
        ways.append([backward, (of_weight, data.W)])
        if until_home:
            ways.append([backward])
    if data.may_fuse:
        ways.append([(level.step, data.BW)])
    return ways


def kinds_of_pairs(home: PairedDevice) -> set[frozenset[Kind]]:
    """Return the kinds of two ops that may run as one on a device."""
    return {frozenset(kind for _, kind in item) for item in home.items if len(item) == 2}


_MOST_VARIABLES = 2500
_SHARE_THAT_COUNTS = 0.9  # of what the slacks ask for; limits of less add time, not strength


def least_end_in_memory(
    problem: Problem,
    devices: Sequence[Around],
    course: Course | None = None,
    runs: Sequence[Sequence[Runs]] = (),
) -> int:
    """Least end that counts, for all devices together; 0 if nothing is known, or all is too large.

    Devices of unlimited memory take part with their load alone. ``course`` is given where all
    devices have one origin and one end, ``runs`` per device where microbatches differ or have
    modes.
    """
    joint = _Together(problem, devices, course, runs)
    if not joint.is_worth_it:
        return 0
    least = joint.programme.relaxed_cost()
    return min([least, *joint.otherwise]) if least <= joint.longest else 0


@dataclass
class _Together:
    problem: Problem
    devices: Sequence[Around]
    course: Course | None
    runs: Sequence[Sequence[Runs]]
    programme: Programme = field(default_factory=Programme)

    def _home(self, device: int, *, alike: bool) -> PairedDevice:
        runs = self.runs[device] if self.runs else ()
        return PairedDevice(self.problem, device, alike=alike, runs=runs)

    @cached_property
    def homes(self) -> list[PairedDevice]:
        return [self._home(around.device, alike=False) for around in self.devices]

    @cached_property
    def is_worth_it(self) -> bool:
        """Whether some device cannot hold all at once, and the programme is of a size to solve."""
        if not any(is_tight(home, max) for home in self.homes):
            return False
        if sum(2 * len(home.items) for home in self.homes) > _MOST_VARIABLES:
            return False
        self._build()
        return len(self.programme.costs) <= _MOST_VARIABLES

    @property
    def otherwise(self) -> Iterator[int]:
        """Least ends where a device can hold all forwards before its first backward, and does."""
        for around, home in zip(self.devices, self.homes, strict=True):
            if is_tight(home, max) and not is_tight(home):
                all_first = self._home(around.device, alike=True)
                yield around.before + all_first.least(around.ways, apart=False)

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
            if not is_tight(home, max):  # all its forwards may come first
                ways = ways._replace(after_forward=0, own=ways.after_backward)
            counts[around.device] = Count(home, ways, apart=True, programme=self.programme)
            row = {end: 1}
            for variable in range(first, len(self.programme.costs)):
                row[variable] = -self.programme.costs[variable]
                self.programme.costs[variable] = 0
            self.programme.at_least(row, around.before + sum(ways[:3]))
        items = by_op(counts, lambda *_: 1)
        times = by_op(counts, lambda count, item: count.home.items[item])
        joint = Joint(self.programme, counts, items, times, self.longest, {})
        kinds = set[frozenset[Kind]]().union(*map(kinds_of_pairs, self.homes))
        one_forward = all("F" in pair and len(pair) == 2 for pair in kinds)
        course = self.course if one_forward else None
        most = max(area_over_slack(self.problem, around.device) for around in self.devices)
        least = _SHARE_THAT_COUNTS * most
        for around, home in zip(self.devices, self.homes, strict=True):
            count, apart = counts[around.device], is_tight(home, max)
            AreaRow(joint, count, around, apart, course).add(end)
            weighed = [count.holding(level) for level in count.levels if self.runs and apart]
            weighed += [
                count.weighed_by(counted)
                for counted in in_whole_microbatches(self.problem, around.device)
                if not self.runs and area_over_slack(counted, around.device) >= least
            ]
            for each in weighed:
                each.fit_into_memory()
                AreaRow(joint, each, around, apart, course).add(end)
