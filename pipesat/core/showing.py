"""Answers: labelled lines and tables, said once and shown by terminal, notebook, page and files."""

from __future__ import annotations

import base64
import csv
import html
import importlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from textwrap import fill
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from pipesat.core.amounts import (
    Rounding,
    memory_cell,
    rounded,
    rounded_down,
    rounded_up,
    seconds_of,
    significant,
    time_cell,
)
from pipesat.core.claims import at_most, percent
from pipesat.core.errors import BadInput
from pipesat.core.text_tables import lines_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Facts: TypeAlias = Sequence[tuple[str, str]]
"""What a few lines say: a label and a text each."""
Line: TypeAlias = Sequence[str] | str
"""The cells of one line of a table, or a text across all columns."""


@dataclass(frozen=True)
class Column:
    """A column: its heading (lines separated by newlines), and whether it holds numbers.

    ``spare`` is 0 for a column that stands beside the lines' names; of the others, the largest goes
    first into a block below where a terminal is too narrow.
    """

    head: str
    number: bool = True
    spare: int = 0


@dataclass(frozen=True)
class Table:
    """A table as every reader sees it; ``title`` is above it, ``notes`` are below."""

    columns: Sequence[Column]
    lines: Sequence[Line]
    title: str = ""
    notes: Sequence[str] = ()

    def beginning(self) -> Table:
        """Return its first rows, and below them how many more there are."""
        more = len(self.lines) - _MOST_ROWS
        notes = [*self.notes, *([f"and {more} more rows: to_frame()"] if more > 0 else [])]
        return replace(self, lines=self.lines[:_MOST_ROWS], notes=notes)

    def html(self) -> str:
        """Return it as HTML, with its title and notes."""
        sides = ["" if column.number else _LEFT for column in self.columns]

        def row(cells: Line, tag: str) -> str:
            if isinstance(cells, str):
                return f"<tr><td colspan={len(sides)} {_LEFT}>{html.escape(cells)}</td></tr>"
            pairs = zip(cells, sides, strict=True)
            texts = (f"<{tag} {side}>{html.escape(text)}</{tag}>" for text, side in pairs)
            return f"<tr>{''.join(texts)}</tr>"

        head = row([" ".join(column.head.split()) for column in self.columns], "th")
        shown = self.beginning()
        lines = "".join(row(line, "td") for line in shown.lines)
        title = f"<caption {_LEFT}>{html.escape(self.title)}</caption>" if self.title else ""
        below = "".join(f"<p>{html.escape(note)}</p>" for note in shown.notes)
        return f"<table>{title}{head}{lines}</table>{below}"


_MOST_ROWS: Final = 60  # of a table in a notebook, or of one that is printed
_WIDTH: Final = 100  # of one that is printed
_LEFT: Final = 'style="text-align:left"'
_SHARES: Final = (
    *("bubble_", "of_capacity", "lost_", "gain_", "ahead_", "noise_"),
    *("over_best", "above_it"),
)
_RATIOS: Final[dict[str, Rounding]] = {
    "to_best": partial(rounded, apart=1),
    "to_bound": rounded_up,
    "share_of_1f1b": rounded_up,
}
"""How each is rounded: only the bound's is a limit of anything, and memory is rounded up."""


def table_of(
    records: Sequence[Mapping[str, Any]],
    title: str = "",
    notes: Sequence[str] = (),
    units: Mapping[str, str] | None = None,
) -> Table:
    """Return rows with the same keys as a table; columns in which nothing is known are left out.

    Where there is no space, the last one that may goes below first: numbers but the gap, and the
    names of baselines. ``units`` says what a column's times or memory are in: they are shown in ms,
    GiB and so on if that is known.
    """
    units = units or {}
    names = [name for name in (records or [{}])[0] if any(r[name] is not None for r in records)]
    columns = []
    for place, name in enumerate(names):
        number = not any(isinstance(record[name], str) for record in records)
        head = f"{name}_(ms)" if seconds_of(units.get(name, "")) else name
        may_go = name == "baseline" or (number and name != "gap")
        columns.append(Column(head.replace("_", "\n"), number, place if may_go else 0))
    lines = [
        [_cell(name, record[name], units.get(name, ""), record.get("gap")) for name in names]
        for record in records
    ]
    return Table(columns, lines, title, [*filter(None, notes)])


def _cell(name: str, value: Any, unit: str, gap: float | None) -> str:
    if seconds_of(unit):  # a bound that is the value looks as it does
        below = name == "bound" and gap != 0
        return time_cell(value, unit, rounded_down if below else rounded)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _figure(name, value)
    if unit and isinstance(value, int):
        return memory_cell(value, unit)
    return "-" if value is None else str(value)


