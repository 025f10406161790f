"""What was read, and what has to be valid before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipesat.cli.check import print_violations
from pipesat.cli.exits import CHECK_FAILED, one_line
from pipesat.core.errors import BadInput, NotApplicable

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in what is raised about the problem that was read from it."""
    try:
        yield
    except NotApplicable as error:
        raise NotApplicable(f"{path}: {error}") from None
    except BadInput as error:
        if error.source or error.where.startswith("-"):
            raise
        raise error.of(str(path)) from None


def read_valid_schedule(path: Path, problem: Problem) -> Schedule:
    """Read a schedule file; list the violations and exit with 1 if the checker refuses it."""
    from pipesat.core.checker import check
    from pipesat.files.schedule_file import read_schedule

    schedule = read_schedule(path, problem)
    if violations := check(problem, schedule):
        typer.echo(one_line(f"pipesat: {path} is not a valid schedule"), err=True)
        print_violations(violations, err=True)
        raise typer.Exit(CHECK_FAILED)
    return schedule
