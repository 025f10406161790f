"""Arguments of public functions: of the type that the signature states, else a clear complaint.

What a docstring says of them is read, too (numpydoc): the command line shows it.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isnan
from numbers import Integral, Real
from os import PathLike
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from pipesat.core.errors import BadInput
from pipesat.core.names import hint
from pipesat.core.progress import in_notebook, telling
from pipesat.core.settings import SHARED, Within

_HEAD = "Parameters\n----------\n"


def entries_of(text: str | None) -> dict[str, str]:
    """Return what a docstring says of each parameter; an entry may name several."""
    _, _, rest = inspect.cleandoc(text or "").partition(_HEAD)
    section = re.split(r"\n\n(?=\S[^\n]*\n-+\n)", rest)[0]
    found: dict[str, str] = {}
    for names, said in re.findall(r"^(\S.*)\n((?:[ \n].*\n?)+)", section, re.MULTILINE):
        found |= dict.fromkeys(names.split(", "), " ".join(said.split()))
    return found


def with_shared(text: str | None, names: Iterable[str]) -> str | None:
    """Return a docstring with those entries of :data:`SHARED` that it leaves out."""
    if text is None or _HEAD not in (clean := inspect.cleandoc(text)):
        return text
    said = entries_of(clean)
    added = [f"{name}\n    {SHARED[name]}" for name in names if name in SHARED.keys() - said]
    head, _, rest = clean.partition(_HEAD)
    section, *more = re.split(r"\n\n(?=\S[^\n]*\n-+\n)", rest, maxsplit=1)
    return head + _HEAD + "\n".join([section, *added]) + "".join(f"\n\n{one}" for one in more)


P = ParamSpec("P")
T = TypeVar("T")


class Wanted(NamedTuple):
    """What an argument has to be, in words, and whether a value is; ``each``: what its entries.

    ``kinds`` are the names of its types, each with what it alone takes.
    """

    words: str
    takes: Callable[[Any], bool]
    each: Wanted | None = None
    kinds: Mapping[str, Wanted] = {}
    choices: tuple[Any, ...] = ()
    metavar: str = ""


_NUMBER: Final = Wanted(
    "a number", lambda v: isinstance(v, Real) and not isinstance(v, bool) and not isnan(v)
)
_FUNCTION: Final = Wanted("a function", callable)
_DICTIONARY: Final = Wanted("a dictionary", lambda value: isinstance(value, Mapping))
_SIMPLE: Final = {
    "bool": Wanted("True or False", lambda value: type(value).__name__.startswith("bool")),
    "None": Wanted("None", lambda value: value is None),
    "str": Wanted("a text", lambda value: isinstance(value, str)),
    "Path": Wanted("a path", lambda value: isinstance(value, PathLike)),
    "int": Wanted("an integer", lambda v: isinstance(v, Integral) and not isinstance(v, bool)),
    "float": _NUMBER,
    "Fraction": _NUMBER,
    "Mapping": _DICTIONARY,
    "dict": _DICTIONARY,
    "Callable": _FUNCTION,
    "Listener": _FUNCTION,
    "Watch": _FUNCTION,
    "Order": Wanted("an order: a list per device", lambda v: isinstance(v, list | tuple)),
    "Event": Wanted("an event", lambda value: hasattr(value, "is_set")),
}
_CLASSES: Final = (
    *("Bound", "LinksModel", "Layers", "Problem", "Profile", "Result"),
    *("Schedule", "Shape", "Timeline"),
)
"""Known by their names, so that nothing is imported for a look."""


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function complain about an argument that is not of the type that it states.

    What is stated in other words than these is left to the function. In a notebook, one that takes
    a ``listener`` and is given none shows its progress.
    """
    wanted = wanted_of(function)
    names = list(inspect.signature(function).parameters)
    function.__doc__ = with_shared(function.__doc__, names)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name in wanted and not wanted[name].takes(value):
                raise _complaint(name, value, wanted[name])
        if "listener" not in names or kwargs.get("listener") is not None or not in_notebook():
            return function(*args, **kwargs)
        with telling() as listener:
            kwargs["listener"] = listener
            return function(*args, **kwargs)

    return checked


def wanted_of(function: Callable[..., Any]) -> dict[str, Wanted]:
    """Return what a function's arguments have to be, as far as its annotations say it."""
    names = vars(inspect.getmodule(inspect.unwrap(function)))
    return {
        name: found
        for name, parameter in inspect.signature(function).parameters.items()
        if isinstance(parameter.annotation, str)
        and parameter.kind is not parameter.VAR_KEYWORD
        and (found := _read(parameter.annotation, names))
    }


