"""What is being done right now, by name, for what shows progress; how a notebook shows it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

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


_WIDTH: Final = 79


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


@contextmanager
def telling() -> Iterator[Callable[[Any], None]]:
    """Yield a listener that shows the last improvement on stderr; the line goes at the end."""

    def tell(one: Any) -> None:
        known = ((name, getattr(one, name)) for name in ("value", "bound"))
        text = "  ".join(f"{name} {number}" for name, number in known if number is not None)
        sys.stderr.write(f"\r{f'{one.seconds:.1f} s  {text}  {one.source}':<{_WIDTH}.{_WIDTH}}")
        sys.stderr.flush()

    try:
        yield tell
    finally:
        sys.stderr.write(f"\r{'':<{_WIDTH}}\r")
        sys.stderr.flush()
