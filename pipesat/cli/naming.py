"""Complaints name what the user of the command line wrote: an option, or a file.

Functions complain about their parameters, which are what a Python user sees. A command's options
have the names of its parameters, so the option is found by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import click

from pipesat.core.errors import BadInput, NotApplicable

_OPTIONS: Final[ContextVar[dict[str, str]]] = ContextVar("options")
"""Of the command that runs: its options by the names of their parameters."""


@contextmanager
def options_named(params: Sequence[click.Parameter]) -> Iterator[None]:
    """Name the option in complaints about a parameter, for as long as its command runs."""
    options = (one for one in params if one.param_type_name == "option")
    _OPTIONS.set({one.name or "": max(one.opts, key=len) for one in options})
    try:
        yield
    except BadInput as error:
        if (named := _with_option(error)) is None:
            raise
        raise named from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in what is raised about the problem that was read from it."""
    try:
        yield
    except NotApplicable as error:
        raise NotApplicable(f"{path}: {with_options(str(error))}") from None
    except BadInput as error:
        if error.source or not error.where or error.where.startswith("-"):
            raise
        text = with_options(error.expected)
        named = BadInput(text, source=str(path), where=error.where, value=error.value)
        raise (_with_option(error) or named) from None


def with_options(text: str) -> str:
    """Return a text in which each parameter in backquotes that is an option is named as one."""
    options = _OPTIONS.get({})
    return re.sub(r"`([A-Za-z_]+)`", lambda name: f"`{options.get(name[1], name[1])}`", text)


def _with_option(error: BadInput) -> BadInput | None:
    """Return a complaint about a parameter as one about its option; ``None`` if there is none.

    A repeated option has the singular of the parameter's name.
    """
    found = re.match(r"[A-Za-z_]+", error.where)
    if found is None or error.source:
        return None
    options = _OPTIONS.get({})
    option = options.get(found[0]) or options.get(found[0].removesuffix("s"))
    return (
        None
        if option is None
        else BadInput(with_options(error.expected), where=option, value=error.value)
    )
