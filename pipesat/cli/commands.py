"""Commands and groups of them: made of public functions, loaded by name, help of 80 columns."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click

from pipesat.cli.derived import (
    AS_JSON,
    Argument,
    Option,
    function_of,
    grouped,
    output_option,
    parameters,
)
from pipesat.cli.exits import CHECK_FAILED, named, print_failure, require_files, require_kept
from pipesat.core.errors import BadInput, Contradiction, Infeasible, NotApplicable, RunFailed

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked


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


class Command(click.Command):
    """A command whose parameters are found when they are asked for: its function loads slowly.

    ``example`` is a command line that does something useful. ``also`` has the functions that are
    called instead where something is given, by what that is.
    """

    def __init__(
        self,
        name: str,
        *,
        made: Callable[[], list[click.Parameter]],
        example: str,
        also: Mapping[str, str],
        **more: Any,
    ) -> None:
        self._made: Callable[[], list[click.Parameter]] | None = None
        super().__init__(name, context_settings=HELP, **more)
        self._made, self.example, self.also = made, example, also

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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; that a file is missing is said before what else is wrong."""
        ctx.meta[AS_JSON] = "--json" in args
        try:
            return super().parse_args(ctx, args)
        except (BadInput, click.UsageError):
            require_files(ctx)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; what is proven infeasible is said in a document too, if one is asked for."""
        try:
            return super().invoke(ctx)
        except Infeasible as error:
            if ctx.meta[AS_JSON]:
                from pipesat.cli.terminal import print_json

                print_json({"status": "infeasible", "explanation": str(error)})
            raise

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, whose lines are not broken within options."""
        return super().get_help(ctx).replace(_HYPHEN, "-")

    def format_help_text(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the paragraphs."""
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

    def get_command(self, _ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        """Return a command, which is imported now."""
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            home = next(panel[cmd_name] for panel in self.panels.values() if cmd_name in panel)
            module, _, attribute = home.partition(":")
            found = import_module(f"pipesat.cli.{module}")
            self.commands[cmd_name] = getattr(found, attribute or cmd_name)
        return self.commands.get(cmd_name)

    def list_commands(self, _: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return [*self.commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for every panel, all with one width of names."""
        widest = max(map(len, self.commands))
        for title, panel in self.panels.items():
            rows = []
            for name in panel:
                command = self.get_command(ctx, name)
                if command is not None:
                    left = formatter.width - widest - 6
                    rows.append((name.ljust(widest), command.get_short_help_str(left)))
            with formatter.section(title):
                formatter.write_dl(rows)


def command(
    function: str,
    *,
    also: Mapping[str, str] = MappingProxyType({}),
    example: str = "",
    names: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
    optional: Sequence[str] = (),
    metavars: Mapping[str, str] | None = None,
    extra: Sequence[click.Parameter] = (),
    follow: Mapping[str, Mapping[str, str] | Sequence[str]] = MappingProxyType({}),
    output: str = "",
) -> Callable[[Callable[[Asked], int | None]], Command]:
    """Make the decorated function the command of a public function of pipesat.

    Parameters
    ----------
    function
        Its name, as in ``pipesat.solve``, or ``module:name`` of one below the top.
    also
        Functions that :meth:`pipesat.cli.asked.Asked.instead` calls, by the option, say, that asks
        for them. Their options are the command's, too.
    example
        A command line, shown in the help.
    names, without, metavars
        As of :func:`pipesat.cli.derived.parameters`.
    optional
        Parameters that may be left out although the function needs them.
    extra
        Further arguments and options.
    follow
        Parameters that are told after the value of another, by its name: ``,key=value``; by their
        names, or by keys with their names.
    output
        What ``-o`` writes, ``DIR``, ``FILE``, or ``[FILE]``, which may be left out; empty: the
        command has no such option.
    """

    def made() -> list[click.Parameter]:
        found = parameters(function_of(function), names or {}, without, metavars)
        for switch, other in also.items():
            known = {one.name for one in found}
            for one in parameters(function_of(other), names or {}, [*without, *known], metavars):
                one.required = False
                if re.fullmatch("--[a-z]+", switch) and switch not in one.opts:
                    one.help = f"With {switch}. {one.help}"
                found.append(one)
        for one in found:
            one.required &= one.name not in optional
        own = [output_option(output)] if output else []
        return grouped([*found, *extra, *own], follow)

    def decorate(body: Callable[[Asked], int | None]) -> Command:
        def callback(**_: Any) -> int | None:
            from pipesat.cli.asked import Asked

            asked = Asked(function_of(function), click.get_current_context())
            try:
                require_kept(asked.context)
                return body(asked)
            except RunFailed as error:
                print_failure(error)
                return asked.interrupts.exit_code or CHECK_FAILED
            except Contradiction as error:
                error.kept = error.kept or str(asked.output or "")
                raise
            except (BadInput, NotApplicable) as error:
                if not getattr(error, "source", ""):
                    require_files(asked.context)
                raise named(error, asked.file) from None

        name = body.__name__.strip("_").replace("_", "-")
        more: dict[str, Any] = {"example": example, "help": body.__doc__, "also": also}
        return Command(name, made=made, callback=callback, **more)

    return decorate
