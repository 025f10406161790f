"""``pipesat export``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import click

from pipesat.cli.command import command
from pipesat.cli.exits import one_line

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.schedule import Exported

_FILE = click.Option(
    ["-o", "--output", "path"],
    metavar="FILE",
    required=True,
    help="File to write. A folder, as out/, has it as schedule.csv and the like.",
)


@command(
    "export",
    example="pipesat export problem.json zb-auto --to torch -o schedule.csv",
    without=("path",),
    metavars={"to": "FORMAT"},
    follow={"to": ("layers", "exact", "remark", "checkpointing")},
    extra=(_FILE,),
)
def export(asked: Asked) -> None:
    """Write a schedule for torch, Megatron-LM, NeMo, a trace."""
    from pipesat.cli.console import print_json
    from pipesat.cli.naming import with_options
    from pipesat.core.errors import Note
    from pipesat.workflows.exports import file_of, files_beside

    file = file_of(asked["path"], asked["to"])
    with warnings.catch_warnings(action="ignore"):  # the notes say it
        warnings.simplefilter("always", Note)
        exported: Exported = asked.answer(path=file)
    notes = [with_options(note) for note in exported.notes]
    beside = [*files_beside(exported, file)]
    if asked["as_json"]:
        print_json({"to": asked["to"], "path": str(file), "beside": beside, "notes": notes})
        return
    for note in notes:
        click.echo(one_line(note))
    click.echo(f"{asked['to']} written to {one_line(str(file))}")
    for name in beside:
        purpose = "read before you run it" if name.endswith(".txt") else "beside it"
        click.echo(f"{purpose}: {one_line(str(file.parent / name))}")
