"""Tables as text that fits a width: what a terminal shows and ``print`` in Python."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipesat.core.showing import Column, Table

_NARROWEST = 20  # of a last column whose texts are wrapped


def one_line(text: str) -> str:
    """Keep a message on one line and free of control characters, whatever a file put into it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str, most: int) -> str:
    """Leave out the middle of a long name: layouts and paths differ at their ends, too."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}…{text[len(text) - most + half + 1 :]}"


def lines_of(table: Table, width: int) -> Iterator[str]:
    """Yield a table's lines with its title and notes."""
    if table.title:
        yield from (wrapped(one_line(table.title), width), "")
    yield from table_lines(table, width)
    yield from (wrapped(one_line(note), width) for note in table.notes)


def table_lines(table: Table, width: int) -> Iterator[str]:
    """Yield a table's lines; with less space than its indispensable columns need, they stand out.

    Columns without space follow in further blocks. Names in cells may have any characters. A
    heading without text is no line. A last column of texts goes on in lines of its own. Names that
    would take more than half of the width lose their middle, if they still differ.
    """
    columns = table.columns
    lines = [
        one_line(line) if isinstance(line, str) else [one_line(cell) for cell in line]
        for line in table.lines
    ]
    cells = [line for line in lines if not isinstance(line, str)]
    short = {row[0]: shortened(row[0], max(width // 2, _NARROWEST)) for row in cells}
    if len(columns) > 1 and not columns[0].number and len({*short.values()}) == len(short):
        for row in cells:
            row[0] = short[row[0]]
    widths = [
        max(len(text) for text in (*column.head.split("\n"), *(line[i] for line in cells)))
        for i, column in enumerate(columns)
    ]
    if columns and not columns[-1].number:
        left = width - sum(widths[:-1]) - (len(columns) - 1)
        widths[-1] = min(widths[-1], max(left, _NARROWEST))
    for block, (shown, gap) in enumerate(_blocks(columns, widths, width)):

        def joined(texts: Sequence[str], shown: list[int] = shown, gap: int = gap) -> str:
            aligned = (
                text.rjust(widths[i]) if columns[i].number else text.ljust(widths[i])
                for i, text in zip(shown, texts, strict=True)
            )
            return (" " * gap).join(aligned).rstrip()

        yield from [""] * (block > 0)
        heads = [columns[i].head.split("\n") for i in shown]
        for level in range(max(map(len, heads), default=0), 0, -1):
            texts = [head[-level] if level <= len(head) else "" for head in heads]
            if any(texts):
                yield joined(texts)
        for line in lines if block == 0 else cells:
            if isinstance(line, str):
                yield line
                continue
            *texts, last = (line[i] for i in shown)
            parts = [last] if columns[shown[-1]].number else _wrap(last, widths[shown[-1]])
            for part in parts or [""]:
                yield joined([*texts, part])
                texts = ["" for _ in texts]


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _blocks(
    columns: Sequence[Column], widths: Sequence[int], width: int
) -> Iterator[tuple[list[int], int]]:
    """Yield the columns of each block, and how many spaces between them: two, or one.

    Each block begins with the lines' names: the first texts that are always shown, or the first
    column. Every further one has a column of its own.
    """
    fixed = [*takewhile(lambda i: not (columns[i].number or columns[i].spare), range(len(columns)))]
    shown, names, least = [*range(len(columns))], fixed or [0], 0
    while True:
        left: list[int] = []
        while True:
            space = width - sum(widths[i] for i in shown)
            gap = 2 if space >= 2 * (len(shown) - 1) else 1
            spare = [i for i in shown if columns[i].spare and i not in names]
            if space >= gap * (len(shown) - 1) or len(spare) <= least:
                break
            left.append(max(spare, key=lambda i: columns[i].spare))
            shown.remove(left[-1])
        yield shown, gap
        if not left:
            return
        shown, least = [*names, *sorted(left)], 1


def wrapped(text: str, width: int) -> str:
    """Wrap a text between words; further lines start four spaces deeper than the first."""
    return textwrap.fill(
        text,
        max(width, 20),
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
