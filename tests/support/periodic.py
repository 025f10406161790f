"""Tessel's V and X, and problems with another number of microbatches."""

from __future__ import annotations

from typing import Any

from pipesat.core.problem import Problem
from pipesat.files.problem_file import FORMAT, parse_problem
from tests.support.problems import document


def with_microbatches(problem: Problem, m: int) -> Problem:
    """The same pipeline with m microbatches on every route."""
    if "routes" not in problem.document:
        return parse_problem(document(problem, microbatches=m))
    routes = [dict(route) | {"microbatches": m} for route in problem.document["routes"]]
    return parse_problem(document(problem, routes=routes))


def tessel(shape: str, p: int) -> Problem:
    """Tessel's V (one chain) and X (two chains in opposite directions): F = 1, BW = 3, cap p."""
    stage = {"F": 1, "B": 1, "W": 2, "BW": 3, "held_after_F": 1, "backward": "fused"}
    devices = list(range(p)) if shape == "V" else [*range(p), *reversed(range(p))]
    doc: dict[str, Any] = {
        "format": FORMAT,
        "devices": [{"memory": p}] * p,
        "stages": [{"device": d} | stage for d in devices],
    }
    if shape == "V":
        doc["microbatches"] = 2 * p
    else:
        doc["routes"] = [
            {"stages": list(range(p)), "microbatches": 2 * p},
            {"stages": list(range(p, 2 * p)), "microbatches": 2 * p},
        ]
    return parse_problem(doc)
