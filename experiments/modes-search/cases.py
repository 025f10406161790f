"""The problems with memory modes, and where their results lie."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from pipesat.files.problem_file import read_problem

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from pipesat.core.problem import Problem  # noqa: E402

RESULTS, RIVALS = HERE / "results.json", HERE / "rivals.json"


def problems() -> Iterator[tuple[str, Problem]]:
    """Names and problems."""
    for path in sorted((ROOT / "bench" / "beyond" / "problems").glob("mode-*.json")):
        yield path.stem, read_problem(path)
