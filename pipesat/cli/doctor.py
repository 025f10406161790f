"""``pipesat --doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pipesat.cli.exits import CHECK_FAILED

if TYPE_CHECKING:
    from pipesat.doctor import Line, Report


def examine(*, as_json: bool) -> int:
    """Print whether pipesat works here, and return the exit code: 1 if anything fails.

    The self-check solves a small problem, checks the answer, exports it and parses it back; an
    extra that is missing is no failure.
    """
    from pipesat.cli.console import print_json
    from pipesat.doctor import doctor

    report = doctor()
    if as_json:
        print_json(report.document())
    else:
        _print(report)
    return 0 if report.ok else CHECK_FAILED


def _print(report: Report) -> None:
    from pipesat.cli.table import Column, print_table

    cells = [(line.name, line.status, _text(line)) for line in report.lines]
    print_table([Column("", number=False)] * 3, cells, wrap_last=True)
    failed = sum(line.status == "FAILED" for line in report.lines)
    click.echo("pipesat works here" if report.ok else f"{failed} of {len(cells)} FAILED")


def _text(line: Line) -> str:
    return line.detail if line.command is None else f"{line.detail}; run: {line.command}"
