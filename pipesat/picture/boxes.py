"""What a Gantt chart draws: one box per op, as arrays, so that 100,000 ops stay fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipesat.core.ops import KINDS, Op, Pair

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pipesat.core.arrays import Ints
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule

WHOLE, UPPER, LOWER = range(3)
"""Which part of its device's lane a box takes: pairs are drawn as two stacked halves."""


@dataclass(frozen=True)
class Boxes:
    """The ops of one device, one entry of each array per op, in execution order.

    ``kind`` indexes :data:`KINDS`; ``start`` and ``end`` are in time units; ``mode`` is 0
    where a microbatch is kept; ``part`` is ``WHOLE``,
    or ``UPPER`` and ``LOWER``, the first and second member of a pair; ``tint`` is the shade of the
    microbatch's class (:mod:`pipesat.picture.classes`), 0 where microbatches do not differ.
    """

    stage: Ints
    kind: Ints
    microbatch: Ints
    part: Ints
    start: Ints
    end: Ints
    mode: Ints
    tint: Ints

    def __len__(self) -> int:
        return len(self.start)

    def only(self, chosen: NDArray[np.bool_]) -> Boxes:
        """Return the boxes where ``chosen`` is true."""
        return Boxes(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def boxes_of(problem: Problem, schedule: Schedule) -> list[Boxes]:
    """Return the boxes of every device: one per op, so a pair gives two.

    Raises
    ------
    ValueError
        If an item is unreadable (only possible in a schedule read for the checker).
    """
    import numpy as np

    from pipesat.picture.classes import class_tints

    index = {kind: number for number, kind in enumerate(KINDS)}
    tints = class_tints(problem)

    def entry(op: Op, part: int, start: int, end: int) -> tuple[int, ...]:
        tint = 0 if tints is None else tints.of(problem, op.stage, op.microbatch)
        return op.stage, index[op.kind], op.microbatch, part, start, end, op.mode, tint

    devices = []
    for items, row in zip(schedule.order, schedule.devices, strict=True):
        entries = []
        for item, (_, start, end) in zip(items, row, strict=True):
            if isinstance(item, Pair):
                entries.append(entry(item.first, UPPER, start, end))
                entries.append(entry(item.second, LOWER, start, end))
            else:
                entries.append(entry(item, WHOLE, start, end))
        devices.append(Boxes(*np.array(entries, dtype=np.int64).reshape(-1, 8).T))
    return devices


@dataclass(frozen=True)
class CopyBars:
    """The copies of one device: start and end in time units, and whether they go out."""

    start: Ints
    end: Ints
    out: NDArray[np.bool_]


def copy_bars_of(schedule: Schedule) -> list[CopyBars]:
    """Return the copies of every device."""
    import numpy as np

    bars = []
    for device in range(len(schedule.devices)):
        row = schedule.copies_of(device)
        times = np.array([timed[1:] for timed in row], dtype=np.int64).reshape(-1, 2)
        out = np.array([getattr(timed.copy, "kind", "") == "O" for timed in row], dtype=np.bool_)
        bars.append(CopyBars(times[:, 0], times[:, 1], out))
    return bars
