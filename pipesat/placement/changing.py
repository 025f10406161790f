"""Copies of a problem in which some of its document says something else."""

from __future__ import annotations

from typing import Any, Final

from pipesat.core.errors import said_of
from pipesat.core.problem import Problem
from pipesat.files.problem_file import parse_problem
from pipesat.placement.documents import Document, capacities_of
from pipesat.placement.given import (
    amounts,
    at_least,
    comm_of,
    memory_of,
    microbatches_of,
    overlap_of,
    plain,
    set_on_devices,
)


def changed(problem: Problem, **given: Any) -> Problem:
    """Return a copy of a problem in which some of its document says something else.

    Raises
    ------
    BadInput
        Naming the method, the parameter, its value and what would be right.
    """
    source = f"Problem.with_{next(iter(given))}"
    document = dict(problem.document)
    with said_of(source):
        for key, value in given.items():
            _CHANGES[key](problem, document, plain(value))
    return parse_problem(document, source)


def _memory(problem: Problem, document: Document, value: Any) -> None:
    set_on_devices(document, "memory", capacities_of(problem, memory_of(value)))


def _static(problem: Problem, document: Document, value: Any) -> None:
    del problem
    set_on_devices(document, "static", amounts("static", value))


def _microbatches(problem: Problem, document: Document, value: Any) -> None:
    """Set a number or a list, each route its own; an order is that of the list there was."""
    del problem
    document.pop("order", None)
    if "routes" not in document:
        (document["microbatches"],) = microbatches_of(value, 1)
        return
    entries = document["routes"]
    if isinstance(value, list) or len(entries) == 1:
        own = microbatches_of(value, len(entries))
    else:
        share, over = divmod(at_least(len(entries), "microbatches", value), len(entries))
        own = [share + (route < over) for route in range(len(entries))]
    document["routes"] = [
        {**entry, "microbatches": one} for entry, one in zip(entries, own, strict=True)
    ]


def _comm(problem: Problem, document: Document, value: Any) -> None:
    homes = [stage.device for stage in problem.stages]
    routes = [route.stages for route in problem.routes]
    document["comm"] = comm_of(value, homes, routes, len(problem.devices))


def _backward(problem: Problem, document: Document, value: Any) -> None:
    del problem
    document["stages"] = [{**stage, "backward": value} for stage in document["stages"]]


def _overlap(problem: Problem, document: Document, value: Any) -> None:
    del problem
    document.pop("overlap", None)
    document.update(overlap_of(value))


def _name(problem: Problem, document: Document, value: Any) -> None:
    del problem
    document["name"] = value


def _order(problem: Problem, document: Document, value: Any) -> None:
    del problem
    if value is not None:
        document["order"] = value


_CHANGES: Final = {
    "backward": _backward,
    "comm": _comm,
    "memory": _memory,
    "microbatches": _microbatches,
    "name": _name,
    "order": _order,
    "overlap": _overlap,
    "static": _static,
}
