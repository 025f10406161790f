"""The text of ``pipesat compare --noise``: a table about links, one about noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pipesat.cli.exits import one_line
from pipesat.cli.table import Column, print_table
from pipesat.core.claims import difference, percent

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.risk.report import LinksRow, NoiseRow

_LONG = 10_000  # time units: from here on their fractions are not shown


def print_links(problem: Problem, rows: list[LinksRow]) -> None:
    """Print a table of values under each kind of links, and where the first order waits most."""
    click.echo("\ntransfers one at a time, per pair of ranks (NCCL) or per rank (with device_id):")
    columns = [
        Column("", number=False),
        Column("independent\nlinks"),
        Column("per pair"),
        Column("lost"),
        Column("per rank"),
        Column("lost"),
    ]
    lines = [
        [
            row.name,
            str(row.independent),
            str(row.pair),
            percent(difference(row.pair, row.independent) or 0.0),
            str(row.rank),
            percent(difference(row.rank, row.independent) or 0.0),
        ]
        for row in rows
    ]
    print_table(columns, lines)
    most = rows[0].most_waiting
    if most is not None:
        a, b = (problem.device_name(rank) for rank in most.ranks)
        click.echo(one_line(f"most waiting, per pair: {a} with {b}, {most.waiting} in sum"))


def print_noise(rows: list[NoiseRow]) -> None:
    """Print a table of quantiles, and of what the first order gains over each other."""
    columns = [
        Column("", number=False),
        Column("no noise"),
        Column("p50"),
        Column("p95"),
        Column("gain,\nno noise"),
        Column("gain\np50"),
        Column("gain\np5"),
        Column("ahead in"),
    ]
    lines = []
    for row in rows:
        digits = 0 if row.spread.nominal >= _LONG else 1
        line = [row.name, f"{row.spread.nominal:.0f}"]
        line += [f"{value:.{digits}f}" for value in (row.spread.p50, row.spread.p95)]
        gain = row.gain
        if gain is None:
            line += ["", "", "", ""]
        else:
            line += map(percent, (gain.nominal, gain.p50, gain.p05, gain.ahead))
        lines.append(line)
    print_table(columns, lines)
