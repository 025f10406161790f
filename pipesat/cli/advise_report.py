"""The text of ``pipesat advise``."""

from __future__ import annotations

from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipesat.cli.exits import one_line
from pipesat.cli.table import Column, print_table, table_lines, wrapped
from pipesat.core.claims import percent
from pipesat.core.rounding import rounded

if TYPE_CHECKING:
    from pipesat.advise.advice import Advice
    from pipesat.advise.rows import Row


def print_advice(advice: Advice, folder: Path | None) -> None:
    """Print the table, the sentence, and where everything is."""
    from pipesat.advise.answer import estimate_text, memory_text, parts_text, time_text
    from pipesat.advise.commands import megatron_flags
    from pipesat.advise.ends_text import ends_text
    from pipesat.cli.console import stdout

    question, width = advice.question, stdout().width
    rows = advice.shown
    holds = question.parts is None or any(max(row.peaks) for row in rows)
    estimated = "\n(estimate)" if question.layers.estimate else ""
    columns = [
        Column("schedule", number=False),
        Column("split", number=False),
        Column("placement", number=False),
        Column("recomputes", number=False),
        Column(f"time{estimated}"),
        Column(f"tokens/s{estimated}"),
        Column(f"of ideal{estimated}"),
        Column("pairs"),
        Column(f"memory{estimated}"),
        Column(f"runs in\n{question.runtime}", number=False),
    ]
    lines = [
        [
            row.name if row.group is None else f"{row.name}, groups of {row.group}",
            row.split,
            row.placement,
            _recomputes(row) if question.may_recompute else "",
            time_text(question, row.makespan),
            _tokens(row.tokens_per_second(question)),
            "" if question.parts is not None else percent(row.share_of_ideal(question), 0),
            "" if question.parts is None else str(row.pairs),
            memory_text(question, max(row.peaks) - question.reserve) if holds else "",
            _runs(row),
        ]
        for row in rows
    ]
    needed = [any(line[i] for line in lines) for i in range(len(columns))]
    needed[5] = any(line[5] != "-" for line in lines)
    _print_rows([*compress(columns, needed)], [[*compress(line, needed)] for line in lines], width)
    typer.echo("")
    if question.memory is not None:
        typer.echo(
            f"memory: {memory_text(question, question.memory, rounded)} per rank, of which "
            f"{memory_text(question, question.reserve, rounded)} are kept free"
        )
    for text in (estimate_text(question), ends_text(advice), parts_text(question)):
        if text:
            typer.echo(wrapped(one_line(text), width))
    for name, why in advice.left_out:
        typer.echo(wrapped(one_line(f"left out: {name}: {why}"), width))
    for text in advice.contradictions:
        typer.echo(wrapped(one_line(f"no bound is claimed: {text}"), width))
    typer.echo("\n" + wrapped(one_line(advice.sentence), width))
    if question.runtime == "megatron" and advice.chosen is not None:
        typer.echo("\n" + megatron_flags(advice, advice.chosen).rstrip())
    if folder is not None:
        typer.echo("\n" + one_line(f"written to {folder}; its commands.sh repeats each part"))


def _print_rows(columns: list[Column], lines: list[list[str]], width: int) -> None:
    """Print a table; where it is too wide, its names and its numbers apart, lines numbered."""
    if all(len(line) <= width for line in table_lines(columns, lines, width)):
        print_table(columns, lines)
        return
    for number in (False, True):
        chosen = [column.number is number for column in columns]
        texts = [[str(place), *compress(line, chosen)] for place, line in enumerate(lines, start=1)]
        if number:
            typer.echo("")
        print_table([Column("row"), *compress(columns, chosen)], texts)


def _recomputes(row: Row) -> str:
    from pipesat.advise.runtimes import stages_text

    if row.first is not None:
        return f"first {row.first} of each"
    return stages_text(row.again) if row.again else "none"


def _tokens(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _runs(row: Row) -> str:
    if not row.fits:
        return "too large"
    if row.why_not:
        return "no"
    return "by hand" if row.by_hand else "yes"
