"""Commands and groups of them: loaded by name, with help that fits 80 columns."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

import click

from pipesat.cli.naming import options_named
from pipesat.core.errors import BadInput

GLOBAL: Final = (
    click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON document, no text."),
    click.Option(["-v", "--verbose"], is_flag=True, help="Show all that is known."),
    click.Option(["-q", "--quiet"], is_flag=True, help="Show no progress."),
)
"""Every command has these, as it has ``--help``."""
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


class Option(click.Option):
    """An option that others may follow: ``--memory 40GiB,reserve=2GiB``, ``--shape batch=2``.

    ``members`` are those others by their keys; one that is a flag may stand without a value.
    """

    members: Mapping[str, click.Option] = MappingProxyType({})

    def host(self, members: Mapping[str, click.Option]) -> None:
        """Let options follow this one's value; they lose their own names."""
        self.members = members
        for key, member in members.items():
            member.opts = [f"{max(self.opts, key=len)} {key}"]

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let it be given several times where others may follow, each with some of them."""
        multiple, self.multiple = self.multiple, self.multiple or bool(self.members)
        super().add_to_parser(parser, ctx)
        self.multiple = multiple

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> Any:
        """Take what follows out of the text, and let each of the others read its own."""
        if not self.members:
            return super().handle_parse_result(ctx, opts, args)
        given, keys = opts.get(self.name or ""), "|".join(self.members)
        texts = given if isinstance(given, list | tuple) else [given]
        split = [
            re.split(f",(?=(?:{keys})(?:=|,|$))", f",{text}")
            for text in texts
            if isinstance(text, str)
        ]
        told: dict[str, list[str]] = {}
        for key, _, value in (part.partition("=") for _, *parts in split for part in parts):
            told.setdefault(key, []).append(value or "yes" * self.members[key].is_flag)
        for key, member in self.members.items():
            own = told.get(key, [])
            value = {member.name: own if member.multiple else own[-1]} if own else {}
            member.handle_parse_result(ctx, value, args)
        heads = [head.removeprefix(",") for head, *_ in split if head]
        mine = {self.name: heads if self.multiple else heads[-1]} if heads else {}
        return super().handle_parse_result(ctx, mine, args)


def settings(name: str, text: str) -> Option:
    """Return an option that has no value of its own: ``--shape length=4096,batch=2``."""

    def nothing_else(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        del ctx
        if value is not None and isinstance(param, Option):
            keys = ", ".join(param.members)
            raise BadInput(f"expected values of {keys}", where=f"--{name}", value=value)

    return Option(
        [f"--{name}"], metavar="KEY=VALUE", help=text, expose_value=False, callback=nothing_else
    )


def with_members(params: Iterable[click.Parameter]) -> Iterator[click.Parameter]:
    """Yield parameters, each followed by the options that follow its value."""
    for one in params:
        yield one
        yield from one.members.values() if isinstance(one, Option) else ()


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

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its own parameters, and those of every command."""
        return [*super().get_params(ctx), *GLOBAL]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; complaints about a parameter name its option."""
        with options_named([*with_members(self.params)]):
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
                title = "Output" if {*param.opts} & _OUTPUT else title
                sections[title] += [found, *_followers(ctx, param)]
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    texts = [(name, text.replace("-", _HYPHEN)) for name, text in rows]
                    formatter.write_dl(texts, col_max=28)


def _followers(ctx: click.Context, param: click.Parameter) -> Iterator[tuple[str, str]]:
    """Yield the lines of what may follow an option's value."""
    for key, member in param.members.items() if isinstance(param, Option) else ():
        value = "" if member.is_flag else f"={member.make_metavar(ctx)}"
        if member.is_flag and member.default:
            value = "=no"
        yield f"  {',' if param.expose_value else ''}{key}{value}", member.help or ""


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
