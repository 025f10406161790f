"""One (stage, microbatch) in a model: what starts when, in which way, and what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from ortools.sat.python import cp_model

from pipesat.solver.model.variants import Literal
from pipesat.solver.modes.ways import Part, Way

Expression: TypeAlias = cp_model.LinearExpr | int

Start: TypeAlias = cp_model.IntVar | int
"""A variable, or a time that is fixed."""


@dataclass
class Cell:
    """Starts and ways of one (stage, microbatch).

    ``chosen[i]`` says whether it runs in ``ways[i]``: exactly one does. ``start`` has F, B and, if
    some way has it, W, O and L.
    """

    stage: int
    microbatch: int
    device: int
    ways: list[Way]
    chosen: list[Literal]
    start: dict[Part, Start] = field(default_factory=dict)

    def lengths(self, part: Part) -> Iterator[tuple[int, Literal]]:
        """Yield each length that a part may have, and the literal for it; ways without it none."""
        for way, literal in zip(self.ways, self.chosen, strict=True):
            if (length := way.length(part)) is not None:
                yield length, literal

    def length(self, part: Part) -> Expression:
        """Length of a part; 0 if it is absent."""
        found = list(self.lengths(part))
        known = {length for length, _ in found}
        if len(known) == 1 and len(found) == len(self.ways):
            return known.pop()
        total: Expression = 0
        for length, literal in found:
            if not isinstance(literal, bool):
                total = total + length * literal
            elif literal:
                total = total + length
        return total

    def end(self, part: Part) -> Expression:
        """End of a part; its start if it is absent."""
        return self.start[part] + self.length(part)

    def intervals(self, cp: cp_model.CpModel, part: Part) -> Iterator[cp_model.IntervalVar]:
        """Yield the intervals that a part may occupy, one of which is there if the part is."""
        found = list(self.lengths(part))
        start = self.start[part]
        if len(found) == len(self.ways) and len({length for length, _ in found}) == 1:
            yield cp.new_fixed_size_interval_var(start, found[0][0], "")
            return
        for length, literal in found:
            if literal is True:
                yield cp.new_fixed_size_interval_var(start, length, "")
            elif literal is not False:
                yield cp.new_optional_fixed_size_interval_var(start, length, literal, "")
