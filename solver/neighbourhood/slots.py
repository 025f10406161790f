"""The free items of a segment as CP-SAT variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from pipesat.core.ops import PHASE_OF, Item, Op, Pair, Phase, members
from pipesat.core.problem import Problem
from pipesat.core.rules import duration
from pipesat.solver.model.variables import Literal
from pipesat.solver.neighbourhood.graph import Graph


@dataclass
class Slot:
    """One free item, or a W that comes into being if a fused backward is split.

    ``item`` is its number in the graph (``None``: not there at present), ``backward`` the slot of
    its B if it is the W of a backward whose split is free. ``split`` says of a backward whether it
    is one; ``present`` of a W whether it exists.
    """

    op: Item
    item: int | None
    start: cp_model.IntVar
    end: cp_model.LinearExprT
    intervals: list[cp_model.IntervalVar]
    present: Literal = True
    split: Literal = False
    backward: Slot | None = None

    @property
    def phase(self) -> Phase | None:
        """Its phase; ``None`` for a pair."""
        return None if isinstance(self.op, Pair) else PHASE_OF[self.op.kind]


def slots_of(
    problem: Problem,
    graph: Graph,
    cp: cp_model.CpModel,
    row: Sequence[int],
    latest: int,
    *,
    free_splits: bool,
) -> list[Slot]:
    """Return the slots of a segment in its present order; starts range over ``[0, latest]``."""
    items = {graph.sequence.item[number]: number for number in row}
    backwards: dict[tuple[int, int], Slot] = {}
    slots: list[Slot] = []
    for item, number in items.items():
        start = cp.new_int_var(graph.release[graph.sequence.device[number]], latest, "")
        cp.add_hint(start, graph.start[number])
        if not (free_splits and isinstance(item, Op) and _is_free(problem, item, items)):
            length = graph.sequence.duration[number]
            interval = cp.new_fixed_size_interval_var(start, length, "")
            split = isinstance(item, Op) and item.kind == "B"
            slots.append(Slot(item, number, start, start + length, [interval], split=split))
        elif item.kind != "W":
            slot = _free_backward(problem, cp, item, number, start)
            backwards[item.stage, item.microbatch] = slot
            slots.append(slot)
        else:
            slots.append(_free_weight(problem, cp, item, number, start, backwards))
    for stage, microbatch in backwards:
        weight = Op(stage, "W", microbatch)
        if weight not in items:
            start = cp.new_int_var(0, latest, "")
            slots.append(_free_weight(problem, cp, weight, None, start, backwards))
    return slots


def chains_of(slots: Sequence[Slot]) -> dict[tuple[int, Phase], list[Slot]]:
    """Slots by stage and phase; each list keeps its order."""
    chains: dict[tuple[int, Phase], list[Slot]] = {}
    for slot in slots:
        for op in members(slot.op):
            chains.setdefault((op.stage, PHASE_OF[op.kind]), []).append(slot)
    return chains


def _is_free(problem: Problem, op: Op, items: dict[Item, int]) -> bool:
    """Whether an op belongs to a backward whose split is free, with all of it in the segment."""
    stage = problem.stages[op.stage]
    if op.kind == "F" or not (stage.backward == "either" and stage.fusing_may_pay):
        return False
    other = Op(op.stage, "W" if op.kind == "B" else "B", op.microbatch)
    return op.kind == "BW" or other in items


def _free_backward(
    problem: Problem, cp: cp_model.CpModel, op: Op, number: int, start: cp_model.IntVar
) -> Slot:
    split = cp.new_bool_var("")
    cp.add_hint(split, op.kind == "B")
    whole, part = (duration(problem, op._replace(kind=kind)) for kind in ("BW", "B"))
    intervals = [
        cp.new_optional_fixed_size_interval_var(start, part, split, ""),
        cp.new_optional_fixed_size_interval_var(start, whole, ~split, ""),
    ]
    return Slot(op, number, start, start + whole + (part - whole) * split, intervals, split=split)


def _free_weight(
    problem: Problem,
    cp: cp_model.CpModel,
    op: Op,
    number: int | None,
    start: cp_model.IntVar,
    backwards: dict[tuple[int, int], Slot],
) -> Slot:
    backward = backwards[op.stage, op.microbatch]
    length, present = duration(problem, op), backward.split
    interval = cp.new_optional_fixed_size_interval_var(start, length, present, "")
    return Slot(op, number, start, start + length, [interval], present, backward=backward)
