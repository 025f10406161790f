"""Problem files, ``pipesat.problem/1``: every value checked, every complaint with its path."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from pipesat.core.arguments import public
from pipesat.core.atomic import write_file
from pipesat.core.complaint import validated
from pipesat.core.errors import BadInput, require, said_of
from pipesat.core.frozen import frozen
from pipesat.core.settings import MicrobatchOrder, ModeChoice
from pipesat.core.strict_json import (
    MOST,
    MOST_DEVICES,
    MOST_STAGES,
    Amount,
    StrictModel,
    read_json,
)
from pipesat.problem.building import StageBackward
from pipesat.problem.microbatch_list import MOST_CLASSES, routes_in
from pipesat.problem.problem import FORMAT, Device, Edges, Link, Problem, Route, Stage
from pipesat.problem.problem_checks import checked
from pipesat.problem.problem_entries import (
    ABSENT,
    MOST_MODES,
    AmountsModel,
    ModeModel,
    OverlapModel,
    parse_modes,
    parse_overlap,
    stated_in,
)

__all__ = ["FORMAT", "parse_problem", "problem_text", "read_problem", "write_problem"]


class DeviceModel(StrictModel):
    """One entry of ``devices``."""

    name: str = ""
    memory: Amount | None = None
    static: Amount = 0
    copy_channels: Annotated[int, Field(ge=1, le=2)] = 2


class PlacedModel(StrictModel):
    """Where a stage lies: first of what is wrong with it."""

    device: Amount


class StageModel(AmountsModel, PlacedModel):  # type: ignore[misc]
    """One entry of ``stages``; ``BW`` defaults to ``B + W``."""

    F: Amount
    B: Amount
    W: Amount
    backward: StageBackward = "either"
    modes: Annotated[list[ModeModel], Field(max_length=MOST_MODES)] = []


_Microbatches: TypeAlias = Annotated[
    Any,
    Field(
        description="How many, or a list of classes. They are independent of each other, unless "
        "the route's `slices` says how many that follow each other are one sequence."
    ),
]
_MOST_EDGES: Final = 65_536


class RouteModel(StrictModel):
    """One entry of ``routes``."""

    stages: Annotated[list[Amount], Field(min_length=1)]
    microbatches: _Microbatches
    edges: list[Annotated[list[Amount], Field(min_length=2, max_length=2)]] = ABSENT
    slices: Annotated[int, Field(ge=2, le=MOST)] = ABSENT


class EdgeModel(StrictModel):
    """One entry of ``comm.edges``; a missing direction takes the default delay."""

    src: Amount
    dst: Amount
    F: Amount = 0
    B: Amount = 0


class CommModel(StrictModel):
    """``comm``."""

    default: Amount = 0
    edges: list[EdgeModel] = []


class ProblemModel(StrictModel):
    """The whole document."""

    format: Literal["pipesat.problem/1"]
    name: str = ""
    time_unit: str = ""
    memory_unit: str = ""
    estimate: str = ""
    devices: Annotated[list[DeviceModel], Field(min_length=1, max_length=MOST_DEVICES)]
    stages: Annotated[list[StageModel], Field(min_length=1, max_length=MOST_STAGES)]
    microbatches: _Microbatches = 1
    order: MicrobatchOrder = "free"
    mode_choice: ModeChoice = "microbatch"
    routes: Annotated[list[RouteModel], Field(min_length=1)] = []
    comm: CommModel = CommModel()
    overlap: OverlapModel = ABSENT


@public
def read_problem(path: str | Path, classes: int = MOST_CLASSES) -> Problem:
    """Read and validate a problem file; ``classes`` are how many it may have at most.

    Raises
    ------
    BadInput
        With the file, the path of the value, the value and what would be right.
    """
    return parse_problem(read_json(Path(path)), str(path), classes)


@public
def parse_problem(
    document: object, source: str = "problem", classes: int = MOST_CLASSES
) -> Problem:
    """Validate a problem document (what ``json.loads`` returns).

    Raises
    ------
    BadInput
        As :func:`read_problem`.
    """
    model = validated(document, ProblemModel, source)
    with said_of(source):
        return _problem(model, document, classes)


def _problem(model: ProblemModel, document: Any, classes: int) -> Problem:
    listed = [route.microbatches for route in model.routes] or [model.microbatches]
    passed = [route.stages for route in model.routes] or [[*range(len(model.stages))]]
    key = "routes" if model.routes else "microbatches"
    ordered = "order" in model.model_fields_set
    routes = routes_in(listed, passed, key=key, ordered=ordered, classes=classes)
    _check_stages(model)
    _check_routes(model)
    if model.routes:
        own = zip(routes, map(_graph, model.routes, count()), model.routes, strict=True)
        routes = tuple(replace(r, graph=graph, slices=e.slices or 1) for r, graph, e in own)
    stages = tuple(_stage(s, number) for number, s in enumerate(model.stages))
    homes = [stage.device for stage in stages]
    problem = Problem(
        name=model.name,
        time_unit=model.time_unit,
        memory_unit=model.memory_unit,
        devices=tuple(Device(d.name, d.memory, d.static, d.copy_channels) for d in model.devices),
        stages=stages,
        routes=routes,
        links=links_of(model.comm, homes, edges_of(routes)),
        overlap=parse_overlap(model.overlap, homes),
        order=model.order,
        mode_choice=model.mode_choice,
        estimate=model.estimate,
    )
    return checked(replace(problem, read_as=(frozen(_text(document)), problem)))


def _text(document: Any) -> Any:
    """Return a document if it can be written."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadInput("a string has a lone surrogate, which is no text") from None
    return document


