"""Dictionaries and lists that stay as they are: what a problem is made of.

They are dictionaries and lists in all other ways: JSON, ``==``, ``|`` and ``isinstance`` take them
as such, and a copy (``dict(...)``, ``copy``, ``deepcopy``, pickle) is an ordinary one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("a problem does not change: its with_...() methods return a changed copy")


class FrozenDict(dict[Any, Any]):
    """A dictionary whose items stay as they are."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


class FrozenList(list[Any]):
    """A list whose items stay as they are."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = remove = _refuse
    clear = pop = sort = reverse = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)


def frozen(value: Any) -> Any:
    """Return a read-only copy of a document, all the way down."""
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, Mapping):
        return FrozenDict({key: frozen(inner) for key, inner in value.items()})
    return FrozenList(map(frozen, value)) if isinstance(value, list) else value


_BY_KEY = ("devices", "stages")


def changed(read: Mapping[str, Any], said: Mapping[str, Any], now: Mapping[str, Any]) -> Any:
    """Return a document that was read with what it says now in place of what it said.

    ``said`` and ``now`` are what our own words for both are. What stays is as it was read, entry by
    entry of devices and stages, and so are the places of what changes.
    """
    found: dict[str, Any] = {}
    for key, value in read.items():
        before: Any = said.get(key)
        after: Any = now.get(key)
        if before == after:
            found[key] = value
        elif key in _BY_KEY and len(before) == len(after):
            found[key] = [*map(changed, value, before, after)]
        elif key in now:
            found[key] = after
    new = {key: value for key, value in now.items() if key not in read and said.get(key) != value}
    return found | new
