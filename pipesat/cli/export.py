"""``pipesat export``."""

from __future__ import annotations

from typing import Annotated

import typer

from pipesat.cli.arguments import OutputFile, ProblemFile, ScheduleFile
from pipesat.cli.exits import one_line


def export(
    problem: ProblemFile,
    schedule: ScheduleFile,
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="png, torch-csv, or trace for Perfetto.")
    ],
    output: OutputFile,
) -> None:
    """Write a checked schedule in another format."""
    from pipesat.cli.valid import read_valid_schedule
    from pipesat.errors import BadInput
    from pipesat.export import EXPORTERS
    from pipesat.files.atomic import write_files
    from pipesat.files.problem_file import read_problem

    if to not in EXPORTERS:
        raise BadInput(f"expected one of {', '.join(EXPORTERS)}", where="--to", value=to)
    data = read_problem(problem)
    exported = EXPORTERS[to](data, read_valid_schedule(schedule, data))
    beside = {output.with_suffix(suffix).name: text for suffix, text in exported.beside.items()}
    write_files(output.parent, {output.name: exported.data, **beside})
    for note in exported.notes:
        typer.echo(one_line(note))
    typer.echo(f"{to} written to {one_line(str(output))}")
    for name in beside:
        typer.echo(f"read before you run it: {one_line(str(output.parent / name))}")
