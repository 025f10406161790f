"""What a Gantt chart shows, and where: handed to whatever draws its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipesat.core.memory import Profile
    from pipesat.core.problem import Problem
    from pipesat.picture.boxes import Boxes, CopyBars
    from pipesat.picture.layout import Layout


@dataclass(frozen=True)
class Contents:
    """Ops, memory and copies of every device (``copies`` is empty if there are none at all)."""

    problem: Problem
    boxes: Sequence[Boxes]
    profiles: Sequence[Profile]
    copies: Sequence[CopyBars]
    layout: Layout
    makespan: int

    @property
    def scale(self) -> float:
        """Pixels per time unit."""
        return (self.layout.right - self.layout.left) / max(1, self.makespan)
