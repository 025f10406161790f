"""What is being done right now, by name, for whoever shows progress during long work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NAMES: Final[list[str]] = []  # the innermost last


@contextmanager
def doing(name: str) -> Iterator[None]:
    """Name the work within: ``with doing("writing files"):``, or as a decorator of a function."""
    _NAMES.append(name)
    try:
        yield
    finally:
        _NAMES.remove(name)


def being_done() -> str:
    """Return the name of the innermost work; empty if none has one."""
    return _NAMES[-1] if _NAMES else ""
