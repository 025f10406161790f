"""The layers of a chain in other placements, so that placements can be compared on equal terms.

Equal are the layers, the devices and their memory, the link delays and the microbatches. A loop and
a V need every stage cut in two, and only between layers: a problem does not say where these are, so
whoever asks says of how many equal layers every stage is made. Of an odd number one part has a
layer more, the first or the second, so that devices share them evenly. A part takes its layers'
share of every amount (where that is no whole number, the first part takes what is over), and of the
static memory. A hop between neighbours takes their link's delay, whichever way it goes; the hop
from the last device to the first takes the slowest link's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, TypeAlias

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.problem import Link, Problem
from pipesat.files.problem_file import parse_problem

Document: TypeAlias = dict[str, Any]

_TIMES: Final = ("F", "B", "W")
_DIVIDED: Final = ("F", "B", "W", "BW", "held_after_F", "held_after_B")


PLACEMENTS: Final = ("chain", "loop v=2", "vee", "bidirectional")
CUT: Final = frozenset({"loop v=2", "vee"})
"""Placements that cut stages."""


def same_layers_elsewhere(
    problem: Problem, layers: Sequence[int] = (), wanted: Collection[str] = PLACEMENTS
) -> dict[str, Problem]:
    """Return the problem itself, ``chain``, and its ``loop v=2``, ``vee`` and ``bidirectional``.

    A bidirectional pipeline has two replicas of every layer: devices hold the static memory of both
    of their stages, and each direction gets half of the microbatches. It needs two of these, and
    all other placements need two devices.

    Parameters
    ----------
    layers
        Of how many equal layers every stage is made, along the route; one number stands for all.
        The problem does not know: it is the caller's statement, and a loop or a V needs it.
    wanted
        Which of the placements.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    BadInput
        If a loop or a V is wanted, and nobody says that stages divide, or they do not.
    """
    if not problem.one_stage_per_device:
        raise NotApplicable("other placements are made from one stage per device on one route")
    p, m = len(problem.devices), problem.routes[0].microbatches
    there = list(range(p))
    ranks = {"loop v=2": [*there, *there], "vee": [*there, *there[::-1]]}
    found: dict[str, Problem] = {}
    for name in (name for name in PLACEMENTS if name in wanted):
        if name == "chain":
            found[name] = problem
        elif name in CUT and p > 1:
            found[name] = _cut(problem, name, ranks[name], _counts(layers, p))
        elif name == "bidirectional" and p > 1 and m > 1:
            found[name] = _replicated(problem, ranks["vee"])
    return found


def _counts(layers: Sequence[int], stages: int) -> list[int]:
    """Layers of every stage, at least two each."""
    if not layers:
        raise BadInput(
            "a loop and a V cut every stage in two, and a problem does not say that its stages "
            "divide: say of how many equal layers each is made (--layers N), or give the costs of "
            "real layers to `pipesat plan LAYERS --placement any`",
            where="--placements",
        )
    counts = [*layers] * stages if len(layers) == 1 else [*layers]
    if len(counts) != stages:
        raise BadInput(
            f"{len(counts)} numbers, expected {stages}, one per stage, or one for all",
            where="--layers",
        )
    for stage, count in enumerate(counts):
        if count < 2:
            raise BadInput(
                f"stage {stage} of the route cannot be cut in two: expected at least 2 layers; "
                "`pipesat plan LAYERS --placement any` cuts real layers wherever that is best",
                where="--layers", value=count,
            )  # fmt: skip
    return counts


def _cut(problem: Problem, name: str, ranks: Sequence[int], counts: Sequence[int]) -> Problem:
    """Two parts of every stage, in layer order, on these ranks."""
    whole = [*_stages(problem)]
    loads = [sum(stage[kind] for kind in _TIMES) for stage in whole]
    firsts = _evened([-(-count // 2) for count in counts], counts, loads, ranks)
    parts = [
        {
            key: _part(stage[key], first, n, piece) if key in _DIVIDED else stage[key]
            for key in stage
        }
        for stage, first, n in zip(whole, firsts, counts, strict=True)
        for piece in (0, 1)
    ]
    static = [0] * len(problem.devices)
    for number, rank in enumerate(ranks):
        stage, piece = divmod(number, 2)
        taken = _on_rank(problem, stage)["static"]
        static[rank] += _part(taken, firsts[stage], counts[stage], piece)
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


def _evened(
    firsts: list[int], counts: Sequence[int], loads: Sequence[int], ranks: Sequence[int]
) -> list[int]:
    """Which part of an odd stage has the layer more: moved while that evens out the devices."""
    share = [Fraction(load, count) for load, count in zip(loads, counts, strict=True)]
    taken = [Fraction(0)] * len(counts)
    for stage, (first, count) in enumerate(zip(firsts, counts, strict=True)):
        taken[ranks[2 * stage]] += first * share[stage]
        taken[ranks[2 * stage + 1]] += (count - first) * share[stage]
    moved = True
    while moved:
        moved = False
        for stage, count in enumerate(counts):
            one, other = ranks[2 * stage], ranks[2 * stage + 1]
            step = share[stage] * (2 * firsts[stage] - count)  # 0 of an even count
            # the sum of squares falls if and only if the difference shrinks
            if one != other and step * (taken[one] - taken[other] - step) > 0:
                firsts[stage] = count - firsts[stage]
                taken[one] -= step
                taken[other] += step
                moved = True
    return firsts


def _part(amount: int, first: int, layers: int, piece: int) -> int:
    """What the first or the second part takes of an amount; ``first`` layers are in the first."""
    begin = -(-amount * first // layers)
    return amount - begin if piece else begin


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
