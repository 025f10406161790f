"""The layers of a chain in other placements, so that placements can be compared on equal terms.

Equal are the layers, the devices and their memory, the link delays and the microbatches. A stage is
cut into v equal parts (of an amount that v does not divide, the first parts take one unit more);
its static memory goes with its layers. A hop between neighbours takes their link's delay, whichever
way it goes; the hop from the last device to the first takes the slowest link's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from pipesat.errors import NotApplicable
from pipesat.files.problem_file import parse_problem
from pipesat.problem import Link, Problem

Document: TypeAlias = dict[str, Any]

_DIVIDED = ("F", "B", "W", "BW", "held_after_F", "held_after_B")


def same_layers_elsewhere(problem: Problem) -> dict[str, Problem]:
    """Return the problem itself, ``chain``, and its ``loop v=2``, ``vee`` and ``bidirectional``.

    A bidirectional pipeline has two replicas of every layer: devices hold the static memory of both
    of their stages, and each direction gets half of the microbatches. It needs two of these, and
    all other placements need two devices.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    if not problem.one_stage_per_device:
        raise NotApplicable("other placements are made from one stage per device on one route")
    found = {"chain": problem}
    p, m = len(problem.devices), problem.routes[0].microbatches
    if p > 1:
        there = list(range(p))
        back = there[::-1]
        found["loop v=2"] = _halved(problem, "loop v=2", [*there, *there])
        found["vee"] = _halved(problem, "vee", [*there, *back])
        if m > 1:
            found["bidirectional"] = _replicated(problem, [*there, *back])
    return found


def _halved(problem: Problem, name: str, ranks: Sequence[int]) -> Problem:
    """Two parts of every stage, in layer order, on these ranks."""
    parts = [
        {key: _part(stage[key], piece) if key in _DIVIDED else stage[key] for key in stage}
        for stage in _stages(problem)
        for piece in (0, 1)
    ]
    static = [0] * len(problem.devices)
    for piece, rank in enumerate(ranks):
        static[rank] += _part(_on_rank(problem, piece // 2)["static"], piece % 2)
    document = _document(problem, name, parts, ranks, static)
    document["microbatches"] = problem.routes[0].microbatches
    document["comm"] = {"edges": list(_edges(problem, ranks, 0))}
    return parse_problem(document)


def _replicated(problem: Problem, ranks: Sequence[int]) -> Problem:
    """Every stage twice; the second replica runs through the ranks the other way."""
    p, m = len(problem.devices), problem.routes[0].microbatches
    both = [*_stages(problem), *_stages(problem)]
    static = [
        _on_rank(problem, rank)["static"] + _on_rank(problem, p - 1 - rank)["static"]
        for rank in range(p)
    ]
    document = _document(problem, "bidirectional", both, ranks, static)
    document["routes"] = [
        {"stages": list(range(p)), "microbatches": m - m // 2},
        {"stages": list(range(p, 2 * p)), "microbatches": m // 2},
    ]
    edges = [*_edges(problem, ranks[:p], 0), *_edges(problem, ranks[p:], p)]
    document["comm"] = {"edges": edges}
    return parse_problem(document)


def _part(amount: int, piece: int) -> int:
    """Half of an amount; the first takes the odd unit."""
    return (amount + 1 - piece) // 2


def _stages(problem: Problem) -> Iterator[Document]:
    """The stages' costs along the route, every value filled in."""
    for number in problem.routes[0].stages:
        stage = problem.stages[number]
        yield {key: getattr(stage, key) for key in (*_DIVIDED, "backward")}


def _on_rank(problem: Problem, rank: int) -> Document:
    device = problem.devices[_device(problem, rank)]
    return {"name": device.name, "memory": device.memory, "static": device.static}


def _device(problem: Problem, rank: int) -> int:
    return problem.stages[problem.routes[0].stages[rank]].device


def _document(
    problem: Problem,
    name: str,
    stages: Sequence[Document],
    ranks: Sequence[int],
    static: Sequence[int],
) -> Document:
    """Everything but microbatches and links."""
    kept = ("format", "time_unit", "memory_unit", "overlap")
    document = {key: problem.document[key] for key in kept if key in problem.document}
    document["name"] = f"{problem.name}, {name}" if problem.name else name
    devices: list[Document] = [{}] * len(problem.devices)
    for rank, taken in enumerate(static):
        devices[_device(problem, rank)] = _on_rank(problem, rank) | {"static": taken}
    document["devices"] = devices
    document["stages"] = [
        {"device": _device(problem, rank)} | stage
        for rank, stage in zip(ranks, stages, strict=True)
    ]
    return document


def _edges(problem: Problem, ranks: Sequence[int], first: int) -> Iterator[Document]:
    """Links between consecutive stages, numbered from ``first``, that lie on these ranks."""
    route = problem.routes[0].stages
    links = [problem.links[hop] for hop in pairwise(route)]
    slowest = Link(max(link.F for link in links), max(link.B for link in links))
    for number, (a, b) in enumerate(pairwise(ranks), first):
        if a != b:
            link = links[min(a, b)] if abs(a - b) == 1 else slowest
            yield {"src": number, "dst": number + 1, "F": link.F, "B": link.B}
