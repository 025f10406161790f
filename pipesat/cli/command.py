"""The decorator that makes a command of a public function: ``cli/derived.py`` says how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from pipesat.cli.commands import Command
from pipesat.cli.exits import end_of_run
from pipesat.core.attached import attached
from pipesat.core.errors import RunFailed

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked


def _public(name: str) -> Callable[..., Any]:
    module, _, function = name.rpartition(":")
    home = import_module(f"pipesat.{module}") if module else None
    found: Callable[..., Any] = getattr(home, function) if home else attached(function)
    return found


def command(
    function: str,
    *,
    example: str = "",
    names: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
    optional: Sequence[str] = (),
    written: Sequence[str] = (),
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
    example
        A command line, shown in the help.
    names, without, metavars
        As of :func:`pipesat.cli.derived.parameters`.
    optional
        Parameters that may be left out although the function needs them.
    written
        Files that are written: that they can be is known before anything is read.
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
        from pipesat.cli.derived import grouped, output_option, parameters, writable

        found = parameters(_public(function), names or {}, without, metavars)
        for one in found:
            one.required &= one.name not in optional
            one.callback = writable if one.name in written else one.callback
        own = [output_option(output)] if output else []
        return grouped([*found, *extra, *own], follow)

    def decorate(body: Callable[[Asked], int | None]) -> Command:
        def callback(**_: Any) -> int | None:
            from pipesat.cli.asked import Asked

            asked = Asked(_public(function), click.get_current_context())
            try:
                return body(asked)
            except RunFailed as error:
                end_of_run(error, asked.interrupts.exit_code)

        name = body.__name__.strip("_").replace("_", "-")
        return Command(name, made=made, example=example, help=body.__doc__, callback=callback)

    return decorate
