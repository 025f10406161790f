"""Arguments of public functions: of the type that the signature states, else a clear complaint."""

from __future__ import annotations

import ast
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from math import isnan
from numbers import Integral, Real
from os import PathLike
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from pipesat.core.errors import BadInput

P = ParamSpec("P")
T = TypeVar("T")


class _Wanted(NamedTuple):
    """What an argument has to be, in words, and whether a value is; ``each``: what its entries."""

    words: str
    takes: Callable[[Any], bool]
    each: _Wanted | None = None


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not isnan(value)


_NUMBER: Final = _Wanted("a number", _is_number)
_FUNCTION: Final = _Wanted("a function", callable)
_DICTIONARY: Final = _Wanted("a dictionary", lambda value: isinstance(value, Mapping))
_SIMPLE: Final = {
    "None": _Wanted("None", lambda value: value is None),
    "str": _Wanted("a text", lambda value: isinstance(value, str)),
    "Path": _Wanted("a path", lambda value: isinstance(value, PathLike)),
    "int": _Wanted("an integer", lambda v: isinstance(v, Integral) and not isinstance(v, bool)),
    "float": _NUMBER,
    "Fraction": _NUMBER,
    "Mapping": _DICTIONARY,
    "dict": _DICTIONARY,
    "Callable": _FUNCTION,
    "Listener": _FUNCTION,
    "Watch": _FUNCTION,
    "Order": _Wanted("an order: a list per device", lambda v: isinstance(v, list | tuple)),
    "threading.Event": _Wanted("an event", lambda value: hasattr(value, "is_set")),
}
_CLASSES: Final = (
    *("Bound", "LinksModel", "Layers", "Parts", "PartsMap", "Problem", "Profile", "Result"),
    *("Schedule", "Shape", "Timeline"),
)
"""Known by their names, so that nothing is imported for a look."""


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function complain about an argument that is not of the type that it states.

    What is stated in other words than these (a flag, an alias that says more) is left to the
    function.
    """
    module = inspect.getmodule(function)
    wanted = {
        name: found
        for name, parameter in inspect.signature(function).parameters.items()
        if isinstance(parameter.annotation, str)
        and parameter.kind is not parameter.VAR_KEYWORD
        and (found := _wanted(ast.parse(parameter.annotation, mode="eval").body, vars(module)))
    }
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name in wanted and not wanted[name].takes(value):
                raise _complaint(name, value, wanted[name])
        return function(*args, **kwargs)

    return checked


def _complaint(name: str, value: Any, wanted: _Wanted) -> BadInput:
    """Say what is wrong with an argument, or with one of its entries."""
    if wanted.each is not None and isinstance(value, list | tuple):
        for place, entry in enumerate(value):
            if not wanted.each.takes(entry):
                return _complaint(f"{name}[{place}]", entry, wanted.each)
    return BadInput(f"expected {wanted.words}", where=name, value=value)


def _wanted(stated: ast.expr, names: Mapping[str, Any]) -> _Wanted | None:
    """Read an annotation; ``None``: anything may do."""
    if isinstance(stated, ast.BinOp):
        return _either(_wanted(stated.left, names), _wanted(stated.right, names))
    inner = stated.slice if isinstance(stated, ast.Subscript) else stated
    name = ast.unparse(stated.value if isinstance(stated, ast.Subscript) else stated)
    if name in {"Sequence", "Iterable"}:
        return _several(_wanted(inner, names))
    if name == "Literal":
        return _one_of(ast.literal_eval(f"({ast.unparse(inner).strip('()')},)"))
    if typing.get_origin(names.get(name)) is typing.Literal:
        return _one_of(typing.get_args(names[name]))
    if name in _CLASSES or (name != "Any" and isinstance(names.get(name), type)):
        return _SIMPLE.get(name) or _Wanted(f"a {name}", lambda value: _is_a(name, value))
    return _SIMPLE.get(name)


def _either(one: _Wanted | None, other: _Wanted | None) -> _Wanted | None:
    if one is None or other is None:
        return None
    words = dict.fromkeys((one.words, other.words))
    takes = lambda value: one.takes(value) or other.takes(value)  # noqa: E731
    return _Wanted(" or ".join(words), takes, one.each or other.each)


def _one_of(choices: tuple[object, ...]) -> _Wanted:
    words = " or ".join(map(str, choices))
    return _Wanted(words, lambda value: any(value is one or value == one for one in choices))


def _several(each: _Wanted | None) -> _Wanted:
    def takes(value: Any) -> bool:
        if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
            return False
        kept = isinstance(value, list | tuple)  # what can be read once is not read here
        return each is None or not kept or all(map(each.takes, value))

    return _Wanted("a list" if each is None else f"a list (each {each.words})", takes, each)


def _is_a(name: str, value: object) -> bool:
    return any(kind.__name__ == name for kind in type(value).__mro__)
