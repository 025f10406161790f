"""Reading a schedule that has to be valid before anything is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipesat.cli.check import print_violations
from pipesat.cli.exits import CHECK_FAILED, one_line

if TYPE_CHECKING:
    from pipesat.problem import Problem
    from pipesat.schedule import Schedule


def read_valid_schedule(path: Path, problem: Problem) -> Schedule:
    """Read a schedule file; list the violations and exit with 1 if the checker refuses it."""
    from pipesat.checker import check
    from pipesat.files.schedule_file import read_schedule

    schedule = read_schedule(path, problem)
    if violations := check(problem, schedule):
        typer.echo(one_line(f"pipesat: {path} is not a valid schedule"), err=True)
        print_violations(violations, err=True)
        raise typer.Exit(CHECK_FAILED)
    return schedule
