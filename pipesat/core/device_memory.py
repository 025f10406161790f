"""What a device holds while a schedule is being built, counted op by op."""

from __future__ import annotations

from collections.abc import Iterable

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.rules import memory_change


class DeviceMemory:
    """Memory that the items of one device hold, in the order in which they run.

    One runs after the other, so what an item frees at its end is free when the next one starts.
    ``room`` is what may be held (``None``: any amount).
    """

    __slots__ = ("held", "problem", "room")

    def __init__(self, problem: Problem, room: int | None, held: int = 0) -> None:
        self.problem, self.room, self.held = problem, room, held

    def fits(self, item: Item) -> bool:
        """Whether an item may start now."""
        room = self.room
        return room is None or self.held + memory_change(self.problem, item).at_start <= room

    def run(self, item: Item) -> None:
        """Note that an item runs."""
        self.held += memory_change(self.problem, item).net


def fits_in_order(problem: Problem, row: Iterable[Item], room: int | None, held: int = 0) -> bool:
    """Whether items fit that run one after the other, if so much is held before the first."""
    memory = DeviceMemory(problem, room, held)
    for item in row:
        if not memory.fits(item):
            return False
        memory.run(item)
    return True
