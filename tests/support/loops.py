"""Problems on chains and loops: uniform ones, and hypothesis strategies for uneven ones."""

from __future__ import annotations

from typing import Any

from pipesat.core.problem import Problem
from pipesat.files.problem_file import FORMAT, parse_problem


def loop(
    p: int,
    v: int,
    m: int,
    *,
    F: int = 1,
    B: int = 1,
    W: int = 1,
    comm: int = 0,
    overlap: tuple[int, int] | None = None,
    **stage: Any,
) -> Problem:
    """A uniform loop: p v stages, stage s on device s mod p; every chunk holds one unit."""
    costs = {"F": F, "B": B, "W": W, "held_after_F": 1, "held_after_B": 1} | stage
    doc: dict[str, Any] = {
        "format": FORMAT,
        "microbatches": m,
        "devices": [{} for _ in range(p)],
        "stages": [{"device": s % p} | costs for s in range(p * v)],
        "comm": {"default": comm},
    }
    if overlap is not None:
        doc["overlap"] = {"FB": list(overlap)}
    return parse_problem(doc)
