"""What a terminal shows: consoles, tables that fit it, problems that are read for it."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from pipesat.cli.exits import one_line
from pipesat.core.showing import Column, Line

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.showing import Displayed, Facts, Table


def stdout() -> Console:
    """Console for results; names from files are never read as markup."""
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=False)


def stderr() -> Console:
    """Console for progress and messages."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    sys.stdout.flush()


__all__ = ["Column", "Line", "print_answer", "print_facts", "print_table", "table_lines", "wrapped"]

_NARROWEST = 20  # of a last column whose texts are wrapped


def table_lines(
    columns: Sequence[Column], lines: Sequence[Line], width: int, *, wrap_last: bool = False
) -> Iterator[str]:
    """Yield a table's lines; with less room than its indispensable columns need, they stand out.

    Names in cells may have any characters. A heading without text is no line. With ``wrap_last``,
    the texts of the last column go on in lines of their own.
    """
    lines = [one_line(x) if isinstance(x, str) else [one_line(cell) for cell in x] for x in lines]
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
    for level in range(max(map(len, heads)), 0, -1):
        texts = [head[-level] if level <= len(head) else "" for head in heads]
        if any(texts):
            yield _line(columns, widths, shown, texts, gap)
    for line in lines:
        if isinstance(line, str):
            yield line
            continue
        *texts, last = (line[i] for i in shown)
        parts = _wrap(last, widths[-1]) if wrap_last else [last]
        for part in parts or [""]:
            yield _line(columns, widths, shown, [*texts, part], gap)
            texts = ["" for _ in texts]


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


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


def print_table(
    columns: Sequence[Column], lines: Sequence[Line], *, wrap_last: bool = False, err: bool = False
) -> None:
    """Print a table that fits the terminal."""
    width = (stderr if err else stdout)().width
    stream = sys.stderr if err else sys.stdout  # click.echo would ignore its encoding
    for line in table_lines(columns, lines, width, wrap_last=wrap_last):
        stream.write(f"{line}\n")
    stream.flush()


def print_answer(answer: Displayed, more: Facts = (), *, verbose: bool = False) -> None:
    """Print an answer: its tables, then its labelled lines; ``verbose`` adds all else."""
    facts = [*answer.facts(), *more]
    if answer.answer_first:
        print_facts(facts)
        sys.stdout.write("\n")
    print_tables(answer.tables())
    if not answer.answer_first:
        print_facts(facts)
    if verbose:
        sys.stdout.write("\n")
        print_facts(answer.details())


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables, each with its title, its notes and an empty line below."""
    width = stdout().width
    for table in tables:
        if table.title:
            sys.stdout.write(f"{wrapped(one_line(table.title), width)}\n\n")
        print_table(table.columns, table.lines)
        for note in table.notes:
            sys.stdout.write(f"{wrapped(one_line(note), width)}\n")
        sys.stdout.write("\n")


def print_facts(facts: Facts) -> None:
    """Print labelled lines; those without a text are left out."""
    lines = [line for line in facts if line[1]]
    print_table([Column("", number=False)] * 2, lines, wrap_last=True)


def read_problem(path: str | Path, classes: int | None = None) -> Problem:
    """Read a problem; say so on stderr if its costs are an estimate."""
    from pipesat.files import problem_file
    from pipesat.files.microbatch_list import MOST_CLASSES

    problem = problem_file.read_problem(path, classes or MOST_CLASSES)
    if problem.estimate:
        text = f"pipesat: all times and memory are an estimate: {problem.estimate}"
        click.echo(wrapped(one_line(text), stderr().width), err=True)
    return problem