def _figure(name: str, value: float) -> str:
    if name.startswith(_SHARES):
        return percent(value)
    if name == "gap":  # an upper limit
        return at_most(value)
    if name in _RATIOS:
        return significant(value, 4, _RATIOS[name])
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def csv_of(records: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows with the same keys as a CSV file; what is unknown is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*records[0]] if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()


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


def table_document(table: Table) -> dict[str, Any]:
    """Return a table as it is shown, ready for JSON; :func:`table_from` reads it."""
    columns = [{"head": one.head, "number": one.number} for one in table.columns]
    return {"title": table.title, "columns": columns, "lines": [*table.lines]}


class Displayed:
    """An answer: ``print`` or ``plot`` it, make a table of it, or end a notebook's cell with it.

    ``facts`` are its at most 12 labelled lines, ``details`` what ``-v`` adds, ``tables`` what is
    shown above them.
    """

    __slots__ = ()
    answer_first: ClassVar[bool] = False
    """Whether the lines are shown above the tables, because these are long."""

    def facts(self) -> Facts:
        """Return the answer: a label and a text each, the most important first."""
        raise NotImplementedError

    def details(self) -> Facts:
        """Return what else is known, in the same form."""
        return ()

    def tables(self) -> Iterator[Table]:
        """Yield the tables that are shown above the lines."""
        yield from ()

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of its table, each a dictionary with the same keys."""
        raise NotImplementedError

    def to_frame(self) -> Any:
        """Return its table as a pandas ``DataFrame``, if pandas is installed.

        Raises
        ------
        BadInput
            If it is not.
        """
        return frame_of(self.records())

    def plot(self) -> Figure | None:
        """Draw it; return a matplotlib figure, ``None`` where there is nothing to draw.

        Write it with ``savefig``; a notebook shows it at the end of a cell. No window is opened.

        Raises
        ------
        BadInput
            If answers of this kind have no picture.
        """
        raise BadInput(f"{type(self).__name__} has no picture: print it, or call `to_frame()`")

    def __repr__(self) -> str:
        facts = [(label, text) for label, text in self.facts() if text]
        widest = max((len(label) for label, _ in facts), default=0)
        lines = [
            fill(
                f"  {label:<{widest}}  {' '.join(text.split())}",
                width=80,
                subsequent_indent=" " * (widest + 4),
                break_long_words=False,
                break_on_hyphens=False,
            )
            for label, text in facts
        ]
        tables = (table.beginning() for table in self.tables())
        drawn = ("\n".join(lines_of(table, _WIDTH)) for table in tables if table.lines)
        return "\n\n".join(["\n".join([type(self).__name__, *lines]), *drawn])

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<tr><th {_LEFT}>{html.escape(label)}</th><td {_LEFT}>{html.escape(text)}</td></tr>"
            for label, text in self.facts()
            if text
        )
        png = self._repr_png_()
        if png is None:
            tables = [*self.tables()] or [table_of(self.records())]
            return f"<table>{facts}</table>{''.join(table.html() for table in tables)}"
        data = base64.b64encode(png).decode()
        picture = f'<img src="data:image/png;base64,{data}" style="max-width:100%">'
        return f"<table>{facts}</table>{picture}"

    def _repr_png_(self) -> bytes | None:
        figure: Any = None
        if type(self).plot is not Displayed.plot:
            figure = self.plot()
        return None if figure is None else bytes(figure._repr_png_())


@dataclass(frozen=True, repr=False)
class Said(Displayed):
    """An answer of a few lines, and tables."""

    said: Facts = ()
    shown: Sequence[Table] = ()

    def facts(self) -> Facts:
        """Return the lines."""
        return self.said

    def tables(self) -> Iterator[Table]:
        """Yield the tables."""
        yield from self.shown


def sentences(parts: Iterable[str]) -> str:
    """Join texts as sentences; the first one begins a line and stays as it is."""
    first, *others = [*parts] or [""]
    return ". ".join([first, *(text[:1].upper() + text[1:] for text in others)])


def number(value: int | None) -> str:
    """Show an integer; ``-`` if unknown."""
    return "-" if value is None else str(value)


def ranges(numbers: Sequence[int]) -> str:
    """Show ascending numbers: ``0–3, 5``."""
    runs = ([n for _, n in run] for _, run in groupby(enumerate(numbers), lambda x: x[1] - x[0]))
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
