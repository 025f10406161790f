"""Commands that are still declared with typer, as commands of click; goes with the last of them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import click
import typer
from typer.models import ArgumentInfo

from pipesat.cli.commands import Argument, Command, Group


def old(name: str, function: Any) -> click.Command:
    """Return a command of click for a function with typer's annotations, or a group of them."""
    if isinstance(function, typer.Typer):
        bodies = [(one.name, one.callback) for one in function.registered_commands]
        commands = {key or body.__name__: body for key, body in bodies if body is not None}
        text = function.info.help if isinstance(function.info.help, str) else ""
        group = Group(name, text, {"Commands": dict.fromkeys(commands, "")})
        group.commands = {key: old(key, body) for key, body in commands.items()}
        return group

    def callback(**values: Any) -> Any:
        for key, parameter in signature.parameters.items():
            if parameter.annotation is typer.Context:
                values[key] = click.get_current_context()
        with _exit():
            return function(**values)

    signature = inspect.signature(function, eval_str=True)
    return Command(
        name, made=partial(_params, signature), example="", help=function.__doc__, callback=callback
    )


def _params(signature: inspect.Signature) -> list[click.Parameter]:
    found = []
    for name, one in signature.parameters.items():
        if one.annotation is not typer.Context:
            found.append(_param(name, one))
    return found


def _param(name: str, one: inspect.Parameter) -> click.Parameter:
    stated, said = one.annotation, None
    if typing.get_origin(stated) is typing.Annotated:
        stated, said = typing.get_args(stated)[:2]
    kinds = [kind for kind in (typing.get_args(stated) or [stated]) if kind is not type(None)]
    required = one.default is one.empty
    several = typing.get_origin(kinds[0]) is list or typing.get_origin(stated) is list
    if typing.get_origin(kinds[0]) is list:
        kinds = [*typing.get_args(kinds[0])]
    enum = kinds[0] if isinstance(kinds[0], type) and issubclass(kinds[0], Enum) else None
    callback = None if said is None or said.callback is None else _called(said.callback)
    default = None if required else one.default
    more: dict[str, Any] = {
        "required": required,
        "type": _type(stated, kinds, enum, said),
        "metavar": said.metavar if said else None,
        "callback": partial(_value, enum, callback, several),
    }
    if not required:
        more["default"] = default.value if isinstance(default, Enum) else default
    if isinstance(said, ArgumentInfo):
        shown = (said.metavar or name.upper()).strip("[].")
        if several:
            more |= {"nargs": -1, "default": None}
        return Argument(
            [name], help=said.help or "", **more | {"metavar": None if several else shown}
        )
    declared = [*(said.param_decls or ())] if said else []
    if said and isinstance(said.default, str):  # within Annotated, the first name
        declared.insert(0, said.default)
    declared = declared or [f"--{name.replace('_', '-').strip('-')}"]
    if kinds == [bool]:
        if len(declared) == 1 and not isinstance(said and said.default, str):
            declared = [f"{declared[0]}/--no-{declared[0].removeprefix('--')}"]
        more |= {"is_flag": True, "type": None, "metavar": None}
    elif default is not None:
        more["show_default"] = True
    if said and isinstance(said.show_default, str):
        more["show_default"] = said.show_default
    hidden = bool(said and said.hidden)
    text = said.help if said else ""
    if several:
        more |= {"default": None}
    return click.Option([name, *declared], help=text, hidden=hidden, multiple=several, **more)


def _type(stated: Any, kinds: list[Any], enum: Any, said: Any) -> Any:
    if enum is not None:
        return click.Choice([each.value for each in enum])
    if typing.get_origin(stated) is typing.Literal:
        return click.Choice(kinds)
    if kinds == [int] and said and (said.min is not None or said.max is not None):
        return click.IntRange(said.min, said.max)
    if kinds == [float] and said and (said.min is not None or said.max is not None):
        return click.FloatRange(said.min, said.max)
    plain = {int: click.INT, float: click.FLOAT, str: click.STRING}
    return click.Path(path_type=Path) if kinds == [Path] else plain.get(kinds[0])


def _called(callback: Callable[..., Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    many = len(inspect.signature(callback).parameters) > 1
    return lambda _, param, value: callback(param, value) if many else callback(value)


def _value(
    enum: Any, then: Any, several: bool, ctx: click.Context, param: click.Parameter, value: Any
) -> Any:
    if several:
        return [*value] or None
    if enum is not None and value is not None:
        value = enum(value)
    with _exit():
        return value if then is None else then(ctx, param, value)


@contextmanager
def _exit() -> Iterator[None]:
    try:
        yield
    except typer.Exit as ended:
        raise click.exceptions.Exit(ended.exit_code) from None
