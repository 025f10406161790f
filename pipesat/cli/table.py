"""Plain-text tables that fit a terminal: columns are left out, never cut or wrapped."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Column:
    """A column: its heading (lines parted by newlines), and whether numbers stand in it.

    ``spare`` is 0 for a column that is always shown; of the others, the largest goes first where a
    terminal is too narrow.
    """

    head: str
    number: bool = True
    spare: int = 0


_NARROWEST = 20  # of a last column whose texts are wrapped

Line: TypeAlias = Sequence[str] | str
"""The cells of one line, or a text across all columns."""


def table_lines(
    columns: Sequence[Column], lines: Sequence[Line], width: int, *, wrap_last: bool = False
) -> Iterator[str]:
    """Yield a table's lines; with less room than its indispensable columns need, they stand out.

    With ``wrap_last``, the texts of the last column go on in lines of their own.
    """
    cells = [line for line in lines if not isinstance(line, str)]
    widths = [
        max(len(text) for text in (*column.head.split("\n"), *(line[i] for line in cells)))
        for i, column in enumerate(columns)
    ]
    if wrap_last:
        left = width - sum(widths[:-1]) - (len(columns) - 1)
        widths[-1] = min(widths[-1], max(left, _NARROWEST))
    shown, gap = _choose(columns, widths, width)
    heads = [columns[i].head.split("\n") for i in shown]
    deepest = max(map(len, heads))
    for level in range(deepest):
        texts = [([""] * (deepest - len(head)) + head)[level] for head in heads]
        yield _line(columns, widths, shown, texts, gap)
    for line in lines:
        if isinstance(line, str):
            yield line
            continue
        *texts, last = (line[i] for i in shown)
        parts = textwrap.wrap(last, widths[-1], break_long_words=False) if wrap_last else [last]
        for number, part in enumerate(parts or [""]):
            yield _line(
                columns, widths, shown, [*(texts if number == 0 else [""] * len(texts)), part], gap
            )


def _choose(columns: Sequence[Column], widths: Sequence[int], width: int) -> tuple[list[int], int]:
    """Which columns to show, and how many spaces between them: two, one, or fewer columns."""
    shown = list(range(len(columns)))
    while True:
        room = width - sum(widths[i] for i in shown)
        gap = 2 if room >= 2 * (len(shown) - 1) else 1
        spare = [i for i in shown if columns[i].spare]
        if room >= gap * (len(shown) - 1) or not spare:
            return shown, gap
        shown.remove(max(spare, key=lambda i: columns[i].spare))


def _line(
    columns: Sequence[Column],
    widths: Sequence[int],
    shown: Sequence[int],
    texts: Sequence[str],
    gap: int,
) -> str:
    aligned = (
        text.rjust(widths[i]) if columns[i].number else text.ljust(widths[i])
        for i, text in zip(shown, texts, strict=True)
    )
    return (" " * gap).join(aligned).rstrip()


def wrapped(text: str, width: int, *, indent: str = "") -> str:
    """Wrap a text between words; further lines start four spaces deeper than the first."""
    return textwrap.fill(
        text,
        max(width, 20),
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
