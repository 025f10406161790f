"""What holds of the cells of a model whatever the window: ways, trips, turns, channels, memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise

from ortools.sat.python import cp_model

from pipesat.core.problem import Problem
from pipesat.solver.model.literals import Literal
from pipesat.solver.modes.cell import Cell
from pipesat.solver.modes.ways import Holding, Part, ways_of

PARTS: tuple[Part, ...] = ("F", "O", "L", "B", "W")
"""All parts, in the order in which those that are there run."""


def new_cell(
    cp: cp_model.CpModel, problem: Problem, stage: int, microbatch: int, begin: int, end: int
) -> Cell:
    """Return a (stage, microbatch) in any of its ways, with all parts in ``[begin, end]``."""
    ways = list(ways_of(problem, stage, microbatch))
    chosen: list[Literal] = [cp.new_bool_var("") for _ in ways]
    cp.add_exactly_one(chosen)
    cell = Cell(stage, microbatch, problem.stages[stage].device, ways, chosen)
    for part in PARTS:
        if part == "W" or any(way.length(part) is not None for way in ways):
            cell.start[part] = cp.new_int_var(begin, end, "")
    cp.add(cell.start["W"] >= cell.end("B"))
    for way, literal in zip(ways, chosen, strict=True):
        if way.amounts.offload is not None:
            for one, two in pairwise(PARTS[:4]):
                there = cell.start[one] + (way.length(one) or 0)
                cp.add(cell.start[two] >= there).only_enforce_if(literal)
    return cell


def add_order(cp: cp_model.CpModel, cells: Sequence[Cell], part: Part) -> None:
    """Let a part that all of a stage's cells have run in the order of the cells."""
    for one, two in pairwise(cells):
        cp.add(two.start[part] >= one.end(part))


def add_order_of_a_way(cp: cp_model.CpModel, cells: Sequence[Cell], parts: Iterable[Part]) -> None:
    """Let these parts run in the order of the cells among those that run in one way."""
    parts = tuple(parts)
    for one, two in combinations(cells, 2):
        for number, way in enumerate(one.ways):
            both = (one.chosen[number], two.chosen[number])
            for part in parts:
                if (length := way.length(part)) is not None:
                    after = cp.add(two.start[part] >= one.start[part] + length)
                    after.only_enforce_if(*both)


def add_device(
    cp: cp_model.CpModel, problem: Problem, device: int, cells: Sequence[Cell], most: int
) -> None:
    """Let a device run one op at a time and each channel one copy, within memory over time."""
    own = problem.devices[device]
    _add_in_turn(cp, cells, ("F", "B", "W"))
    channels: tuple[tuple[Part, ...], ...] = (("O",), ("L",))
    for parts in (("O", "L"),) if own.copy_channels == 1 else channels:
        _add_in_turn(cp, cells, parts)
    if own.room is None:
        return
    intervals, amounts = [], []
    for cell in cells:
        for way, literal in zip(cell.ways, cell.chosen, strict=True):
            for holding in way.holdings:
                intervals.append(_held(cp, cell, holding, literal, most))
                amounts.append(holding.amount)
    cp.add_cumulative(intervals, amounts, own.room)


def _add_in_turn(cp: cp_model.CpModel, cells: Sequence[Cell], parts: Iterable[Part]) -> None:
    """Let parts of these kinds run one at a time."""
    found = [
        interval
        for cell in cells
        for part in parts
        if part in cell.start
        for interval in cell.intervals(cp, part)
    ]
    if found:
        cp.add_no_overlap(found)


def _held(
    cp: cp_model.CpModel, cell: Cell, holding: Holding, literal: Literal, most: int
) -> cp_model.IntervalVar:
    begin, offset, end, length, _ = holding
    low, high = cell.start[begin] + offset, cell.start[end] + length
    if begin == end:
        return cp.new_optional_fixed_size_interval_var(low, length - offset, literal, "")
    between = cp.new_int_var(0, most, "")
    return cp.new_optional_interval_var(low, between, high, literal, "")