def require_once(where: str, given: Iterable[object]) -> None:
    """Pass if nothing is given twice.

    Raises
    ------
    BadInput
        Naming what, and the parameter.
    """
    several = [*given]
    for one in several:
        if several.count(one) > 1:
            raise BadInput(f"{one} appears twice", where=where, value=",".join(map(str, several)))


def _complaint(name: str, value: Any, wanted: Wanted) -> BadInput:
    """Say what is wrong with an argument, or with one of its entries."""
    if wanted.each is not None and isinstance(value, list | tuple):
        for place, entry in enumerate(value):
            if not wanted.each.takes(entry):
                return _complaint(f"{name}[{place}]", entry, wanted.each)
    near = hint(value, map(str, wanted.choices)) if isinstance(value, str) else ""
    return BadInput(f"expected {wanted.words}{near}", where=name, value=value)


def _read(annotation: str, names: Mapping[str, Any]) -> Wanted | None:
    return _wanted(ast.parse(annotation, mode="eval").body, names)


def _wanted(stated: ast.expr, names: Mapping[str, Any]) -> Wanted | None:
    """Read an annotation; ``None``: anything may do."""
    if isinstance(stated, ast.BinOp):
        return _either(_wanted(stated.left, names), _wanted(stated.right, names))
    inner = stated.slice if isinstance(stated, ast.Subscript) else stated
    name = ast.unparse(stated.value if isinstance(stated, ast.Subscript) else stated)
    name = name.rpartition(".")[2]
    if name in {"Sequence", "Iterable"}:
        return _named(name, _several(_wanted(inner, names)))
    if name == "Literal":
        return _one_of(*ast.literal_eval(f"({ast.unparse(inner).strip('()')},)"))
    alias = names.get(name)
    if isinstance(alias, str) or typing.get_origin(alias) in {typing.Literal, typing.Annotated}:
        return _aliased(alias, names)
    if name in _CLASSES or (name != "Any" and isinstance(names.get(name), type)):
        own = Wanted(
            f"a {name}", lambda value: name in {kind.__name__ for kind in type(value).__mro__}
        )
        return _named(name, _SIMPLE.get(name) or own)
    return _named(name, _SIMPLE[name]) if name in _SIMPLE else None


def _aliased(alias: Any, names: Mapping[str, Any]) -> Wanted | None:
    """Read what an alias stands for: a text is read as an annotation."""
    if isinstance(alias, str):
        return _read(alias, names)
    literal = typing.get_origin(alias) is typing.Literal
    read = _one_of if literal else partial(annotated_as, names)
    return read(*typing.get_args(alias))


def _named(name: str, wanted: Wanted) -> Wanted:
    return wanted._replace(kinds={name: wanted})


def annotated_as(names: Mapping[str, Any], base: Any, said: Within | str) -> Wanted | None:
    """Read an alias of :mod:`pipesat.core.settings`: a range, or a metavar alone."""
    wanted = _read(base.__name__ if isinstance(base, type) else str(base), names)
    if wanted is None:
        return None
    if isinstance(said, str):
        return wanted._replace(metavar=said)
    takes = lambda value: wanted.takes(value) and said.takes(value)  # noqa: E731
    own = Wanted(f"{wanted.words} {said}", takes, metavar=said.metavar)
    return own._replace(kinds=dict.fromkeys(wanted.kinds, own))


def _either(one: Wanted | None, other: Wanted | None) -> Wanted | None:
    if one is None or other is None:
        return None
    words = dict.fromkeys((one.words, other.words))
    return Wanted(
        " or ".join(words),
        lambda value: one.takes(value) or other.takes(value),
        one.each or other.each,
        {**one.kinds, **other.kinds},
        one.choices + other.choices,
        one.metavar or other.metavar,
    )


def _one_of(*choices: object) -> Wanted:
    words = " or ".join(map(str, choices))
    takes = lambda value: any(value is one or value == one for one in choices)  # noqa: E731
    return Wanted(words, takes, kinds={"Literal": Wanted(words, takes)}, choices=choices)


def _several(each: Wanted | None) -> Wanted:
    def takes(value: Any) -> bool:
        if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
            return False
        kept = isinstance(value, list | tuple)  # what can be read once is not read here
        return each is None or not kept or all(map(each.takes, value))

    return Wanted("a list" if each is None else f"a list (each {each.words})", takes, each)
