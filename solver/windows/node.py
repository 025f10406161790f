"""What a window models: what is free, and items between that."""

from __future__ import annotations

from dataclasses import dataclass, field

from ortools.sat.python import cp_model

NO_PATH = -(1 << 62)


@dataclass(eq=False)
class Node:
    """Something free, or an item between: it lasts ``least`` or more, within ``[low, high]``.

    ``place`` is its item's number in the graph, that of none for one that is not there at
    present. ``tail`` is the longest path from its end that passes no free op, ``tail_of_start``
    one from its start. ``fixed`` is what keeps its place. ``start`` and ``end`` are its
    variables, once it has them.
    """

    place: int
    least: int
    fixed: bool = False
    low: int = 0
    high: int = 0
    tail: int = NO_PATH
    tail_of_start: int = NO_PATH
    start: cp_model.IntVar = field(init=False)
    end: cp_model.LinearExpr = field(init=False)

    @property
    def last_start(self) -> int:
        """Latest start."""
        return self.high - self.least
