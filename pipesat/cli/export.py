"""``pipesat export``."""

from __future__ import annotations

from typing import Annotated

import typer

from pipesat.cli.arguments import OutputFile, ProblemFile, ScheduleFile
from pipesat.cli.exits import one_line


def export(
    problem: ProblemFile,
    schedule: ScheduleFile,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="png, or trace for Perfetto.")],
    output: OutputFile,
) -> None:
    """Write a checked schedule in another format."""
    from pipesat.cli.valid import read_valid_schedule
    from pipesat.errors import BadInput
    from pipesat.export import EXPORTERS
    from pipesat.files.atomic import write_file
    from pipesat.files.problem_file import read_problem

    if to not in EXPORTERS:
        raise BadInput(f"expected one of {', '.join(EXPORTERS)}", where="--to", value=to)
    data = read_problem(problem)
    write_file(output, EXPORTERS[to](data, read_valid_schedule(schedule, data)))
    typer.echo(one_line(f"{to} written to {output}"))
