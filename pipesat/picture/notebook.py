"""What a notebook shows of an answer, and its table for pandas."""

from __future__ import annotations

import base64
import html
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pipesat.core.errors import BadInput
from pipesat.core.showing import table_of
from pipesat.core.summary import records_of_stages

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.showing import Displayed, Line, Table

_MOST_ROWS: Final = 60  # of a table without a picture
_LEFT: Final = 'style="text-align:left"'


def frame_of(records: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a pandas ``DataFrame``; a column of texts and numbers has them as texts."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise BadInput(
            "to_frame() needs pandas, which is not installed: pip install pandas. records() gives "
            "the same rows as dictionaries"
        ) from None
    mixed = {
        name
        for record in records
        for name, value in record.items()
        if isinstance(value, str) and any(isinstance(one.get(name), int | float) for one in records)
    }
    return pandas.DataFrame(
        [
            {k: str(v) if k in mixed and v is not None else v for k, v in record.items()}
            for record in records
        ]
    )


def png_of(shown: Displayed) -> bytes | None:
    """Return an answer's picture as a PNG file, ``None`` where there is nothing to draw."""
    from pipesat.picture.figures import file_of  # matplotlib is slow to import

    figure = shown.plot()
    return None if figure is None else file_of(figure, "png")


def html_of(shown: Displayed) -> str:
    """Return an answer as HTML: its lines, and its picture, or else its tables."""
    facts = "".join(
        f"<tr><th {_LEFT}>{html.escape(label)}</th><td {_LEFT}>{html.escape(text)}</td></tr>"
        for label, text in shown.facts()
        if text
    )
    png = png_of(shown)
    if png is None:
        tables = [*shown.tables()] or [table_of(shown.records())]
        return f"<table>{facts}</table>{''.join(map(html_of_table, tables))}"
    data = base64.b64encode(png).decode()
    picture = f'<img src="data:image/png;base64,{data}" style="max-width:100%">'
    return f"<table>{facts}</table>{picture}"


def html_of_table(table: Table) -> str:
    """Return a table as HTML, with its title and notes."""
    sides = ["" if column.number else _LEFT for column in table.columns]

    def row(cells: Line, tag: str) -> str:
        if isinstance(cells, str):
            return f"<tr><td colspan={len(sides)} {_LEFT}>{html.escape(cells)}</td></tr>"
        pairs = zip(cells, sides, strict=True)
        texts = (f"<{tag} {side}>{html.escape(text)}</{tag}>" for text, side in pairs)
        return f"<tr>{''.join(texts)}</tr>"

    head = row([" ".join(column.head.split()) for column in table.columns], "th")
    lines = "".join(row(line, "td") for line in table.lines[:_MOST_ROWS])
    more = len(table.lines) - _MOST_ROWS
    notes = [*table.notes, *([f"and {more} more rows: to_frame()"] if more > 0 else [])]
    title = f"<caption {_LEFT}>{html.escape(table.title)}</caption>" if table.title else ""
    return f"<table>{title}{head}{lines}</table>" + "".join(
        f"<p>{html.escape(note)}</p>" for note in notes
    )


def html_of_problem(problem: Problem) -> str:
    """Return a problem as HTML: what it is, and a table of its stages."""
    heading = f"<p>{html.escape(repr(problem).strip('<>'))}</p>"
    return heading + html_of_table(table_of(records_of_stages(problem)))
