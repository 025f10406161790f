"""Writing problem files: one line per key, device, stage, route, link and pair."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipesat.core.arguments import public
from pipesat.core.problem import Problem
from pipesat.files.atomic import write_file


def problem_text(document: Mapping[str, Any]) -> str:
    """Return a problem document's text, ASCII."""
    entries = [f" {json.dumps(key)}: {_value(value)}" for key, value in document.items()]
    return "".join(["{\n", ",\n".join(entries), "\n}\n"])


def _value(value: Any) -> str:
    if isinstance(value, list):
        rows = ",\n  ".join(json.dumps(entry) for entry in value)
        return f"[\n  {rows}\n ]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_value(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


@public
def write_problem(path: str | Path, problem: Problem) -> None:
    """Write a problem file.

    Raises
    ------
    BadInput
        If the file cannot be written.
    """
    write_file(Path(path), problem_text(problem.document).encode())
