"""Problems from Python, and changed copies: the document that is meant, read as a file would be."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

from pipesat.core.amounts import one_in_unit
from pipesat.core.building import Building
from pipesat.core.errors import BadInput, said_of
from pipesat.core.problem import FORMAT, Device, Problem, Stage
from pipesat.core.stage import COSTS, HELD, MORE
from pipesat.files.folder import changed_document
from pipesat.files.problem_file import parse_problem
from pipesat.files.strict_json import MOST_DEVICES, MOST_STAGES
from pipesat.placement.documents import (
    TEXTS,
    Costs,
    Document,
    backward_entry,
    capacities_of,
    comm_entry,
    cut,
    one_each,
    problem_document,
    stated,
)
from pipesat.placement.geometry import Geometry, Placement, shared

_NAMES: Final = {"bidirectional": "two_routes"}
_PARAMETERS: Final = inspect.signature(Building.loop).parameters
_OF_MEMORY: Final = ("memory", "static", *HELD)
_SHARE_OF_1F1B: Final = re.compile(r"1f1b(?:\*([0-9]{1,9}(?:\.[0-9]{1,9})?))?")


def share_of_1f1b(text: str) -> Fraction | None:
    """Read ``1f1b*0.75`` (``1f1b`` is all of it); ``None`` if it is something else."""
    match = _SHARE_OF_1F1B.fullmatch(text.lower().replace(" ", ""))
    return None if match is None else Fraction(match[1] or 1)


def built(placement: Placement, given: Mapping[str, Any]) -> Problem:
    """Return the problem that ``Problem.chain`` and its like describe.

    Parameters
    ----------
    given
        Their parameters: see :class:`pipesat.core.building.Building`.
    """
    source = f"Problem.{_NAMES.get(placement, placement)}"
    with said_of(source):
        document = document_of(placement, given)
    return parse_problem(document, source)


def document_of(placement: Placement, given: Mapping[str, Any]) -> Document:
    """Return the document of :func:`built`; what is not given is as it is by default."""
    defaults = {name: parameter.default for name, parameter in _PARAMETERS.items()}
    said = _in_units(defaults | _plain(given))
    geometry = Geometry(placement, said["devices"], said["chunks"])
    require_few(geometry)
    layers = cut(_layers(said, geometry.parts), geometry.parts, said["split"])
    document = problem_document(
        geometry,
        said["microbatches"],
        devices=[{}] * geometry.devices,
        stages=_stages(layers, said) * len(geometry.routes),
        comm=_comm(said["comm"], geometry.homes, geometry.routes, geometry.devices),
        overlap=_overlap(said["overlap"]),
        **{key: said[key] for key in (*TEXTS, "order", "mode_choice")},
    )
    document = _on_devices(document, "static", said["static"] or None)
    document = _on_devices(document, "copy_channels", said["copy_channels"])
    memory = said["memory"]
    if isinstance(memory, Fraction):
        memory = capacities_of(parse_problem(document), memory)
    return _on_devices(document, "memory", memory)


def require_few(geometry: Geometry) -> None:
    """Pass if there are as few stages as a problem may have."""
    if geometry.parts > MOST_STAGES:
        text = f"{geometry.parts} stages, expected at most {MOST_STAGES}"
        raise BadInput(text, where="chunks")


def _layers(said: Mapping[str, Any], stages: int) -> list[Costs]:
    """The costs of layers, or of as many stages where nothing speaks of layers."""
    given = {key: said[key] for key in COSTS if said[key] is not None}
    counts = {} if said["layers"] is None else {"layers": said["layers"]}
    counts |= {key: len(values) for key, values in given.items() if isinstance(values, list)}
    wanted = next(iter(counts.values()), stages)
    for key, count in counts.items():
        if count < stages:
            text = f"{count} values, expected {stages}, one per stage (or more, one per layer)"
            raise BadInput(f"{text}, or one for all", where=key)
        if count != wanted:
            text = f"{count} values, expected {wanted} as `{next(iter(counts))}` says"
            raise BadInput(f"{text}, or one for all", where=key)
    columns = [one_each(values, wanted, key, "layer") for key, values in given.items()]
    return [Costs(**dict(zip(given, own, strict=True))) for own in zip(*columns, strict=True)]


def _stages(layers: Sequence[Costs], said: Mapping[str, Any]) -> list[Document]:
    """Entries of the stages, with what layers do not have; zeros and defaults are left out."""
    modes = said["modes"] or None
    if modes and isinstance(modes[0], Mapping):
        modes = [modes] * len(layers)
    columns = {
        key: one_each(value or None, len(layers), key, "stage")
        for key, value in (*((key, said[key]) for key in MORE), ("modes", modes))
    }
    entries = []
    for number, costs in enumerate(layers):
        entry = stated(**{key: getattr(costs, key) for key in COSTS})
        if not (costs.held_after_F or costs.held_after_B):
            del entry["held_after_F"], entry["held_after_B"]
        own = {key: column[number] or None for key, column in columns.items()}
        entries.append(entry | backward_entry(said["backward"]) | stated(**own))
    return entries


def from_parts(given: Mapping[str, Any]) -> Problem:
    """Return the problem that ``Problem.from_stages`` describes."""
    stages, devices = [_entry(stage) for stage in given["stages"]], given["devices"]
    if devices is None:
        homes = [stage.get("device") for stage in stages if isinstance(stage, Mapping)]
        devices = max((home for home in homes if type(home) is int), default=0) + 1
    if not isinstance(devices, Sequence):
        devices = [Device()] * min(devices, MOST_DEVICES + 1)
    comm = given["comm"]
    document = {
        "format": FORMAT,
        "devices": [_entry(device) for device in devices],
        "stages": stages,
        "comm": comm if isinstance(comm, Mapping) else {"default": comm},
        "overlap": _overlap(given["overlap"]),
    }
    keys = ("microbatches", "routes", "order", "mode_choice")
    texts = {key: given[key] or None for key in TEXTS}
    document = stated(**document, **texts, **{key: given[key] for key in keys})
    return parse_problem(_plain(document), "Problem.from_stages")


def _entry(part: Any) -> Any:
    """A stage or device as its entry of the document, without what is as by default."""
    if not is_dataclass(part) or isinstance(part, type):
        return part
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    told = {field.name for field in fields(part) if values[field.name] == field.default}
    if isinstance(part, Stage):
        values["modes"] = [mode.entry for mode in part.modes]
        told |= {"sums", "offload"}
        told |= {"BW"} if part.sums or part.BW == part.B + part.W else set()
    return {name: value for name, value in values.items() if name not in told}


def changed(problem: Problem, **given: Any) -> Problem:
    """Return a copy of a problem in which some of its document says something else."""
    source = f"Problem.with_{next(iter(given))}"
    document = dict(problem.document)
    with said_of(source):
        for key, value in _in_units(_plain(given) | {"memory_unit": problem.memory_unit}).items():
            document = _said(problem, document, key, value)
    return parse_problem(document, source)


def _said(problem: Problem, document: Document, key: str, value: Any) -> Document:
    """The document that says this."""
    match key:
        case "memory_unit":
            return document
        case "memory":
            return _on_devices(document, key, capacities_of(problem, value))
        case "static":
            return _on_devices(document, key, value)
        case "backward":
            stages = [{"backward": value}] * len(problem.stages)
            return changed_document(document, stages=stages)
        case "comm":
            homes = [stage.device for stage in problem.stages]
            routes = [route.stages for route in problem.routes]
            value = _comm(value, homes, routes, len(problem.devices))
        case "overlap":
            value = _overlap(value)
        case "microbatches" if "routes" in document:
            shares = shared(value, len(problem.routes))
            routes = [
                entry | {key: own} for entry, own in zip(document["routes"], shares, strict=True)
            ]
            return changed_document(document, routes=routes)
    return changed_document(document, **{key: value})


def _plain(value: Any) -> Any:
    """What JSON would have: numpy's numbers and arrays as Python's, tuples as lists."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [_plain(inner) for inner in value]
    return value


