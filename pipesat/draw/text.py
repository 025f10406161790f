"""A schedule as text: time runs to the right, one row per device, dots where it is idle.

::

    us        0  1  2  3  4  5  6
    device 0  F0 F1 .. B0 W0 B1 W1
    device 1  .. F0 B0 F1 B1 W0 W1

An axis that is too long goes on in further blocks below. If that would take many, the rows become
lists in execution order, with the length of every idle gap in square brackets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import Final, NamedTuple

from pipesat.problem.ops import Item, Op
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule

_LONGEST_NAME: Final = 16
_FEWEST_COLUMNS: Final = 12
_MOST_BLOCKS: Final = 6
_HEADING: Final = "ops in execution order; [n]: idle for n"


class Label(NamedTuple):
    """A text from ``start`` to ``end``, in time units."""

    text: str
    start: int
    end: int


def text_grid(problem: Problem, schedule: Schedule, width: int) -> str:
    """Draw a schedule in ``width`` columns; with fewer than some 30, names may stand out.

    An op is written ``F3`` if every device holds one stage at most, otherwise in full, ``7F3``. The
    scale is the smallest at which every op shows its text. No line ends with spaces.
    """
    whole = any(len(stages) > 1 for stages in problem.stages_on)
    rows = [
        [Label(_text(item, whole), t.start, t.end) for item, t in zip(items, row, strict=True)]
        for items, row in zip(schedule.order, schedule.devices, strict=True)
    ]
    names = [_short(problem.device_name(device)) for device in range(len(problem.devices))]
    names.insert(0, _short(problem.time_unit or "time"))
    margin = max(map(len, names)) + 2
    columns = max(width - margin, _FEWEST_COLUMNS)
    blocks = _blocks(rows, schedule.makespan, columns, whole)
    if blocks is None:
        found: list[str] = []
        for name, text in zip(names, [_HEADING, *_lists(rows, schedule.makespan)], strict=True):
            first, *others = wrap(text, columns, break_long_words=False) or [""]
            found += [f"{name:<{margin}}{first}", *(" " * margin + line for line in others)]
        return "\n".join(map(str.rstrip, found))
    return "\n\n".join(
        "\n".join(f"{n:<{margin}}{line}".rstrip() for n, line in zip(names, lines, strict=True))
        for lines in blocks
    )


def _blocks(
    rows: Sequence[Sequence[Label]], makespan: int, columns: int, whole: bool
) -> list[list[str]] | None:
    """Return blocks along the time axis, each a ruler and a line per row; ``None`` if too many.

    One block without spaces goes before several; but whole op texts need spaces: ``0F11F0``.
    """
    ways = [(1, 1), *([] if whole else [(0, 1)]), (1, _MOST_BLOCKS)]
    for free, blocks in ways:
        scale = _scale(rows, makespan, blocks * columns + free, free)
        if scale is not None:
            lines = [_ruler(scale), *(_row(row, scale, free) for row in rows)]
            ends = _cuts(lines, columns)
            if ends is not None:
                return [[line[a:b] for line in lines] for a, b in pairwise(ends)]
    return None


class _Scale(NamedTuple):
    """``makespan`` time units in ``total`` columns."""

    makespan: int
    total: int

    def column(self, time: int) -> int:
        """Column of a time, rounded."""
        return (2 * time * self.total + self.makespan) // (2 * self.makespan)


def _scale(rows: Sequence[Sequence[Label]], makespan: int, most: int, free: int) -> _Scale | None:
    """Return the scale of fewest columns that shows every text, with ``free`` behind it.

    Times that are all multiples of a step that gets a column or more get equally wide steps.
    """
    least = max((sum(len(label.text) + free for label in row) for row in rows), default=0)
    if not makespan or least > most:
        return None
    labels = [label for row in rows for label in row]
    times = (time for _, *ends in labels for time in ends)
    steps = makespan // math.gcd(makespan, *times)
    sizes = range(steps, most + 1, steps) if steps <= most else range(max(1, least), most + 1)
    for scale in (_Scale(makespan, total) for total in sizes):
        spaces = (
            scale.column(end) - scale.column(start) - len(text) for text, start, end in labels
        )
        if all(space >= free for space in spaces):
            return scale
    return None


def _row(row: Sequence[Label], scale: _Scale, free: int) -> str:
    """Return one row's line: ``F3---`` for an op, dots where it is idle."""
    line = ""
    for text, start, end in [*row, Label("", scale.makespan, scale.makespan)]:
        for said, until, filler in (("", start, "."), (text, end, "-")):
            space = scale.column(until) - len(line)
            spaces = min(free, max(0, space - len(said)))
            line += said.ljust(space - spaces, filler) + " " * spaces
    return line


def _ruler(scale: _Scale) -> str:
    """Return round times, each beginning at its column."""
    most = max(1, scale.total // (len(str(scale.makespan)) + 2))
    step, line = round_step(scale.makespan, most), ""
    for time in range(0, scale.makespan + 1, step):
        if scale.column(time) + len(str(time)) <= scale.total:
            line = f"{line:<{scale.column(time)}}{time}"
    return line.ljust(scale.total)


def round_step(makespan: int, most: int) -> int:
    """Smallest of 1, 2, 5, 10, 20, 50, ... with at most ``most`` steps in ``[0, makespan]``."""
    step = 1
    while makespan > most * step:
        leading = int(str(step)[0])
        step = step * 5 // 2 if leading == 2 else step * 2
    return step


def _cuts(lines: Sequence[str], columns: int) -> list[int] | None:
    """Return where the axis is cut: late, and through no text; ``None`` if that cannot be."""
    ends, total = [0], max(len(line.rstrip()) for line in lines)
    while total - ends[-1] > columns:
        last = ends[-1] + columns
        clean = (
            at
            for at in range(last, last - columns // 2, -1)
            if all(set(line[at - 1 : at + 1]) & set(" .-") for line in lines)
        )
        if (at := next(clean, None)) is None:
            return None
        ends.append(at)
    return [*ends, total]


def _lists(rows: Sequence[Sequence[Label]], makespan: int) -> Iterator[str]:
    """Yield every row's op texts and idle gaps in execution order."""
    for row in rows:
        words, at = [], 0
        for text, start, end in [*row, Label("", makespan, makespan)]:
            words += [f"[{start - at}]"] * (start > at) + [text]
            at = end
        yield " ".join(filter(None, words))


def _text(item: Item, whole: bool) -> str:
    if isinstance(item, Op):
        return str(item) if whole else f"{item.kind}{item.microbatch}"
    return f"({_text(item.first, whole)}+{_text(item.second, whole)})"


def _short(name: str) -> str:
    """Return a name on one line, without its middle if it is long."""
    name = "".join(c if c.isprintable() else "?" for c in " ".join(name.split()))
    half = (_LONGEST_NAME - 2) // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}..{name[-half:]}"
