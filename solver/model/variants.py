"""What something may run as, alone: its kind and mode, how long then, and what memory it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from ortools.sat.python import cp_model

from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.rules import MemoryChange, duration, memory_in_order
from pipesat.solver.model.literals import Literal


class Variant(NamedTuple):
    """An op as which something may run, its ``length`` and memory, and whether it is ``chosen``."""

    op: Op
    length: int
    memory: MemoryChange
    chosen: Literal

    @property
    def taken(self) -> int:
        """Memory that it takes at its start, alone; what takes no time holds what it leaves."""
        return self.memory.at_start if self.length else max(0, self.memory.net)


def variant(problem: Problem, op: Op, chosen: Literal, unit: int = 1) -> Variant:
    """Return an op as a variant; its length is in ``unit`` time units, rounded down."""
    return Variant(op, duration(problem, op) // unit, memory_in_order(problem, op), chosen)


class Running(Protocol):
    """What runs: its start and end, the intervals that it may occupy, and as what it may run.

    ``present`` says whether it exists.
    """

    start: cp_model.IntVar
    end: cp_model.LinearExpr
    intervals: list[cp_model.IntervalVar]
    variants: list[Variant]
    present: Literal


R = TypeVar("R", bound=Running)


def place(
    cp: cp_model.CpModel, start: cp_model.IntVar, variants: Sequence[Variant], present: Literal
) -> tuple[cp_model.LinearExpr, list[cp_model.IntervalVar]]:
    """Return the end of what starts there, and the intervals that it may occupy.

    One that is absent and has one length ends as if it were there; of several lengths, at once.
    """
    lengths = {variant.length for variant in variants}
    if len(lengths) == 1:
        (length,) = lengths
        if present is True:
            return start + length, [cp.new_fixed_size_interval_var(start, length, "")]
        return start + length, [cp.new_optional_fixed_size_interval_var(start, length, present, "")]
    intervals = [
        cp.new_optional_fixed_size_interval_var(start, variant.length, variant.chosen, "")
        for variant in variants
    ]
    end: cp_model.LinearExpr = start + 0
    last = variants[-1].length if present is True else 0
    for variant in variants[:-1] if present is True else variants:
        end = end + (variant.length - last) * variant.chosen
    return end + last, intervals