def _in_units(given: Mapping[str, Any]) -> Document:
    """What is given, amounts such as ``40GiB`` in the problem's unit, shares of 1F1B's as such.

    A capacity is rounded down, what is held is rounded up.
    """

    def read(where: str, value: Any) -> Any:
        if isinstance(value, list):
            return [read(f"{where}[{place}]", one) for place, one in enumerate(value)]
        if not isinstance(value, str):
            return value
        share = share_of_1f1b(value) if where == "memory" else None
        unit, up = given["memory_unit"], not where.startswith("memory")
        return one_in_unit(where, value, unit, up=up) if share is None else share

    return {key: read(key, value) if key in _OF_MEMORY else value for key, value in given.items()}


def _comm(given: Any, homes: Sequence[int], routes: Sequence[Sequence[int]], devices: int) -> Any:
    """``comm`` of the document: one delay, or one per link between neighbouring devices."""
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, list):
        return {"default": given}
    delays = one_each(given, devices - 1, "comm", "link between neighbours")
    if len(routes) == 1 and list(homes) == list(range(devices)):
        return comm_entry(delays)
    slowest = max(delays, default=0)
    edges = []
    for route in routes:
        for src, dst in pairwise(route):
            a, b = homes[src], homes[dst]
            if a != b:
                delay = delays[min(a, b)] if abs(a - b) == 1 else slowest
                edges.append({"src": src, "dst": dst, "F": delay, "B": delay})
    return {"default": slowest, "edges": edges}


def _on_devices(document: Document, key: str, value: Any) -> Document:
    """The document with a key of devices: one value for all or one each; ``None``: none."""
    each = one_each(value, len(document["devices"]), key)
    return changed_document(document, devices=[{key: own} for own in each])


def _overlap(given: Any) -> Mapping[str, Any] | None:
    """``overlap`` of the document, if there is one."""
    return given if given is None or isinstance(given, Mapping) else {"FB": given}
