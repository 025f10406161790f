"""``pipesat export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import OutputFile, ProblemFile, ScheduleFile
from pipesat.cli.exits import one_line

if TYPE_CHECKING:
    from pipesat.export.frameworks.options import Options


def export(
    problem: ProblemFile,
    schedule: ScheduleFile,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="torch-csv, torchtitan, nemo-automodel, megatron-layout (the placement alone), "
            "png, or trace for Perfetto.",
        ),
    ],
    output: OutputFile,
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]", help="Transformer layers per stage, for a framework's model cut."
        ),
    ] = None,
) -> None:
    """Write a checked schedule in another format."""
    from pipesat.cli.checked_schedule import naming, read_valid_schedule
    from pipesat.core.errors import BadInput
    from pipesat.export import EXPORTERS
    from pipesat.files.atomic import write_files
    from pipesat.files.problem_file import read_problem

    if to not in EXPORTERS:
        raise BadInput(f"expected one of {', '.join(EXPORTERS)}", where="--to", value=to)
    data = read_problem(problem)
    options = _options(output, layers)
    checked = read_valid_schedule(schedule, data)
    with naming(problem):
        exported = EXPORTERS[to](data, checked, options)
    beside = {output.with_suffix(suffix).name: text for suffix, text in exported.beside.items()}
    if output.name in beside:
        raise BadInput(
            "this name is needed for a file beside it: choose another suffix",
            where="-o",
            value=output.name,
        )
    write_files(output.parent, {output.name: exported.data, **beside})
    for note in exported.notes:
        typer.echo(one_line(note))
    typer.echo(f"{to} written to {one_line(str(output))}")
    for name in beside:
        purpose = "read before you run it" if name.endswith(".txt") else "beside it"
        typer.echo(f"{purpose}: {one_line(str(output.parent / name))}")


def _options(output: Path, layers: str | None) -> Options:
    from pipesat.cli.costs import numbers
    from pipesat.export.frameworks.options import Options

    if layers is None:
        return Options(output)
    counts = numbers("--layers", layers)
    return Options(output, (counts,) if isinstance(counts, int) else tuple(counts))
