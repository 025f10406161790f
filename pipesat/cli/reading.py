"""Problems as commands read them: what is an estimate is said before anything is printed of it."""

from __future__ import annotations

from pathlib import Path

import click

from pipesat.cli.console import stderr
from pipesat.cli.exits import one_line
from pipesat.cli.table import wrapped
from pipesat.core.problem import Problem
from pipesat.files import problem_file
from pipesat.files.microbatch_list import MOST_CLASSES


def read_problem(path: str | Path, classes: int = MOST_CLASSES) -> Problem:
    """Read a problem; say so on stderr if its costs are an estimate.

    Raises
    ------
    BadInput
        As :func:`pipesat.files.problem_file.read_problem`.
    """
    problem = problem_file.read_problem(path, classes)
    if problem.estimate:
        text = f"pipesat: all times and memory are an estimate: {problem.estimate}"
        click.echo(wrapped(one_line(text), stderr().width), err=True)
    return problem
