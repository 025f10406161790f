"""Problems from Python, and changed copies: values, checked as those of a file are."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from pipesat.core.amounts import one_in_unit, unit_for
from pipesat.core.complaint import validated_at
from pipesat.core.errors import BadInput, require, said_of
from pipesat.core.strict_json import MOST_DEVICES, MOST_STAGES
from pipesat.problem.building import make
from pipesat.problem.costs import Costs, capacities_of, cut, one_each
from pipesat.problem.geometry import Geometry, chunks_of, shared
from pipesat.problem.microbatch_list import routes_in
from pipesat.problem.plain_problems import with_idle_keys
from pipesat.problem.problem import (
    FORMAT,
    TEXTS,
    Device,
    Link,
    Problem,
    Route,
    Stage,
    links_between,
)
from pipesat.problem.problem_checks import valid
from pipesat.problem.problem_entries import modes_in, overlap_in
from pipesat.problem.problem_file import CommModel, edges_of, links_of, parse_problem
from pipesat.problem.stage import COSTS, HELD, MORE
from pipesat.problem.stated import warned

_NAMES: Final = {"bidirectional": "two_routes"}
_PARAMETERS: Final = inspect.signature(make).parameters
_OF_MEMORY: Final = ("memory", "static", *HELD)
_SHARE_OF_1F1B: Final = re.compile(r"1f1b(?:\*([0-9]{1,9}(?:\.[0-9]{1,9})?))?")


def share_of_1f1b(text: str) -> Fraction | None:
    """Read ``1f1b*0.75`` (``1f1b`` is all of it); ``None`` if it is something else."""
    match = _SHARE_OF_1F1B.fullmatch(text.lower().replace(" ", ""))
    return None if match is None else Fraction(match[1] or 1)


def amount_or_share(where: str, text: str, unit: str, *, limit: bool) -> int | Fraction:
    """Read a capacity: an amount in a unit, or a share of what 1F1B holds."""
    if (share := share_of_1f1b(text)) is not None:
        return share
    try:
        return one_in_unit(where, text, unit, limit=limit)
    except BadInput as error:
        raise BadInput(
            f"{error.expected}, or a share such as 1f1b*0.75", where=where, value=text
        ) from None


def built(given: Mapping[str, Any]) -> Problem:
    """Return the problem that ``Problem.chain`` and its like describe.

    Parameters
    ----------
    given
        What :func:`pipesat.problem.building.make` takes.
    """
    placement = given["placement"]
    with said_of(f"Problem.{_NAMES.get(placement, placement)}"):
        return warned(made(given))


def made(given: Mapping[str, Any]) -> Problem:
    """Return the problem of :func:`built`; what is not given is as it is by default."""
    defaults = {name: parameter.default for name, parameter in _PARAMETERS.items()}
    said = defaults | _plain(given)
    said = _in_units(said | {"memory_unit": said["memory_unit"] or _unit_of(said)})
    placement = said["placement"]
    geometry = Geometry(placement, said["devices"], chunks_of(placement, said["chunks"]))
    require(
        geometry.parts <= MOST_STAGES,
        f"{geometry.parts} stages, expected at most {MOST_STAGES}",
        where="chunks",
    )
    layers = cut(_layers(said, geometry.parts), geometry.parts, said["split"])
    routes = _routes(said["microbatches"], geometry.routes, said["order"])
    if said["slices"] is not None:
        routes = tuple(replace(route, slices=said["slices"]) for route in routes)
    static, channels = (
        one_each(said[key] or other, geometry.devices, key)
        for key, other in (("static", 0), ("copy_channels", 2))
    )
    problem = Problem(
        devices=tuple(
            Device(static=own, copy_channels=count)
            for own, count in zip(static, channels, strict=True)
        ),
        stages=_stages(layers * len(geometry.routes), said, geometry.homes),
        routes=routes,
        links=_links(said["comm"], geometry.homes, geometry.routes, geometry.devices),
        overlap=overlap_in(said["overlap"], geometry.homes),
        order=said["order"] or "free",
        mode_choice=said["mode_choice"] or "microbatch",
        **{key: said[key] for key in TEXTS},
    )
    return valid(replace(problem, devices=_with_each(problem, "memory", said["memory"])))


def _layers(said: Mapping[str, Any], stages: int) -> list[Costs]:
    """The costs of layers, or of as many stages where nothing speaks of layers."""
    given = {key: said[key] for key in COSTS if said[key] is not None}
    counts = {} if said["layers"] is None else {"layers": said["layers"]}
    counts |= {key: len(values) for key, values in given.items() if isinstance(values, list)}
    wanted = next(iter(counts.values()), stages)
    for key, count in counts.items():
        require(
            count >= stages,
            f"{count} values, expected {stages}, one per stage (or more, one per layer), or one "
            "for all",
            where=key,
        )
        require(
            count == wanted,
            f"{count} values, expected {wanted} as `{next(iter(counts))}` says, or one for all",
            where=key,
        )
    columns = [one_each(values, wanted, key, "layer") for key, values in given.items()]
    return [Costs(**dict(zip(given, own, strict=True))) for own in zip(*columns, strict=True)]


def _stages(
    layers: Sequence[Costs], said: Mapping[str, Any], homes: Sequence[int]
) -> tuple[Stage, ...]:
    """The stages on their devices, with what layers do not have."""
    modes = said["modes"]
    if modes and isinstance(modes[0], str):
        raise BadInput(
            'expected modes as {"name": "recompute", "BW": 300, "held_after_F": 10, ...}: '
            "docs/memory.md has them",
            where="modes",
            value=modes[0],
        )
    if modes and isinstance(modes[0], Mapping):
        modes = [modes] * len(layers)
    columns = {key: one_each(said[key], len(layers), key, "stage") for key in MORE}
    backwards = one_each(said["backward"], len(layers), "backward", "stage")
    some = one_each(modes or None, len(layers), "modes", "stage")
    return tuple(
        Stage(
            device=home,
            backward=backwards[number],
            modes=modes_in(some[number] or (), costs.held_after_F, number),
            **{key: getattr(costs, key) for key in COSTS},
            **{key: column[number] for key, column in columns.items()},
        )
        for number, (home, costs) in enumerate(zip(homes, layers, strict=True))
    )


def _routes(
    microbatches: Any, routes: Sequence[Sequence[int]], order: str | None
) -> tuple[Route, ...]:
    """Routes with their microbatches: of a number equally many, else a list or one each."""
    key = "routes" if len(routes) > 1 else "microbatches"
    own = shared(microbatches, len(routes))
    return routes_in(own, routes, key=key, ordered=order is not None)


def from_parts(given: Mapping[str, Any]) -> Problem:
    """Return the problem that ``Problem.from_stages`` describes: entries of a file, and values."""
    stages, devices = [_entry(stage) for stage in given["stages"]], given["devices"]
    if devices is None:
        homes = [stage.get("device") for stage in stages if isinstance(stage, Mapping)]
        devices = max((home for home in homes if type(home) is int), default=0) + 1
    if not isinstance(devices, Sequence):
        devices = [Device()] * min(devices, MOST_DEVICES + 1)
    comm, overlap = given["comm"], given["overlap"]
    document = {key: given[key] or None for key in TEXTS} | {
        "format": FORMAT,
        "devices": [_entry(device) for device in devices],
        "stages": stages,
        "comm": comm if isinstance(comm, Mapping) else {"default": comm},
        "overlap": {"FB": overlap} if isinstance(overlap, list | tuple) else overlap,
    }
    document |= {key: given[key] for key in ("microbatches", "routes", "order", "mode_choice")}
    graph = {key: value for key in ("edges", "slices") if (value := given[key]) is not None}
    if graph:
        require(
            given["routes"] is None,
            "expected it in `routes`, beside their stages",
            where=min(graph),
        )
        own = {"stages": [*range(len(stages))], "microbatches": given["microbatches"]}
        document |= {"routes": [own | graph], "microbatches": None}
    stated = {key: value for key, value in document.items() if value is not None}
    return warned(parse_problem(_plain(stated), "Problem.from_stages"))


def _entry(part: Any) -> Any:
    return part.entry if isinstance(part, Stage | Device) else part


def restated(problem: Problem, **given: Any) -> Problem:
    """Return a copy of a problem in which the first of these is otherwise."""
    key = next(iter(given))
    with said_of(f"Problem.with_{key}"):
        said = _in_units(_plain(given) | {"memory_unit": problem.memory_unit}, limits=("memory",))
        whole = with_idle_keys(problem)
        return valid(replace(whole, **_changes(whole, key, said[key], said.get("order"))))


def _changes(problem: Problem, key: str, value: Any, order: str | None) -> dict[str, Any]:
    """The fields of a problem that say this."""
    homes = [stage.device for stage in problem.stages]
    match key:
        case "memory" | "static":
            return {"devices": _with_each(problem, key, value)}
        case "backward":
            return {"stages": tuple(replace(s, backward=value) for s in problem.stages)}
        case "comm":
            return {"links": _links(value, homes, edges_of(problem.routes), len(problem.devices))}
        case "overlap":
            return {"overlap": overlap_in(value, homes)}
        case "microbatches":
            found = _routes(value, [route.stages for route in problem.routes], order)
            both = zip(found, problem.routes, strict=True)
            kept = (replace(own, graph=was.graph, slices=was.slices) for own, was in both)
            return {"routes": tuple(kept), "order": order or "free"}
    return {key: value}


def _with_each(problem: Problem, key: str, given: Any) -> tuple[Device, ...]:
    """The devices with one value for all or one each, or with a share of 1F1B's peak."""
    values = one_each(given, len(problem.devices), key)
    if isinstance(given, Fraction):
        values = capacities_of(problem, given)
    each = zip(problem.devices, values, strict=True)
    return tuple(replace(device, **{key: value}) for device, value in each)


