"""Options that say nothing together: refused in one line, never ignored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipesat.core.errors import BadInput


def refuse_given(context: Any, names: Sequence[str], why: str) -> None:
    """Refuse those of a command's options that the user gave, by parameter name.

    Raises
    ------
    BadInput
        Naming the first one, with its value and why it would say nothing.
    """
    for option in context.command.params:
        name = option.name or ""
        if name in names and _is_given(context, name):
            value = context.params[name]
            where = max(option.opts, key=len)
            raise BadInput(
                why,
                where=where,
                value=str(value) if isinstance(value, Path) else getattr(value, "value", value),
            )


def _is_given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_repeated(option: str, given: Sequence[object], text: object) -> None:
    """Refuse a list that names something twice.

    Raises
    ------
    BadInput
        Naming what.
    """
    seen: list[object] = []
    for one in given:
        if one in seen:
            raise BadInput(f"{one} appears twice", where=option, value=text)
        seen.append(one)
