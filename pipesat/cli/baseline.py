"""``pipesat baseline``."""

from __future__ import annotations

from typing import Annotated

import typer

from pipesat.cli.arguments import OutputFile, ProblemFile
from pipesat.cli.check import print_violations
from pipesat.cli.exits import CHECK_FAILED, one_line


def baseline(
    name: Annotated[str, typer.Argument(help="zb-h1, 1f1b, gpipe or list-scheduling.")],
    problem: ProblemFile,
    output: OutputFile,
) -> None:
    """Write one hand-written schedule as a schedule file, if it keeps every rule."""
    from pipesat.checker import check
    from pipesat.files.problem_file import read_problem
    from pipesat.files.schedule_file import write_schedule
    from pipesat.workflows import baseline as build

    data = read_problem(problem)
    schedule = build(name, data)
    if violations := check(data, schedule):
        typer.echo(f"pipesat: {name} does not fit this problem; nothing was written", err=True)
        print_violations(violations, err=True)
        raise typer.Exit(CHECK_FAILED)
    write_schedule(output, data, schedule)
    figures = f"makespan {schedule.makespan}, span {schedule.span}"
    typer.echo(one_line(f"{name}: {figures}, written to {output}"))
