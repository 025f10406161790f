"""The CP-SAT model of a problem with memory modes: whole, or all that one window leaves free.

Starts are variables, and so is the way of each (stage, microbatch) where it is free. Memory is
counted over time by cumulative constraints: intervals are half-open there, as in the contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal as Literal_

from ortools.sat.python import cp_model

from pipesat.core.ops import Op
from pipesat.core.rules import awaited
from pipesat.core.schedule import Schedule
from pipesat.solver.model.variants import Literal
from pipesat.solver.modes.assign import Cell as Key
from pipesat.solver.modes.cell import Cell, Start
from pipesat.solver.modes.copying import add_channels, add_memory, add_what_copies_ask
from pipesat.solver.modes.frame import Frame, is_fixed
from pipesat.solver.modes.state import schedule_from
from pipesat.solver.modes.ways import TRIP, Part, Way, ways_of

_PARTS: tuple[Part, ...] = ("F", "B", "W", "O", "L")
_AWAITING: tuple[Literal_["F", "B"], ...] = ("F", "B")
_WEIGHT = 4  # of the makespan, against the mean of the devices' ends


@dataclass
class Model(Frame):
    """A window of a schedule, as a model; ``choose`` says whether modes may change."""

    choose: bool = True

    def __post_init__(self) -> None:
        for key in self.state.starts:
            self.cells[key] = self._cell(key)
        self._add_dataflow()
        for device in range(len(self.problem.devices)):
            self._add_device(device)
            add_channels(self, device)
            add_memory(self, device)
            add_what_copies_ask(self, device)
        self._add_objective()

    def schedule(self, solver: cp_model.CpSolver, source: str) -> Schedule:
        """Read a solution."""
        starts: dict[Key, dict[Part, int]] = {}
        ways: dict[Key, Way] = {}
        for key, cell in self.cells.items():
            starts[key] = {
                part: start if isinstance(start, int) else solver.value(start)
                for part, start in cell.start.items()
            }
            ways[key] = next(
                way
                for way, literal in zip(cell.ways, cell.chosen, strict=True)
                if literal is True or (literal is not False and solver.boolean_value(literal))
            )
        return schedule_from(self.problem, starts, ways, source)

    def _cell(self, key: Key) -> Cell:
        now = self.state.way[key]
        stage, microbatch = key
        device = self.problem.stages[stage].device
        ways = [now]
        if self._is_open(key, device):
            options = ways_of(self.problem, stage, microbatch)
            ways += [way for way in options if way != now and self._may_become(key, way)]
        chosen: list[Literal] = [True]
        if len(ways) > 1:
            literals = [self.cp.new_bool_var("") for _ in ways]
            self.cp.add_exactly_one(literals)
            for literal, way in zip(literals, ways, strict=True):
                self.cp.add_hint(literal, way == now)
            chosen = [*literals]
        cell = Cell(stage, microbatch, device, ways, chosen)
        for part in _PARTS:
            if any(way.length(part) is not None for way in ways):
                cell.start[part] = self._start(key, part)
        return cell

    def _is_open(self, key: Key, device: int) -> bool:
        """Whether the way may change: its backward is still to come, and near enough."""
        starts, window = self.state.starts[key], self.window
        return (
            self.choose
            and device in window.devices
            and starts["F"] < window.end
            and starts["B"] >= window.begin
            and not ("O" in starts and starts["O"] < window.begin)
        )

    def _may_become(self, key: Key, way: Way) -> bool:
        """An F that is fixed keeps its length."""
        now, fixed = self.state.way[key], self.state.starts[key]["F"] < self.window.begin
        return not fixed or way.amounts.F == now.amounts.F

    def _start(self, key: Key, part: Part) -> Start:
        known = self.state.starts[key].get(part)
        if known is not None and known < self.window.begin:
            return known
        start = self.cp.new_int_var(self.window.begin, self.latest, "")
        if known is None:  # absent now
            where = self.state.starts[key]
            known = max(where["F"], self.window.begin) if part == "O" else where["B"]
        self.cp.add_hint(start, min(known, self.latest))
        return start

    def _add_dataflow(self) -> None:
        cp, problem = self.cp, self.problem
        for (stage, microbatch), cell in self.cells.items():
            for kind in _AWAITING:
                need = awaited(problem, Op(stage, kind, microbatch))
                if need is None or is_fixed(cell.start[kind]):
                    continue
                source = self.cells[need.event[0], microbatch]
                cp.add(cell.start[kind] >= source.end(need.event[1]) + need.delay)
            if "W" in cell.start and not is_fixed(cell.start["W"]):
                cp.add(cell.start["W"] >= cell.end("B"))
            self._add_trip(cell)

    def _add_trip(self, cell: Cell) -> None:
        """F, the copy out, the copy back and the backward come one after the other."""
        for way, literal in zip(cell.ways, cell.chosen, strict=True):
            if way.amounts.offload is None:
                continue
            for one, two in pairwise(TRIP):
                if not is_fixed(cell.start[two]):
                    there = cell.start[one] + (way.length(one) or 0)
                    constraint = self.cp.add(cell.start[two] >= there)
                    if not isinstance(literal, bool):
                        constraint.only_enforce_if(literal)

    def _add_device(self, device: int) -> None:
        """Free ops do not overlap; those of a stage and phase keep their order; others follow."""
        cp, window = self.cp, self.window
        free: list[tuple[Cell, Part]] = []
        later: list[tuple[Cell, Part]] = []
        for at, _, cell, part in self.parts(device, ("F", "B", "W")):
            inside = device in window.devices and at < window.end
            (free if inside else later).append((cell, part))
        begin = self.ends_before(device, ("F", "B", "W"))
        cp.add_no_overlap([i for cell, part in free for i in cell.intervals(cp, part)])
        chains: dict[tuple[int, Part], tuple[Cell, Part]] = {}
        for cell, part in free:
            cp.add(cell.start[part] >= begin)
            if (before := chains.get((cell.stage, part))) is not None:
                cp.add(cell.start[part] >= before[0].start[part])
                if part != "W":
                    cp.add(cell.start[part] >= before[0].end(part))
            chains[cell.stage, part] = (cell, part)
        if later:
            cell, part = later[0]
            cp.add(cell.start[part] >= begin)
            for other, its in free:
                cp.add(cell.start[part] >= other.end(its))
        for (one, its), (two, part) in pairwise(later):
            cp.add(two.start[part] >= one.end(its))

    def _add_objective(self) -> None:
        """Minimise the objective, and with less weight the ends of all devices, or their spans."""
        cp, lasts = self.cp, {}
        now = self.state.schedule
        value = cp.new_int_var(0, self.state.value, "")
        cp.add_hint(value, self.state.value)
        for device, row in enumerate(now.devices):
            if row:
                last = lasts[device] = cp.new_int_var(0, self.latest, "")
                cp.add_hint(last, row[-1].end)
                first: Start = 0
                if self.state.objective == "span":
                    first = self._first(device, row[0].start)
                cp.add(last - first <= value)
        for cell in self.cells.values():
            for part in ("B", "W"):
                if part in cell.start:
                    cp.add(cell.end(part) <= lasts[cell.device])
        cp.minimize(_WEIGHT * len(lasts) * value + sum(lasts.values()))

    def _first(self, device: int, known: int) -> Start:
        """Start of a device's first op, or less."""
        if known < self.window.begin:
            return known
        first = self.cp.new_int_var(0, self.latest, "")
        self.cp.add_hint(first, known)
        for _, _, cell, part in self.parts(device, ("F", "B", "W")):
            self.cp.add(first <= cell.start[part])
        return first
