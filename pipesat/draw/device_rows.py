"""What a Gantt chart shows of schedules, as arrays, so that 100,000 ops stay fast.

The repeating middle of a long schedule is shown once. It repeats from ``begin`` on, ``times``
times, if every op that starts in one period starts again in the next one, ``period`` later, for a
microbatch that is a fixed number further on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pipesat.draw.style import class_tints
from pipesat.problem.ops import KINDS, Copy, Pair, members
from pipesat.schedule.metrics import MemoryProfile, memory_profiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipesat.core.arrays import Ints
    from pipesat.problem.problem import Problem
    from pipesat.schedule.schedule import Schedule


WHOLE, UPPER, LOWER = range(3)
"""Which part of its row's height a box takes: a pair is drawn as two halves."""

SHOWN: Final = (*KINDS, "O", "L")
FIELDS: Final = "stage kind microbatch start end mode part chunk tint row"
"""Of a box. ``kind`` is a place in SHOWN, ``chunk`` one among the stages of its device."""

Boxes = Any  # a record array with FIELDS, all of them integers


@dataclass(frozen=True)
class PictureRow:
    """One row: a device of a schedule. ``top`` is its upper end, counted in rows."""

    name: str
    top: float
    memory: MemoryProfile
    capacity: int | None
    static: int

    @property
    def peak(self) -> int:
        """The most that it holds."""
        return int(self.memory.held.max())


@dataclass(frozen=True)
class Rows:
    """All rows with a box per op and per copy; ``alone``: those of one schedule."""

    rows: tuple[PictureRow, ...]
    boxes: Boxes
    height: float
    alone: bool

    def of(self, *kinds: str) -> Boxes:
        """Return the boxes of ops, or of the kinds asked for."""
        return self.boxes[np.isin(self.boxes["kind"], [*map(SHOWN.index, kinds or KINDS)])]


def rows_of(problem: Problem, schedules: Mapping[str, Schedule]) -> Rows:
    """Return the rows of a schedule, or of several of a problem by name.

    Of several, all rows of one device stand together, without memory.
    """
    alone, nothing = len(schedules) == 1, MemoryProfile(np.zeros(1, int), np.zeros(1, int))
    held = [nothing] * len(problem.devices)
    if alone:
        held = [*memory_profiles(problem, *schedules.values())]
    rows: list[PictureRow] = []
    boxes: list[tuple[int, ...]] = []
    top = 0.0
    for device, data in enumerate(problem.devices):
        top += 0.0 if alone or not device else 0.4
        for name, schedule in schedules.items():
            boxes += _boxes(problem, schedule, device, len(rows))
            label = problem.device_name(device) + ("" if alone else f" {name}")
            capacity = data.memory if alone else None
            rows.append(PictureRow(label, top, held[device], capacity, data.static))
            top += 1
    entries = np.array(boxes, dtype=[(name, np.int64) for name in FIELDS.split()])
    return Rows(tuple(rows), entries, top, alone)


def _boxes(
    problem: Problem, schedule: Schedule, device: int, row: int
) -> Iterator[tuple[int, ...]]:
    """Yield the fields of a box per op of a device, so a pair gives two, and per copy."""
    tints = class_tints(problem)
    chunks = {stage: place for place, stage in enumerate(problem.stages_on[device])}
    for item, (_, start, end) in zip(schedule.order[device], schedule.devices[device], strict=True):
        parts = (UPPER, LOWER) if isinstance(item, Pair) else (WHOLE,)
        for op, part in zip(members(item), parts, strict=True):
            tint = 0 if tints is None else tints.of(problem, op.stage, op.microbatch)
            place = (start, end, op.mode, part, chunks[op.stage], tint, row)
            yield (op.stage, SHOWN.index(op.kind), op.microbatch, *place)
    for copy, start, end in schedule.copies_of(device):
        if isinstance(copy, Copy):
            kind = SHOWN.index(copy.kind)
            yield copy.stage, kind, copy.microbatch, start, end, 0, WHOLE, 0, 0, row


_LEAST_TIMES = 4


class Fold(NamedTuple):
    """The middle that repeats: ``times`` periods from ``begin`` on, of which one is shown."""

    begin: int
    period: int
    times: int

    @property
    def hidden(self) -> int:
        """How long what is left out lasts."""
        return (self.times - 1) * self.period

    @property
    def seam(self) -> int:
        """End of the period that is shown."""
        return self.begin + self.period

    def shown(self, starts: Any) -> NDArray[np.bool_]:
        """Whether what begins at these times is drawn."""
        return (starts < self.seam) | (starts >= self.seam + self.hidden)

    def moved(self, times: Any) -> Any:
        """Where times are drawn that are shown."""
        return np.where(times < self.seam + self.hidden, times, times - self.hidden)


def fold_of(boxes: Boxes) -> Fold | None:
    """Return the repetition that leaves out most, ``None`` if there is none.

    ``boxes`` has all ops and copies, at least one.
    """
    keys, group = np.unique(boxes[["stage", "kind"]], return_inverse=True)
    last = int(boxes["microbatch"].max())
    start, shape = (np.full((len(keys), last + 1), -1, dtype=np.int64) for _ in range(2))
    start[group, boxes["microbatch"]] = boxes["start"]
    # length and mode have to be equal as well
    shape[group, boxes["microbatch"]] = 64 * (boxes["end"] - boxes["start"]) + boxes["mode"]
    longest = start[0]
    best = None
    for step in range(1, max(2, last // _LEAST_TIMES)):
        middle = (last - step) // 2
        if longest[middle] < 0 or longest[middle + step] < 0:
            continue
        fold = _longest(start, shape, step, int(longest[middle + step] - longest[middle]))
        if fold is not None and (best is None or fold.hidden > best.hidden):
            best = fold
        if best is not None and 2 * best.hidden > int(boxes["end"].max()):
            break  # longer periods cannot leave out much more
    return best


def _longest(start: Ints, shape: Ints, step: int, period: int) -> Fold | None:
    """Return the longest repetition of a period that goes on by ``step`` microbatches."""
    if period <= 0:
        return None
    before, after = start[:, :-step], start[:, step:]
    same = (before >= 0) & (after - before == period) & (shape[:, :-step] == shape[:, step:])
    ends = np.concatenate([start[:, -step:].ravel(), before[~same]])  # nothing follows on these
    starts = np.concatenate([start[:, :step].ravel(), after[~same]])  # and these follow on nothing
    breaks = np.unique(np.concatenate([ends[ends >= 0], starts[starts >= 0] - period]))
    widest = int(np.argmax(np.diff(breaks)))
    inside = start[(start > breaks[widest]) & (start < breaks[widest + 1])]
    if not len(inside):
        return None
    begin = int(inside.min())
    times = (int(breaks[widest + 1]) + period - begin) // period
    return Fold(begin, period, times) if times >= _LEAST_TIMES else None
