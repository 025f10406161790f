"""Copies of a problem in which some of its document says something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipesat.core.errors import said_of
from pipesat.core.problem import Problem
from pipesat.files.problem_file import parse_problem
from pipesat.placement.documents import Document, capacities_of
from pipesat.placement.given import (
    amounts,
    at_least,
    comm_of,
    in_memory_units,
    memory_of,
    microbatches_of,
    on_devices,
    overlap_of,
    plain,
)


def changed(problem: Problem, **given: Any) -> Problem:
    """Return a copy of a problem in which some of its document says something else.

    Raises
    ------
    BadInput
        Naming the method, the parameter, its value and what would be right.
    """
    source = f"Problem.with_{next(iter(given))}"
    gone = {"order", "overlap"} & given.keys()
    document = {key: value for key, value in problem.document.items() if key not in gone}
    plainly = {key: plain(value) for key, value in given.items()}
    with said_of(source):
        for key, value in in_memory_units(plainly, problem.memory_unit).items():
            document |= _said(problem, key, value)
    return parse_problem(document, source)


def _said(problem: Problem, key: str, value: Any) -> Document:
    """What the document says from now on."""
    match key:
        case "memory" | "static":
            memory = key == "memory"
            each = capacities_of(problem, memory_of(value)) if memory else amounts(key, value)
            return on_devices(problem.document, key, each)
        case "microbatches":
            return _microbatches(problem.document, value)
        case "comm":
            homes = [stage.device for stage in problem.stages]
            routes = [route.stages for route in problem.routes]
            return {key: comm_of(value, homes, routes, len(problem.devices))}
        case "backward":
            return {"stages": [{**stage, key: value} for stage in problem.document["stages"]]}
        case "overlap":
            return overlap_of(value)
    return {} if key == "order" and value is None else {key: value}


def _microbatches(document: Mapping[str, Any], value: Any) -> Document:
    """A number or a list; where there are routes, each its own."""
    if "routes" not in document:
        return {"microbatches": microbatches_of(value, 1)[0]}
    entries = document["routes"]
    if isinstance(value, list) or len(entries) == 1:
        own = microbatches_of(value, len(entries))
    else:
        share, over = divmod(at_least(len(entries), "microbatches", value), len(entries))
        own = [share + (route < over) for route in range(len(entries))]
    together = zip(entries, own, strict=True)
    return {"routes": [{**entry, "microbatches": one} for entry, one in together]}
