"""The free items of a segment as CP-SAT variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from pipesat.core.ops import PHASE_OF, Op, Phase, members
from pipesat.core.problem import Problem
from pipesat.core.rules import duration
from pipesat.solver.model.literals import Literal, either
from pipesat.solver.model.pair_choices import Form
from pipesat.solver.model.pairing import Gains, fusing_may_pay
from pipesat.solver.neighbourhood.graph import Graph


@dataclass
class Slot:
    """One free op, or a W that comes into being if a fused backward is split.

    ``item`` is the number in the graph of the op, or of the pair that it is in (``None``: not there
    at present), ``backward`` the slot of its B if it is the W of a backward whose split is free.
    ``split`` says of a backward whether it is one; ``present`` of a W whether it exists.
    """

    op: Op
    item: int | None
    start: cp_model.IntVar
    end: cp_model.LinearExpr
    intervals: list[cp_model.IntervalVar]
    present: Literal = True
    split: Literal = False
    backward: Slot | None = None

    @property
    def phase(self) -> Phase:
        """Its phase."""
        return PHASE_OF[self.op.kind]

    @property
    def is_choice(self) -> bool:
        """Whether it is a backward whose split is free."""
        return self.phase == "B" and not isinstance(self.split, bool)

    def forms(self, problem: Problem) -> list[Form]:
        """What it may run as, alone."""
        if not self.is_choice:
            return [Form(self.op.kind, duration(problem, self.op), self.present)]
        kinds = either(self.split)
        return [Form(k, duration(problem, self.op._replace(kind=k)), x) for k, x in kinds]


def slots_of(
    problem: Problem,
    graph: Graph,
    cp: cp_model.CpModel,
    row: Sequence[int],
    latest: int,
    *,
    known: Gains,
    free_splits: bool,
) -> list[Slot]:
    """Return the slots of a segment in its present order; starts range over ``[0, latest]``."""
    items = {op: number for number in row for op in members(graph.sequence.item[number])}
    backwards: dict[tuple[int, int], Slot] = {}
    slots: list[Slot] = []
    for op, number in items.items():
        start = cp.new_int_var(graph.release[graph.sequence.device[number]], latest, "")
        cp.add_hint(start, graph.start[number])
        if not (free_splits and _is_free(problem, known, op, items)):
            length = duration(problem, op)
            interval = cp.new_fixed_size_interval_var(start, length, "")
            slots.append(Slot(op, number, start, start + length, [interval], split=op.kind == "B"))
        elif op.kind != "W":
            slot = _free_backward(problem, cp, op, number, start)
            backwards[op.stage, op.microbatch] = slot
            slots.append(slot)
        else:
            slots.append(_free_weight(problem, cp, op, number, start, backwards))
    for stage, microbatch in backwards:
        weight = Op(stage, "W", microbatch)
        if weight not in items:
            start = cp.new_int_var(0, latest, "")
            slots.append(_free_weight(problem, cp, weight, None, start, backwards))
    return slots


def chains_of(problem: Problem, slots: Sequence[Slot]) -> list[list[Slot]]:
    """Slots that keep their order: by stage and phase, by class too where that is free.

    Only what is ``free`` may change places with another class: windows of some devices must not
    change an order that all stages have.
    """
    chains: dict[tuple[int, Phase, int], list[Slot]] = {}
    for slot in slots:
        op, free = slot.op, problem.order == "free" or slot.phase == "W"
        kind = problem.class_of(op.stage, op.microbatch) if free else 0
        chains.setdefault((op.stage, slot.phase, kind), []).append(slot)
    return list(chains.values())


def _is_free(problem: Problem, known: Gains, op: Op, items: dict[Op, int]) -> bool:
    """Whether an op belongs to a backward whose split is free, with all of it in the segment."""
    kind = problem.class_of(op.stage, op.microbatch)
    either = problem.stages[op.stage].backward == "either"
    if op.kind == "F" or not (either and fusing_may_pay(problem, known, op.stage, kind)):
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
