"""What a model of a window is made of: cells with their starts, and the schedule as it is now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ortools.sat.python import cp_model

from pipesat.core.problem import Problem
from pipesat.solver.modes.assign import Cell as Key
from pipesat.solver.modes.cell import Cell, Start
from pipesat.solver.modes.state import State
from pipesat.solver.modes.ways import Part


@dataclass(frozen=True)
class Window:
    """Parts that start in ``[begin, end)`` on these devices are free.

    What starts before is fixed, what starts later or elsewhere keeps its sequence.
    """

    begin: int
    end: int
    devices: frozenset[int]


class Placed(NamedTuple):
    """A part that is not fixed, and where it is now (an absent one: at its backward)."""

    start: int
    end: int
    cell: Cell
    part: Part


def is_fixed(*starts: Start) -> bool:
    """Whether all of these are times, not variables."""
    return all(isinstance(start, int) for start in starts)


@dataclass
class Frame:
    """The problem, its present schedule, what is free, and the variables."""

    problem: Problem
    state: State
    window: Window
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    cells: dict[Key, Cell] = field(default_factory=dict)

    @cached_property
    def latest(self) -> int:
        """When everything has ended, at the latest."""
        return self.state.schedule.makespan

    def parts(self, device: int, parts: Iterable[Part]) -> list[Placed]:
        """Parts of a device that are not fixed, by their present starts; absent ones at their B."""
        found = []
        for stage in self.problem.stages_on[device]:
            for microbatch in range(self.problem.microbatches[stage]):
                cell, known = self.cells[stage, microbatch], self.state.starts[stage, microbatch]
                for part in parts:
                    if part in cell.start and not isinstance(cell.start[part], int):
                        at = known.get(part, known["B"])
                        length = self.state.way[stage, microbatch].length(part) or 0
                        found.append(Placed(at, at + length, cell, part))
        return sorted(found, key=lambda x: (x.start, x.part == "W", x.end))

    def ends_before(self, device: int, parts: Iterable[Part]) -> int:
        """When the last of the fixed parts ends."""
        last = self.window.begin
        for stage in self.problem.stages_on[device]:
            for microbatch in range(self.problem.microbatches[stage]):
                starts = self.state.starts[stage, microbatch]
                way = self.state.way[stage, microbatch]
                for part in parts:
                    if (start := starts.get(part, self.latest)) < self.window.begin:
                        last = max(last, start + (way.length(part) or 0))
        return last
