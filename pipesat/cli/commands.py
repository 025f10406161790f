"""Commands and groups of them: loaded by name, with help that fits 80 columns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click

from pipesat.cli.naming import options_named

HELP: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
_SEARCH: Final = ("objective", "time_limit", "workers", "seed", "deterministic")
_OUTPUT: Final = {"--output", "--json", "--quiet", "--verbose", "--help"}
_SECTIONS: Final = ("Arguments", "Options", "Search", "Output")
_HYPHEN: Final = "\N{NON-BREAKING HYPHEN}"


class Argument(click.Argument):
    """An argument with a help text; click's own has one from 8.5 on."""

    def __init__(self, declared: Sequence[str], *, help: str, **more: Any) -> None:  # noqa: A002
        super().__init__(declared, **more)
        self.help = help


class Command(click.Command):
    """A command whose parameters are found when they are asked for: its function loads slowly.

    ``example`` is a command line that does something useful.
    """

    def __init__(
        self, name: str, *, made: Callable[[], list[click.Parameter]], example: str, **more: Any
    ) -> None:
        self._made: Callable[[], list[click.Parameter]] | None = None
        super().__init__(name, context_settings=HELP, **more)
        self._made, self.example = made, example

    @property
    def params(self) -> list[click.Parameter]:
        """Arguments and options."""
        if self._made is not None:
            self._params, self._made = self._made(), None
        return self._params

    @params.setter
    def params(self, params: list[click.Parameter]) -> None:
        self._params = params

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; complaints about a parameter name its option."""
        with options_named(self.params):
            return super().invoke(ctx)

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, whose lines are not broken within options."""
        return super().get_help(ctx).replace(_HYPHEN, "-")

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the paragraphs."""
        del ctx
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(inspect.cleandoc(self.help or "").replace("-", _HYPHEN))

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Arguments are written with the options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example, then arguments and options by what they are for."""
        if self.example:
            with formatter.section("Example"):
                formatter.write(f"  {self.example}\n")
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in _SECTIONS}
        for param in self.get_params(ctx):
            if isinstance(param, Argument):
                sections["Arguments"].append((param.make_metavar(ctx), param.help or ""))
            elif (found := param.get_help_record(ctx)) is not None:
                title = "Search" if param.name in _SEARCH else "Options"
                sections["Output" if {*param.opts} & _OUTPUT else title].append(found)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    texts = [(name, text.replace("-", _HYPHEN)) for name, text in rows]
                    formatter.write_dl(texts, col_max=28)


class Group(click.Group):
    """Commands by panels, each loaded from its module when it is called or shown.

    ``panels``: their names, each with its commands and where these are, as ``module:attribute``
    of ``pipesat.cli``; without an attribute, it has the command's name.
    """

    def __init__(self, name: str, help: str, panels: Mapping[str, Mapping[str, str]], **more: Any):  # noqa: A002
        super().__init__(name, help=help, context_settings=HELP, no_args_is_help=True, **more)
        self.panels = panels
        names = [name for panel in panels.values() for name in panel]
        self.commands: dict[str, Any] = dict.fromkeys(names)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        """Return a command, which is imported now."""
        del ctx
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            home = next(panel[cmd_name] for panel in self.panels.values() if cmd_name in panel)
            module, _, attribute = home.partition(":")
            found = import_module(f"pipesat.cli.{module}")
            self.commands[cmd_name] = getattr(found, attribute or cmd_name)
        return self.commands.get(cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        del ctx
        return [*self.commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for every panel, all with one width of names."""
        widest = max(map(len, self.commands))
        for title, panel in self.panels.items():
            rows = []
            for name in panel:
                command = self.get_command(ctx, name)
                if command is not None:
                    room = formatter.width - widest - 6
                    rows.append((name.ljust(widest), command.get_short_help_str(room)))
            with formatter.section(title):
                formatter.write_dl(rows)