def _stage(model: StageModel, number: int) -> Stage:
    amounts: dict[str, Any] = dict(stated_in(model))
    modes = parse_modes(model.modes, model.held_after_F, number)
    return Stage(device=model.device, backward=model.backward, modes=modes, **amounts)


def _check_stages(model: ProblemModel) -> None:
    for number, stage in enumerate(model.stages):
        require(
            stage.device < len(model.devices),
            f"expected a device from 0 to {len(model.devices) - 1}",
            where=f"stages[{number}].device",
            value=stage.device,
        )


def _check_routes(model: ProblemModel) -> None:
    given = model.model_fields_set
    require(
        ("routes" in given) != ("microbatches" in given),
        "expected either microbatches or routes"
        + (", not both" if "routes" in given else "; both are missing"),
        where="microbatches",
    )
    seen: dict[int, str] = {}
    for r, route in enumerate(model.routes):
        for i, stage in enumerate(route.stages):
            where = f"routes[{r}].stages[{i}]"
            require(
                stage < len(model.stages),
                f"expected a stage from 0 to {len(model.stages) - 1}",
                where=where,
                value=stage,
            )
            require(
                stage not in seen,
                f"expected every stage on one route, once, but it also stands at {seen.get(stage)}",
                where=where,
                value=stage,
            )
            seen[stage] = where
    require(
        sum(len(route.edges or ()) for route in model.routes) <= _MOST_EDGES,
        f"expected at most {_MOST_EDGES} of all routes together",
        where="routes[0].edges",
    )
    for stage in range(len(model.stages)) if model.routes else ():
        require(
            stage in seen,
            f"stage {stage} is on no route, expected every stage on one route",
            where="routes",
        )


def _graph(route: RouteModel, number: int) -> Edges | None:
    """Return the edges of a route; ``None`` for a chain, be its edges stated or not."""
    if route.edges is None:
        return None
    place = {stage: at for at, stage in enumerate(route.stages)}
    where = f"routes[{number}].edges"
    seen: dict[tuple[int, int], str] = {}
    joined = {stage: {stage} for stage in route.stages}
    for at, (src, dst) in enumerate(route.edges):
        here, edge = f"{where}[{at}]", [src, dst]
        require(
            src in place and dst in place and place[src] < place[dst],
            "expected two stages of the route, from an earlier one in `stages` to a later",
            where=here,
            value=edge,
        )
        require(
            (src, dst) not in seen,
            f"expected each edge once, but it also stands at {seen.get((src, dst))}",
            where=here,
            value=edge,
        )
        seen[src, dst] = here
        one, other = sorted((joined[src], joined[dst]), key=len)
        if one is not other:
            other |= one
            joined |= dict.fromkeys(one, other)
    first = joined[route.stages[0]]
    apart = next((stage for stage in route.stages if stage not in first), None)
    require(
        apart is None,
        f"no edges connect stage {apart} with stage {route.stages[0]}, expected one graph",
        where=where,
    )
    chain = [*pairwise(route.stages)]
    return None if {*seen} == {*chain} else tuple(seen)


def edges_of(routes: Iterable[Route]) -> list[tuple[int, int]]:
    """Return the edges of all routes."""
    return [edge for route in routes for edge in route.edges]


def links_of(
    comm: CommModel, homes: Sequence[int], routes: Iterable[Iterable[int]]
) -> dict[tuple[int, int], Link]:
    """Return the delays that ``comm`` states; ``homes`` has each stage's device."""
    hops = {hop for route in routes for hop in pairwise(route)}
    given: dict[tuple[int, int], Link] = {}
    for number, edge in enumerate(comm.edges):
        hop, where = (edge.src, edge.dst), f"comm.edges[{number}]"
        require(
            hop in hops,
            f"{edge.src} -> {edge.dst} are not consecutive stages of a route, forward, or no "
            "edge of a graph",
            where=where,
        )
        require(hop not in given, f"{edge.src} -> {edge.dst} is given twice", where=where)
        delays = {"F": comm.default, "B": comm.default} | edge.model_dump(exclude_unset=True)
        given[hop] = Link(delays["F"], delays["B"])
    other = Link(comm.default, comm.default)
    return {(a, b): given.get((a, b), other) for a, b in sorted(hops) if homes[a] != homes[b]}


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
