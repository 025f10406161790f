"""Writing problem files: one line per key, device, stage and route."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipesat.core.problem import Problem
from pipesat.files.atomic import write_file


def problem_text(document: Mapping[str, Any]) -> str:
    """Return a problem document's text, ASCII."""
    entries = []
    for key, value in document.items():
        if isinstance(value, list):
            rows = ",\n  ".join(json.dumps(entry) for entry in value)
            entries.append(f" {json.dumps(key)}: [\n  {rows}\n ]")
        else:
            entries.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "".join(["{\n", ",\n".join(entries), "\n}\n"])


def write_problem(path: str | Path, problem: Problem) -> None:
    """Write a problem file.

    Raises
    ------
    BadInput
        If the file cannot be written.
    """
    write_file(Path(path), problem_text(problem.document).encode())
