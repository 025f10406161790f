"""``pipesat profile``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pipesat.cli.command import command
from pipesat.cli.commands import settings
from pipesat.cli.exits import one_line

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.profile.file import Profile


def _list_configs(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """Print the named configurations and leave."""
    del param
    if wanted:
        from pipesat.cli.profile_report import print_configs

        print_configs()
        ctx.exit()


_LISTED = click.Option(
    ["--list"],
    is_flag=True,
    callback=_list_configs,
    is_eager=True,
    expose_value=False,
    help="List the configurations and their sources, and exit.",
)


@command(
    "profile",
    example="pipesat profile --config tiny --shape batch=4 --samples 20 -o profile.json",
    metavars={
        "config": "NAME",
        "model": "MODULE:FUNCTION",
        "shape": "KEY=VALUE[,...]",
        "compile": "BACKEND",
    },
    follow={
        "device": ("dtype", "threads"),
        "samples": ("warm_up", "timeout"),
        "stages": {"cut": "split"},
        "measure": {"modes": "measure_modes", "links": "measure_links"},
    },
    extra=(_LISTED, settings("measure", "Measure these, too.")),
    output="FILE",
)
def profile(asked: Asked) -> None:
    """Measure F, B, W, BW and memory of your model's layers.

    Needs PyTorch: pip install 'torch>=2.13'.
    """
    from pipesat.cli.console import print_json
    from pipesat.cli.profile_report import print_profile
    from pipesat.profile.file import write_document

    if asked["model"] is not None:
        asked.refuse(["config"], "this is of the built-in decoder, not of --model")
    measured: Profile = asked.answer()
    write_document(asked["output"], measured)
    if asked["as_json"]:
        print_json(measured.model_dump())
    else:
        print_profile(measured)
        click.echo(one_line(f"written to {asked['output']}"))
