"""``pipesat export``."""

from __future__ import annotations

import warnings
from enum import StrEnum
from typing import Annotated

import typer

from pipesat.cli.arguments import ProblemFile, ScheduleFile
from pipesat.cli.exits import one_line


class SwitchName(StrEnum):
    """What a framework's one switch can say."""

    none = "none"
    full = "full"


def export(
    problem: ProblemFile,
    schedule: ScheduleFile,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="torch-csv, torchtitan, nemo-automodel, megatron-layout (the placement alone), "
            "order (microbatches as they enter), schedule (a schedule file), or trace "
            "for Perfetto.",
        ),
    ],
    path: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write; a folder, as out/, has it as schedule.csv and the like.",
            show_default=False,
        ),
    ],
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]", help="Transformer layers per stage, for a framework's model cut."
        ),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Of torch's order: change nothing; refuse what torch cannot run as it is.",
        ),
    ] = False,
    remark: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="What has to be done besides: into the comments of a configuration, and first "
            "into the hazards.",
            show_default=False,
        ),
    ] = "",
    checkpointing: Annotated[
        SwitchName | None,
        typer.Option(
            help="Activation checkpointing of all layers, for a framework's configuration.",
            show_default="off where backwards are split, else the framework's",
        ),
    ] = None,
) -> None:
    """Write a checked schedule in another format.

    One by name as well: pipesat export PROBLEM 1f1b --to schedule -o 1f1b.json.
    """
    from pipesat.cli.costs import numbers
    from pipesat.cli.naming import naming, with_options
    from pipesat.cli.reading import read_problem
    from pipesat.core.errors import Note
    from pipesat.workflows.exports import export as run
    from pipesat.workflows.exports import file_of, files_beside

    file = file_of(path, to)
    data = read_problem(problem)
    counts = None if layers is None else numbers("--layers", layers)
    with naming(problem), warnings.catch_warnings(action="ignore"):  # the notes say it
        warnings.simplefilter("always", Note)
        exported = run(
            data,
            schedule,
            to,
            file,
            layers=counts,
            exact=exact,
            remark=remark,
            checkpointing=None if checkpointing is None else checkpointing.value,
        )
    for note in exported.notes:
        typer.echo(one_line(with_options(note)))
    typer.echo(f"{to} written to {one_line(str(file))}")
    for name in files_beside(exported, file):
        purpose = "read before you run it" if name.endswith(".txt") else "beside it"
        typer.echo(f"{purpose}: {one_line(str(file.parent / name))}")