def _plain(value: Any) -> Any:
    """What JSON would have: numpy's numbers and arrays as Python's, tuples as lists."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [_plain(inner) for inner in value]
    return value


def _unit_of(given: Mapping[str, Any]) -> str:
    """A unit for all amounts, such as ``40GiB``; none if any is a plain number."""
    values = (given[key] for key in _OF_MEMORY)
    said = [one for value in values for one in (value if isinstance(value, list) else [value])]
    shares = [one for one in said if isinstance(one, str) and share_of_1f1b(one) is not None]
    said += [1] * _states_held([given["modes"], given["microbatches"]])  # plain numbers
    return unit_for([one for one in said if one not in (None, 0, "0", *shares)])


def _states_held(given: Any) -> bool:
    """Whether modes or classes of microbatches, as files have them, state what they hold."""
    if isinstance(given, Mapping):
        return any(str(key)[:4] == "held" or _states_held(one) for key, one in given.items())
    return isinstance(given, list) and any(map(_states_held, given))


def _in_units(given: Mapping[str, Any], limits: tuple[str, ...] = ()) -> dict[str, Any]:
    """What is given, amounts such as ``40GiB`` in the problem's unit, shares of 1F1B's as such.

    ``limits`` are rounded down, the others are whole numbers of units.
    """

    def read(where: str, value: Any) -> Any:
        if isinstance(value, list):
            return [read(f"{where}[{place}]", one) for place, one in enumerate(value)]
        if not isinstance(value, str):
            return value
        read_one = amount_or_share if where == "memory" else one_in_unit
        return read_one(where, value, given["memory_unit"], limit=where.startswith(limits))

    return {key: read(key, value) if key in _OF_MEMORY else value for key, value in given.items()}


def _links(
    given: Any, homes: Sequence[int], routes: Sequence[Sequence[int]], devices: int
) -> dict[tuple[int, int], Link]:
    """Delays of links: ``comm`` of a problem file, one, or one per two neighbouring devices."""
    if not isinstance(given, list):
        comm = given if isinstance(given, Mapping) else {"default": given}
        return links_of(validated_at(comm, CommModel, ("comm",)), homes, routes)
    delays = one_each(given, devices - 1, "comm", "link between neighbours")
    slowest = max(delays, default=0)

    def link(src: int, dst: int) -> Link:
        a, b = homes[src], homes[dst]
        delay = delays[min(a, b)] if abs(a - b) == 1 else slowest
        return Link(delay, delay)

    return links_between(homes, routes, link)
