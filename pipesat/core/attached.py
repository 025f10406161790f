"""What the root package attaches to classes below: ``Problem.chain``, ``result.plot()``.

They are methods, so that editors offer them and ``help`` explains them where users look; but to
read, to place and to draw is the business of rooms above, which the root package knows. It says
where they are, and they are imported when they are first called. Nothing below needs one to work.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # not even typing is imported before a command hears signals
if TYPE_CHECKING:
    from typing import Any

HOMES: dict[str, str] = {}
"""Module of each function, by its name there; the root package fills it."""


def attached(name: str) -> Any:
    """Return what the root package attached by this name, or has as ``module:name`` below it."""
    module, _, function = name.rpartition(":")
    return getattr(importlib.import_module(f"pipesat.{module or HOMES[name]}"), function)
