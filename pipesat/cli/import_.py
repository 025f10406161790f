"""``pipesat import``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipesat.cli.arguments import OutputFile, ProblemFile
from pipesat.cli.exits import one_line


class ImportFormat(StrEnum):
    """Orders that can be read."""

    torch_csv = "torch-csv"


def import_(
    form: Annotated[ImportFormat, typer.Argument(metavar="FORMAT", help="torch-csv")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The order to read.")],
    problem: ProblemFile,
    output: OutputFile,
    order: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The microbatches' own numbers; if not given, FILE's .order.json, where it is.",
        ),
    ] = None,
    modes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What runs in which memory mode; if not given, FILE's .modes.csv, where it is.",
        ),
    ] = None,
) -> None:
    """Read an order that a runtime runs, time it, check it and write it as a schedule file."""
    del form  # there is one
    from pipesat.cli.naming import naming
    from pipesat.cli.reading import read_problem
    from pipesat.core.ops import members
    from pipesat.files.schedule_file import write_schedule
    from pipesat.workflows.exports import import_order

    data = read_problem(problem)
    with naming(problem):
        schedule, notes = import_order(file, data, order=order, modes=modes)
    for note in notes:
        typer.echo(one_line(f"pipesat: {note}"), err=True)
    write_schedule(output, data, schedule)
    ops = sum(len(members(item)) for row in schedule.order for item in row)  # a pair is two
    typer.echo(
        f"{ops} ops, makespan {schedule.makespan}, span {schedule.span}, "
        f"written to {one_line(str(output))}"
    )
