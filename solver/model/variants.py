"""What something may run as, alone: its kind and mode, how long then, and what memory it takes.

Windows and whole models count memory by the same two sums, which are here: what an event takes at
its start, and what another op has taken and freed if it is before the event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ortools.sat.python import cp_model

from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.rules import MemoryChange, duration, memory_in_order
from pipesat.solver.model.literals import Literal, Sum, conjunction

if TYPE_CHECKING:
    from pipesat.solver.model.pair_choices import PairChoices


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


def taken_at(event: R, pairs: PairChoices[R]) -> Iterator[tuple[Sum, Literal]]:
    """Yield what an event takes at its start, partners included, and on which condition.

    As a pair, an op that takes no time alone holds what it takes while the pair runs.
    """
    takes = [variant for variant in event.variants if variant.taken]
    if len(takes) == 1 and len(event.variants) > 1:
        yield _with_partners(Sum(takes[0].taken), event, pairs), takes[0].chosen
    elif takes:
        total = Sum(0)
        for variant in takes:
            total.add(variant.taken, variant.chosen)
        yield _with_partners(total, event, pairs), event.present
    for variant in event.variants:
        if variant.memory.at_start > variant.taken:
            for choice, _, _ in pairs.partners(event):
                if choice.runs(event) == variant.op:
                    total = Sum(variant.memory.at_start)
                    yield _with_partners(total, event, pairs), choice.literal


def _with_partners(total: Sum, event: R, pairs: PairChoices[R]) -> Sum:
    for choice, partner, op in pairs.partners(event):
        (variant,) = (variant for variant in partner.variants if variant.op == op)
        total.add(variant.memory.at_start, choice.literal)
    return total


def changed_by(cp: cp_model.CpModel, x: Running, before: Literal) -> Iterator[tuple[int, Literal]]:
    """Yield what something has changed in sum if it is ``before`` an event."""
    *others, last = x.variants
    yield last.memory.net, before
    for variant in others:
        more = variant.memory.net - last.memory.net
        if more and before is not False:
            yield more, conjunction(cp, variant.chosen, before)
