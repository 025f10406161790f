"""Arguments and options as all commands have them; settings that follow an option's value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click

from pipesat.core.errors import BadInput


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
