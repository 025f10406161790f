"""A schedule as text: time runs to the right, one row per device, dots where it is idle.

::

    us        0  1  2  3  4  5  6
    device 0  F0 F1 .. B0 W0 B1 W1
    device 1  .. F0 B0 F1 B1 W0 W1

An axis that is too long goes on in further blocks below. If that would take many, the rows become
lists in execution order, with the length of every idle gap in square brackets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.picture.text_rows import Label, cuts, draw_row, draw_ruler, smallest_scale

_LONGEST_NAME = 16
_FEWEST_COLUMNS = 12
_MOST_BLOCKS = 6
_HEADING = ("ops in execution order;", "[n]: idle for n")
_SPACED, _TIGHT = 1, 0  # columns that stay free behind an op's text


def text_grid(problem: Problem, schedule: Schedule, width: int) -> str:
    """Draw a schedule in ``width`` columns; with fewer than some 30, names may stand out.

    An op is written ``F3`` if every device holds one stage at most, otherwise in full, ``7F3``. The
    scale is the smallest at which every op shows its text. No line ends with spaces.

    Raises
    ------
    ValueError
        If an item of the schedule is unreadable.
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
