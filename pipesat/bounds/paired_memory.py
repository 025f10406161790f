"""All devices of a problem with pairs at once: who saves time by pairs holds memory for longer.

A pair is shorter than its members in turn, but longer than one of them, and for as long as it runs
both microbatches wait. So pairs save a device's time, and lengthen the stay of what every device
before it on the route holds. One programme has the counts of all devices
(:mod:`pipesat.bounds.paired_device`), and for each the memory times time that these counts take
(:mod:`pipesat.bounds.paired_area`). docs/proofs/bounds.md has the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pipesat.bounds.counting import Programme
from pipesat.bounds.devices import area_over_room
from pipesat.bounds.paired_area import (
    AreaRow,
    Around,
    Joint,
    Row,
    Times,
    delays_between,
    is_tight,
    kinds_of_pairs,
)
from pipesat.bounds.paired_device import Count, PairedDevice
from pipesat.bounds.paired_waiting import Course
from pipesat.bounds.whole_microbatches import in_whole_microbatches
from pipesat.core.ops import Kind
from pipesat.core.problem import Problem

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
        joint = Joint(self.programme, counts, _times_by_stage(counts), self.longest)
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


def _times_by_stage(counts: Mapping[int, Count]) -> Times:
    """Per stage and kind, the time of all items that its ops run in, twice where both are such."""
    found: dict[tuple[int, Kind], Row] = {}
    for count in counts.values():
        for phase in count.phases:
            for item, variable in phase.items():
                for group, kind in item:
                    row = found.setdefault((group.stage, kind), {})
                    row[variable] = row.get(variable, 0) + count.home.items[item]
    return found
