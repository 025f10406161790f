"""The part of YAML that our fragments write."""

from __future__ import annotations

import json
from typing import Any


def yaml(text: str) -> Any:
    """Read the part of YAML that is written: nested mappings, lists of JSON, JSON values."""
    root: dict[str, Any] = {}
    open_at: list[tuple[int, Any]] = [(-1, root)]
    pending: tuple[dict[str, Any], str] | None = None
    for line in text.splitlines():
        if line.strip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        if line.lstrip().startswith("- "):
            if pending is not None:
                pending[0][pending[1]] = []
                open_at.append((indent, pending[0][pending[1]]))
                pending = None
            open_at[-1][1].append(json.loads(line.strip()[2:]))
            continue
        if pending is not None:
            pending[0][pending[1]] = {}
            open_at.append((indent, pending[0][pending[1]]))
            pending = None
        while open_at[-1][0] > indent or (open_at[-1][0] == -1 and indent > 0):
            open_at.pop()
        key, _, value = line.strip().partition(":")
        here = open_at[-1][1]
        if value.strip():
            here[key] = json.loads(value)
        else:
            pending = (here, key)
    return root
