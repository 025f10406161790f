"""``pipesat problem new`` and ``examples``; the others have modules of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipesat.cli.command import command
from pipesat.cli.commands import Group, settings
from pipesat.cli.exits import one_line

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.problem import Problem

app = Group(
    "problem",
    "Describe your pipeline: from numbers, a profile, an estimate.",
    {
        "Commands": {
            "new": "problem",
            "from-profile": "from_profile:from_profile",
            "estimate": "estimate",
            "pairs": "pairs",
            "examples": "problem",
        }
    },
)


@command(
    "workflows.from_numbers:problem_from_numbers",
    example="pipesat problem new --devices 4 --microbatches 8 --times F=10,B=10,W=8",
    names={"split": "--cut"},
    metavars={
        "lengths": "FILE",
        "held_after_F": "N[,N...]",
        "held_after_B": "N[,N...]",
        "memory": "N[,N...]",
        "static": "N[,N...]",
        "quadratic": "SHARE",
        "tolerance": "SHARE",
        "overlap": "NUM/DEN",
        "pair_time": "[KIND+KIND=]TIME",
    },
    follow={
        "times": ("F", "B", "W", "BW"),
        "held": {"after_F": "held_after_F", "after_B": "held_after_B"},
        "lengths": ("order",),
        "placement": ("chunks",),
        "memory": ("static",),
        "units": {"time": "time_unit", "memory": "memory_unit"},
    },
    extra=(
        settings("times", "Costs, one for all or a list with one each."),
        settings("held", "Memory, one for all or a list with one each."),
        settings("units", "Units of all times and all memory."),
    ),
    output="[FILE]",
)
def new(asked: Asked) -> None:
    """Write a problem from costs of stages, or of layers.

    A cost is one number for every stage (with --layers: for every layer), or a list with one each.
    Lists that are longer than there are stages are of layers. Without -o, it is printed.
    """
    write_problem(asked, asked.answer())


def write_problem(asked: Asked, problem: Problem) -> None:
    """Write a problem into a file, or on stdout."""
    from pipesat.files.atomic import write_file
    from pipesat.files.problem_text import problem_text

    text = problem_text(problem.document)
    if asked.output is not None:
        write_file(asked.output, text.encode())
    if asked.output is None or asked["as_json"]:
        click.echo(text, nl=False)
        return
    counts = f"{len(problem.devices)} devices, {len(problem.stages)} stages"
    microbatches = sum(route.microbatches for route in problem.routes)
    click.echo(one_line(f"{counts}, {microbatches} microbatches, written to {asked.output}"))


def written(folder: Path = Path("examples")) -> dict[str, bytes]:
    """Write the shipped examples into a folder; return them by name.

    Parameters
    ----------
    folder
        Where to write them; ``None``: examples.
    """
    from importlib.resources import files

    from pipesat.files.atomic import prepare_folder, write_files

    found = (entry for entry in files("pipesat").joinpath("examples").iterdir() if entry.is_file())
    shipped = {entry.name: entry.read_bytes() for entry in found}
    prepare_folder(folder)
    write_files(folder, shipped)
    return shipped


@command("cli.problem:written", names={"folder": "[DIR]"}, example="pipesat problem examples")
def examples(asked: Asked) -> None:
    """Write the shipped examples into a folder."""
    shipped, folder = asked.answer(), asked["folder"]
    if asked["as_json"]:
        from pipesat.cli.console import print_json

        print_json(sorted(str(folder / name) for name in shipped))
        return
    click.echo(one_line(f"{len(shipped)} files, written to {folder}: begin with README.md"))
