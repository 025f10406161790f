"""Arguments and options of a command, from the signature and docstring of its function.

How a command is made: a function of its name has :func:`pipesat.cli.commands.command` around it,
which names the public function and states what is special; ``cli/app.py`` lists it.
The function gets an :class:`pipesat.cli.asked.Asked`: ``answer`` calls the public function between
reading and saving, ``show`` prints, ``end`` gives the exit code. See ``cli/decide.py``.

Each parameter of the public function is an option of its name; one that has no default and stands
in a file is an argument. From the annotation come type, choices, range and metavar; a range stands
once, in ``core/settings.py``, and Python users meet it too. From the parameter's entry in the
docstring comes the help: its first sentence, and what ``None`` stands for as the default shown.
What is not given is not passed on, so defaults are the function's. Amounts and rates are texts
that the function reads. A list is separated by commas, and the option can be repeated; a list of
texts can only be repeated, and its option has the singular of the parameter's name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Final

import click

from pipesat.core.arguments import Wanted, entries_of, wanted_of
from pipesat.core.errors import BadInput, require
from pipesat.core.names import hint, named, spelled
from pipesat.core.settings import PICTURES

_FILES: Final = {
    "Problem": "The problem file (JSON).",
    "Schedule": "A schedule file, the folder of a solve, a runtime's order (.csv, .py), or a name "
    "as compare --list has them, also as '1f1b, descending' or 'interleaved-1f1b, groups of 4'.",
    "Layers": "",
    "Profile": "",
    "Timeline": "The timeline file (JSON).",
    "Spec": "",
}
"""Types that stand in files: the command line takes a path. Some arguments are told so."""
FILLED: Final = ("listener", "stop", "watch", "note")
"""Parameters that commands fill themselves."""
AS_JSON: Final = "pipesat.as_json"
"""Whether --json is given, in a context's ``meta``: for options that end a command on their own."""
_NONE = re.compile(r"[;,]? *\(?``None``: ((?:[^.;)]|\.(?=\d))+)\)?")
_ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


def function_of(name: str) -> Callable[..., Any]:
    """Return a public function by its name, or one below as ``module:name``; commands load late."""
    found: Callable[..., Any] = resolve_name(
        f"pipesat.{name}" if ":" in name else f"pipesat:{name}"
    )
    return found


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
        given = opts.get(self.name or "")
        texts = given if isinstance(given, list | tuple) else [given]
        heads: list[str] = []
        told: dict[str, list[str]] = {}
        for text in texts:
            if not isinstance(text, str):
                continue
            into, seen = heads, set[str]()
            for place, part in enumerate(text.split(",")):
                word, _, value = part.partition("=")
                key = spelled(word.strip(), self.members)
                if key is not None:
                    if key in seen and not self.members[key].multiple:
                        raise BadInput(
                            "expected it once",
                            where=f"{max(self.opts, key=len)} {key}",
                            value=text,
                        )
                    seen.add(key)
                    into = told.setdefault(key, [])
                    into.append(value or "yes" * self.members[key].is_flag)
                elif place == 0 or (value and heads is not into and "=" in (self.help or "")):
                    into = heads  # the value, or a key of its own
                    heads.append(part)
                else:  # a value may have commas
                    into[-1] += f",{part}"
        for key, member in self.members.items():
            own = told.get(key, [])
            theirs = {member.name: own if member.multiple else own[-1]} if own else {}
            with self._unknown_key(own):
                member.handle_parse_result(ctx, theirs, args)
        keyed = ",".join(heads) if all("=" in one for one in heads) else heads[-1]
        mine = {self.name: heads if self.multiple else keyed} if heads else {}
        with self._unknown_key(heads):
            return super().handle_parse_result(ctx, mine, args)

    @contextmanager
    def _unknown_key(self, given: Sequence[str]) -> Iterator[None]:
        """Complain of a key that no one has, not of the value that it was taken for a part of."""
        try:
            yield
        except BadInput as error:
            raise self.unknown_key(error, ",".join(given)) from None

    def unknown_key(self, error: BadInput, given: str) -> BadInput:
        """Return the complaint of a key in the value, if there is one; else the error.

        A value whose help shows a ``=`` has keys of its own: then only one that is nearly a member.
        """
        keys = re.findall(r"(?:^|,)\s*([A-Za-z][\w-]*)\s*=", given)
        key = next((key for key in keys if hint(key, self.members)), None)
        if key is None:
            if not (self.members and keys) or "=" in (self.help or ""):
                return error
            key = keys[0]
        return BadInput(
            f"expected one of {', '.join(self.members)}{hint(key, self.members)}",
            where=f"{max(self.opts, key=len)}: unknown key",
            value=key,
        )


