"""The commands, put together. Each lives in a module of its own name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from pipesat.cli.advise import advise
from pipesat.cli.check import check
from pipesat.cli.compare import compare
from pipesat.cli.export import export
from pipesat.cli.from_profile import app as problem_app
from pipesat.cli.frontier import frontier
from pipesat.cli.layers import app as layers_app
from pipesat.cli.min_memory import min_memory
from pipesat.cli.naming import Commands
from pipesat.cli.order import order
from pipesat.cli.pairs import pairs
from pipesat.cli.plan import plan
from pipesat.cli.profile import profile
from pipesat.cli.risk import risk
from pipesat.cli.run import run
from pipesat.cli.show import show
from pipesat.cli.solve import solve
from pipesat.cli.sweep import sweep
from pipesat.cli.timeline import app as timeline_app
from pipesat.core.errors import BadInput

_commands = Commands(
    name="pipesat",
    help="Pipeline-parallel training schedules with a proof of how close to optimal they are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        typer.echo(f"pipesat {importlib.metadata.version('pipesat')}")
        raise typer.Exit


@_commands.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    doctor: Annotated[
        bool,
        typer.Option(
            "--doctor",
            help="Does it work here: versions, extras, cores, memory, a self-check; exit code 1 if "
            "anything fails.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --doctor: as JSON.")] = False,
) -> None:
    del version
    if doctor and context.invoked_subcommand is None:
        from pipesat.cli.doctor import examine

        examine(as_json=as_json)
    if doctor or as_json:
        raise BadInput("expected --doctor, with --json if you like, and no command")


_FUNCTIONS: dict[str, Callable[..., None]] = {
    "solve": solve,
    "compare": compare,
    "check": check,
    "export": export,
    "show": show,
    "risk": risk,
    "profile": profile,
    "advise": advise,
    "run": run,
    "sweep": sweep,
    "frontier": frontier,
    "plan": plan,
    "min-memory": min_memory,
    "order": order,
    "pairs": pairs,
}
"""In the order of ``pipesat --help``."""

for _name, _function in _FUNCTIONS.items():
    _commands.command(_name)(_function)
_commands.add_typer(layers_app, name="layers")
_commands.add_typer(problem_app, name="problem")
_commands.add_typer(timeline_app, name="timeline")

app = typer.main.get_command(_commands)
"""Built once: typer reads the signature of every command, which takes longer than most commands."""
