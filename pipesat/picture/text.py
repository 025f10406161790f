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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule

_NEAR = 5  # columns by which lines may differ without harm


def round_step(makespan: int, most: int) -> int:
    """Smallest of 1, 2, 5, 10, 20, 50, ... with at most ``most`` steps in ``[0, makespan]``."""
    step = 1
    while makespan > most * step:
        leading = int(str(step)[0])
        step = step * 5 // 2 if leading == 2 else step * 2
    return step


class Label(NamedTuple):
    """A text from ``start`` to ``end``, in time units."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class ColumnScale:
    """``makespan`` time units in ``total`` columns; ``free`` ones stay free behind every text."""

    makespan: int
    total: int
    free: int

    def column(self, time: int) -> int:
        """Column of a time, rounded."""
        return (2 * time * self.total + self.makespan) // (2 * self.makespan)

    def shows(self, label: Label) -> bool:
        """Whether a label's text has room."""
        room = self.column(label.end) - self.column(label.start)
        return room >= len(label.text) + self.free


def smallest_scale(
    rows: Sequence[Sequence[Label]], makespan: int, most: int, free: int
) -> ColumnScale | None:
    """Return the scale of fewest columns, up to ``most``, that shows every text; ``None`` if none.

    Times that are all multiples of a step that gets a column or more get equally wide steps.
    """
    least = max((sum(len(label.text) + free for label in row) for row in rows), default=0)
    if not makespan or least > most:
        return None
    times = (time for row in rows for label in row for time in (label.start, label.end))
    steps = makespan // math.gcd(makespan, *times)
    sizes = range(steps, most + 1, steps) if steps <= most else range(max(1, least), most + 1)
    scales = (ColumnScale(makespan, total, free) for total in sizes)
    return next((s for s in scales if all(s.shows(label) for row in rows for label in row)), None)


def cuts(rows: Sequence[Sequence[Label]], scale: ColumnScale, columns: int) -> list[int] | None:
    """Return columns that cut the axis into about equal lines of at most ``columns``.

    From 0 to the total, whose last free column does not count. As few ops as possible are parted,
    and no text: it stands before the cut or behind it. ``None`` where that would make a line
    shorter than half of ``columns``.
    """
    ends = [0]
    while (rest := scale.total - scale.free - ends[-1]) > columns:
        lines = -(-rest // columns)
        aim, least, most = (ends[-1] + n for n in (-(-rest // lines), columns // 2, columns))
        parted = {cut: _parted(rows, scale, cut) for cut in range(least + 1, most + 1)}
        near = ((abs(cut - aim) // _NEAR, n, cut) for cut, n in parted.items() if n is not None)
        best = min(near, default=None)
        if best is None:
            return None
        ends.append(best[-1])
    return [*ends, scale.total]


def _parted(rows: Sequence[Sequence[Label]], scale: ColumnScale, cut: int) -> int | None:
    """Return how many ops are parted by a cut; ``None`` if one would lose its text."""
    number = 0
    for row in rows:
        for label in row:
            before = cut - scale.column(label.start)
            behind = scale.column(label.end) - cut
            if before > 0 and behind > 0:
                number += 1
                if max(before, behind - scale.free) < len(label.text):
                    return None
    return number


def draw_row(row: Sequence[Label], scale: ColumnScale, ends: Sequence[int]) -> list[str]:
    """Return one row's lines: ``F3---`` for an op, dots where it is idle."""
    line, at = "", 0
    for text, start, end in [*row, Label("", scale.makespan, scale.makespan)]:
        begin, stop = scale.column(start), scale.column(end)
        line += _filled("", ".", begin - at, scale.free)
        inner = [end for end in ends if begin < end < stop]
        if inner and inner[0] - begin < len(text):  # the text stands behind the cut
            line += "-" * (inner[0] - begin)
            begin = inner[0]
        line += _filled(text, "-", stop - begin, scale.free)
        at = stop
    return [line[a:b] for a, b in pairwise(ends)]


def _filled(text: str, filler: str, room: int, free: int) -> str:
    free = min(free, max(0, room - len(text)))
    return text.ljust(room - free, filler) + " " * free


def draw_ruler(scale: ColumnScale, ends: Sequence[int]) -> Iterator[str]:
    """Yield the lines' rulers: round times, each beginning at its column."""
    step = round_step(scale.makespan, max(1, scale.total // (len(str(scale.makespan)) + 2)))
    for first, last in pairwise(ends):
        line = ""
        for time in range(0, scale.makespan + 1, step):
            column = scale.column(time)
            if first <= column and column + len(str(time)) <= last:
                line = f"{line:<{column - first}}{time}"
        yield line


_LONGEST_NAME = 16
_FEWEST_COLUMNS = 12
_MOST_BLOCKS = 6
_HEADING = ("ops in execution order;", "[n]: idle for n")
_SPACED, _TIGHT = 1, 0  # columns that stay free behind an op's text


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
        return "\n".join(_lists(rows, schedule.makespan, names, margin, columns))
    return "\n\n".join(
        "\n".join(
            f"{name:<{margin}}{line}".rstrip() for name, line in zip(names, lines, strict=True)
        )
        for lines in blocks
    )


def _blocks(
    rows: Sequence[Sequence[Label]], makespan: int, columns: int, whole: bool
) -> list[tuple[str, ...]] | None:
    """Return blocks of lines along the time axis, each with its ruler first; ``None`` if too many.

    One block without spaces goes before several; but whole op texts need spaces: ``0F11F0``.
    """
    ways = [(_SPACED, 1), (_TIGHT, 1), (_SPACED, _MOST_BLOCKS)]
    for free, most in [way for way in ways if not (whole and way[0] == _TIGHT)]:
        scale = smallest_scale(rows, makespan, most * columns + free, free)
        ends = None if scale is None else cuts(rows, scale, columns)
        if scale is not None and ends is not None:
            drawn = (draw_row(row, scale, ends) for row in rows)
            return list(zip(draw_ruler(scale, ends), *drawn, strict=True))
    return None


def _lists(
    rows: Sequence[Sequence[Label]], makespan: int, names: Sequence[str], margin: int, columns: int
) -> Iterator[str]:
    """Yield the lines of the lists, wrapped."""
    for name, tokens in zip(
        names, [_HEADING, *(_tokens(row, makespan) for row in rows)], strict=True
    ):
        for number, line in enumerate(_wrapped(tokens, columns)):
            yield f"{name if number == 0 else '':<{margin}}{line}".rstrip()


def _tokens(row: Sequence[Label], makespan: int) -> Iterator[str]:
    """Yield op texts and idle gaps in execution order."""
    at = 0
    for text, start, end in [*row, Label("", makespan, makespan)]:
        if start > at:
            yield f"[{start - at}]"
        if text:
            yield text
        at = end


def _wrapped(tokens: Iterable[str], columns: int) -> Iterator[str]:
    line = ""
    for token in tokens:
        if line and len(line) + 1 + len(token) > columns:
            yield line
            line = ""
        line += f" {token}" if line else token
    yield line


def _text(item: Item, whole: bool) -> str:
    if isinstance(item, Op):
        return str(item) if whole else f"{item.kind}{item.microbatch}"
    return f"({_text(item.first, whole)}+{_text(item.second, whole)})"


def _short(name: str) -> str:
    """Return a name on one line, without its middle if it is long."""
    name = "".join(c if c.isprintable() else "?" for c in " ".join(name.split()))
    half = (_LONGEST_NAME - 2) // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}..{name[-half:]}"