def settings(name: str, text: str) -> Option:
    """Return an option that has no value of its own: ``--shape length=4096,batch=2``."""

    def nothing_else(_: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None and isinstance(param, Option):
            raise BadInput(
                f"expected values of {', '.join(param.members)}", where=f"--{name}", value=value
            )

    return Option(
        [f"--{name}"], metavar="KEY=VALUE", help=text, expose_value=False, callback=nothing_else
    )


def with_members(params: Iterable[click.Parameter]) -> Iterator[click.Parameter]:
    """Yield parameters, each followed by the options that follow its value."""
    for one in params:
        yield one
        yield from one.members.values() if isinstance(one, Option) else ()


class Several(Option):
    """An option for a list: each time it is given, it may have several values."""

    def __init__(self, declared: Sequence[str], **more: Any) -> None:
        super().__init__(declared, multiple=True, **more)

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Return one list, or the one value where the function takes it so."""
        found = [*chain.from_iterable(super().type_cast_value(ctx, value) or ())]
        alone = isinstance(self.type, AnnotatedValue) and self.type.wanted.kinds.keys() & {
            "int",
            "str",
            "float",
        }
        return found[0] if alone and len(found) == 1 else found

    def value_is_missing(self, value: Any) -> bool:
        """Whether there is none; click looks for an empty tuple."""
        return value == [] or super().value_is_missing(value)


class NameChoice(click.Choice):  # type: ignore[type-arg]
    """One of several names, in any spelling that says which."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name that is meant."""
        where = "" if param is None else max(param.opts, key=len)
        if isinstance(value, str):
            value = named(where, value, map(str, self.choices))
        return super().convert(value, param, ctx)


class AnnotatedValue(click.ParamType):  # type: ignore[type-arg]
    """A value as an annotation describes it; what it does not take is refused."""

    name = "value"

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted

    def convert(self, value: Any, param: click.Parameter | None, _: click.Context | None) -> Any:
        """Return what the function is called with: of a list, the values given here."""
        each = self.wanted.each
        one = self.wanted if each is None else each
        if not isinstance(value, str):
            return value
        words = value.split(",") if each is not None and "".join(each.kinds) != "str" else [value]
        found = [_read(word.strip(), one) for word in words]
        if None in found:
            where = "" if param is None else max(param.opts, key=len)
            text = one.words.removesuffix(" or None")
            several = "" if each is None else ", or several, separated by commas"
            if several and re.match(r"[0-9.]+ ?[num]?s\b", value):
                several += "; their unit is --units time=UNIT"
            raise BadInput(f"expected {text}{several}", where=where, value=value)
        return found if each is not None else found[0]


def _read(text: str, wanted: Wanted) -> Any:
    """Return the first value that a text may stand for; ``None``: there is none."""
    for kind, made in _MADE.items():
        if kind in wanted.kinds:
            try:
                value = made(text)
            except (ValueError, ZeroDivisionError):
                continue
            return value if wanted.takes(value) else None
    return None


def _number(kind: Callable[[str], Any], digits: str, text: str) -> Any:
    """No 1_000, 1e3 or nan, and no digits of other scripts."""
    if not re.fullmatch(digits, text):
        raise ValueError(text)
    return kind(text)


_MADE: Final[dict[str, Callable[[str], Any]]] = {
    "str": str,  # first: the function reads it, as 40GiB or 40
    "Literal": str,
    "int": partial(_number, int, "-?[0-9]{1,30}"),
    "float": partial(_number, float, r"-?[0-9]{0,30}\.?[0-9]{1,30}"),
    "Path": Path,
}


def parameters(
    function: Callable[..., Any],
    names: Mapping[str, str],
    without: Sequence[str] = (),
    metavars: Mapping[str, str] | None = None,
) -> list[click.Parameter]:
    """Return the arguments and options of a function.

    ``names`` has the options of parameters that are called otherwise (``-o/--output``: both;
    ``[PARTS]``: an argument that may be left out), ``without`` the parameters that the command line
    lacks.
    """
    wanted, said = wanted_of(function), entries_of(function.__doc__)
    found: dict[str, click.Parameter] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in (*FILLED, *without):
            continue
        if name not in wanted:
            raise TypeError(f"{function.__name__}: no option for {name}: {parameter.annotation}")
        metavar = (metavars or {}).get(name) or _metavar(wanted[name])
        found[name] = _parameter(name, parameter.default, wanted[name], names.get(name), metavar)
    for name, one in found.items():
        a_file = isinstance(one, Argument) and one.required  # else it says what it may be
        told = a_file and next(filter(None, map(_FILES.get, wanted[name].kinds)), "")
        if not (text := told or said.get(name)):
            raise TypeError(f"{function.__name__}: its docstring has no entry for {name}")
        one.help = _help(text, found, one.default)
    return [*found.values()]


def _parameter(
    name: str, default: Any, wanted: Wanted, option: str | None, metavar: str | None
) -> click.Parameter:
    required, kinds = default is inspect.Parameter.empty, wanted.kinds
    files = wanted.each is not None and "Path" in wanted.each.kinds
    stated = option if option is None or option.startswith("[") else None
    if (required or stated) and stated == option and (files or kinds.keys() & {*_FILES, "Path"}):
        several = {"nargs": -1, "metavar": f"{metavar}..."} if files else {"metavar": metavar}
        return Argument(
            [name],
            help="",
            type=click.Path(path_type=Path),
            is_eager=True,
            required=stated is None,
            **several | ({"metavar": stated} if stated else {}),
        )
    texts = wanted.each is not None and "".join(wanted.each.kinds) == "str"
    plain = name.removesuffix("s") if texts else name
    declared = [name, *(option or f"--{plain.replace('_', '-')}").split("/")]
    if "bool" in kinds:
        if default is True:
            declared[-1] += f"/--no-{declared[-1].removeprefix('--')}"
        return Option(declared, is_flag=True, default=default)
    more: dict[str, Any] = {"required": required, "metavar": metavar}
    more |= {} if required else {"default": default}
    if wanted.each is not None and "Path" not in kinds:
        return Several(declared, type=AnnotatedValue(wanted), **more | {"default": None})
    if wanted.choices and kinds.keys() <= {"Literal", "None"}:
        return Option(declared, type=NameChoice(wanted.choices), **more)
    if kinds.keys() & {*_FILES, "Path"}:
        return Option(declared, type=click.Path(path_type=Path), is_eager=True, **more)
    return Option(declared, type=AnnotatedValue(wanted), **more)


def _metavar(wanted: Wanted) -> str | None:
    """Return what stands for a value in the help; ``None``: click says it."""
    one = wanted.each or wanted
    if file := next((kind.upper() for kind in _FILES if kind in wanted.kinds), None):
        return file
    if wanted.each is None and (wanted.metavar or one.choices):
        return wanted.metavar or None
    names = {"Literal": "NAME", "str": "TEXT", "int": "N", "float": "X", "Path": "FILE"}
    shown = one.metavar or next((text for kind, text in names.items() if kind in one.kinds), None)
    lists = wanted.each is not None and shown is not None and "".join(one.kinds) != "str"
    return f"{shown}[,{shown}...]" if lists else shown


def _help(text: str, known: Mapping[str, click.Parameter], default: object) -> str:
    """Return an entry's first sentence, with options in place of parameters, and the default."""

    def option(name: re.Match[str]) -> str:
        one = known.get(name[1])
        return max(one.opts, key=len) if isinstance(one, click.Option) else name[1]

    if meant := _NONE.search(text):
        default = re.sub(r"``([^`]+)``", option, meant[1])
    plain = re.sub(r"``([^`]+)``", option, _ROLE.sub(r"\1", _NONE.sub("", text)))
    sentence = re.split(r"(?<=[a-z)])\. (?=[A-Z\"])", plain)[0].rstrip(".")
    if isinstance(default, float):
        default = f"{default:g}"
    shown = isinstance(default, int | str) and not isinstance(default, bool) and default != ""
    return f"{sentence}." + (f"  [default: {default}]" if shown else "")


def output_option(output: str) -> click.Option:
    """Return the option of where a command writes: DIR, FILE, or [FILE], which may be left out."""
    folder = output == "DIR"
    return Option(
        ["-o", "--output"],
        type=click.Path(path_type=Path),
        metavar=output.strip("[]"),
        required=output == "FILE",
        callback=None if folder else writable,
        help="Folder for all results." if folder else "File to write.",
    )


def file_option(name: str, text: str) -> Option:
    """Return an option that takes a file to write: that it can be is known before any work."""
    return Option(
        [name],
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=writable,
        help=text,
    )


def grouped(
    params: list[click.Parameter], follow: Mapping[str, Mapping[str, str] | Sequence[str]]
) -> list[click.Parameter]:
    """Return parameters of which some follow the value of another: by its name, theirs by key."""
    by_name = {one.name: one for one in params}
    found = [*params]
    for host, keys in follow.items():
        names = keys if isinstance(keys, Mapping) else {key: key for key in keys}
        members, option = {key: by_name[name] for key, name in names.items()}, by_name[host]
        option.host(members)  # type: ignore[attr-defined]
        if not option.expose_value:  # it stands where its first member did
            found.remove(option)
            found.insert(found.index(members[next(iter(members))]), option)
        found = [one for one in found if one not in members.values()]
    return found


def writable(_: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a file that cannot be written, or has another picture's ending, before any work."""
    from pipesat.core.atomic import require_writable

    if path is not None:
        endings = {f".{kind}" for kind in (*PICTURES, "html")}
        require(
            f".{param.name}" not in endings or path.suffix not in endings - {f".{param.name}"},
            f"expected a .{param.name}",
            where=f"--{param.name}",
            value=str(path),
        )
        require_writable(path)
    return path
