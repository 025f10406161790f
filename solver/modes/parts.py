"""One (stage, microbatch) in a model with memory over time: its parts, as what, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from ortools.sat.python import cp_model

from pipesat.core.ops import Op, Phase
from pipesat.core.problem import Problem
from pipesat.core.rules import MemoryChange
from pipesat.solver.model.pairing import Gains
from pipesat.solver.model.variants import Literal, Variant, place, variant
from pipesat.solver.modes.ways import TRIP, Part, Way, ways_of

OPS: Final[tuple[Phase, ...]] = ("F", "B", "W")
_NOTHING = MemoryChange(0, 0)


@dataclass(eq=False)
class Task:
    """One part: its start, end and intervals; a copy's variants are the ops that it belongs to."""

    start: cp_model.IntVar
    end: cp_model.LinearExpr
    intervals: list[cp_model.IntervalVar]
    variants: list[Variant]
    present: Literal


class Option(NamedTuple):
    """A way and the literal that says whether it is the one."""

    way: Way
    chosen: cp_model.IntVar


@dataclass(eq=False)
class Cell:
    """Ways and tasks of one (stage, microbatch): O, L and W are there if some way has them."""

    stage: int
    microbatch: int
    ways: list[Option]
    tasks: dict[Part, Task] = field(default_factory=dict)

    def runs_in(self, mode: int) -> cp_model.LinearExprT:
        """Whether it runs in a mode, as a sum."""
        return sum(chosen for way, chosen in self.ways if way.mode == mode)


def new_cell(
    cp: cp_model.CpModel,
    problem: Problem,
    known: Gains,
    key: tuple[int, int],
    window: tuple[int, int],
) -> Cell:
    """Return a (stage, microbatch) in any of its ways, with all parts in a window of time."""
    ways = [Option(way, cp.new_bool_var("")) for way in ways_of(problem, *key, known)]
    cp.add_exactly_one([chosen for _, chosen in ways])
    cell = Cell(*key, ways)
    in_mode = _in_modes(cp, ways)
    stage, m = key
    for part in OPS:
        options: list[tuple[Op, Literal]]
        if part == "F":
            options = [(Op(stage, "F", m, mode), chosen) for mode, chosen in in_mode.items()]
        else:
            options = [
                (Op(stage, "BW" if way.fused else part, m, way.mode), chosen)
                for way, chosen in ways
                if part == "B" or not way.fused
            ]
        if options:
            found = [variant(problem, op, chosen) for op, chosen in options]
            cell.tasks[part] = _task(cp, window, found, len(in_mode if part == "F" else ways))
    _add_copies(cp, problem, cell, in_mode, window)
    return cell


def add_sequence(cp: cp_model.CpModel, cell: Cell) -> None:
    """Let F, the copies, the backward and W run one after the other, as far as they are there."""
    tasks = cell.tasks
    if "W" in tasks:
        cp.add(tasks["W"].start >= tasks["B"].end)
    if "O" in tasks:
        for one, two in pairwise(TRIP):
            cp.add(tasks[two].start >= tasks[one].end).only_enforce_if(tasks["O"].present)


def _in_modes(cp: cp_model.CpModel, ways: Sequence[Option]) -> dict[int, Literal]:
    """Literal for each mode; its way's where it has one."""
    found: dict[int, Literal] = {}
    for mode in dict.fromkeys(way.mode for way, _ in ways):
        own = [chosen for way, chosen in ways if way.mode == mode]
        found[mode] = own[0]
        if len(own) > 1:
            literal = found[mode] = cp.new_bool_var("")
            cp.add_exactly_one([*own, ~literal])
    return found


def _task(
    cp: cp_model.CpModel, window: tuple[int, int], variants: list[Variant], ways: int
) -> Task:
    """A part that fewer variants have than there are ways is absent in the others."""
    present: Literal = True
    if len(variants) < ways:
        present = cp.new_bool_var("")
        cp.add_exactly_one([*(variant.chosen for variant in variants), ~present])
    start = cp.new_int_var(*window, "")
    return Task(start, *place(cp, start, variants, present), variants, present)


def _add_copies(
    cp: cp_model.CpModel,
    problem: Problem,
    cell: Cell,
    in_mode: dict[int, Literal],
    window: tuple[int, int],
) -> None:
    """Copies of the modes that offload, between F and backward."""
    key = cell.stage, cell.microbatch
    away = {
        mode: (offload, chosen)
        for mode, chosen in in_mode.items()
        if (offload := problem.amounts(*key, mode).offload) is not None
    }
    if not away:
        return
    copies: tuple[Part, Part] = ("O", "L")
    for part in copies:
        found = [
            Variant(
                Op(cell.stage, "F" if part == "O" else "B", cell.microbatch, mode),
                offload.time_out if part == "O" else offload.time_in,
                _NOTHING,
                chosen,
            )
            for mode, (offload, chosen) in away.items()
        ]
        cell.tasks[part] = _task(cp, window, found, len(in_mode))
