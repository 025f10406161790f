"""The commands, put together. Each lives in a module of its own name."""

from __future__ import annotations

import click

from pipesat.cli.commands import Group
from pipesat.core.errors import BadInput


def _version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    del param
    if wanted:
        import importlib.metadata

        click.echo(f"pipesat {importlib.metadata.version('pipesat')}")
        ctx.exit()


def _root(*, doctor: bool, as_json: bool) -> int | None:
    if not (doctor or as_json):
        return None
    if not doctor or click.get_current_context().invoked_subcommand is not None:
        raise BadInput("expected --doctor, with --json if you like, and no command")
    from pipesat.cli.doctor import examine

    return examine(as_json=as_json)


app = Group(
    "pipesat",
    "Pipeline-parallel training schedules with a proof of how close to optimal they are.\n\n"
    'Completion in bash: eval "$(_PIPESAT_COMPLETE=bash_source pipesat)", also zsh and fish.',
    {
        "Decide": {
            "advise": "advise",
            "solve": "solve",
            "plan": "plan",
            "compare": "compare",
            "frontier": "frontier",
            "balance": "balance",
            "sweep": "sweep",
        },
        "Describe": {
            "profile": "profile",
            "problem": "problem:app",
        },
        "Look": {
            "show": "show",
            "check": "check",
        },
        "Use": {
            "export": "export",
            "run": "run",
            "timeline": "timeline:app",
        },
    },
    callback=_root,
    invoke_without_command=True,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            callback=_version,
            is_eager=True,
            expose_value=False,
            help="Show the version.",
        ),
        click.Option(
            ["--doctor"], is_flag=True, help="Check that it works here: versions, extras, a solve."
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="With --doctor: as JSON."),
    ],
)
