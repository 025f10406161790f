"""Problems from Python, and changed copies: the document that is meant, read as a file would be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any, Final

from pipesat.core.errors import BadInput, said_of
from pipesat.core.problem import Device, Problem, Stage
from pipesat.core.stage import COSTS, MORE
from pipesat.files.problem_file import parse_problem
from pipesat.files.strict_json import FORMAT, MOST_DEVICES
from pipesat.placement.documents import TEXTS, Document, Setting, capacities_of, placed
from pipesat.placement.from_numbers import (
    amounts,
    at_least,
    comm_of,
    costs_of,
    in_memory_units,
    memory_of,
    microbatches_of,
    on_devices,
    overlap_of,
    plain,
    stages_of,
)
from pipesat.placement.geometry import CHUNKS, Geometry, Placement

_MOST_LAYERS: Final = 1_000_000
_NAMES: Final = {"bidirectional": "two_routes"}


def built(placement: Placement, given: Mapping[str, Any]) -> Problem:
    """Return the problem that ``Problem.chain`` and its like describe.

    Parameters
    ----------
    given
        Their parameters: see :class:`pipesat.core.building.Building`.

    Raises
    ------
    BadInput
        Naming the constructor, the parameter, its value and what would be right.
    """
    source = f"Problem.{_NAMES.get(placement, placement)}"
    with said_of(source):
        plainly = {key: plain(value) for key, value in given.items()}
        document = _document(placement, in_memory_units(plainly, given["memory_unit"]))
    return parse_problem(document, source)


def from_parts(given: Mapping[str, Any]) -> Problem:
    """Return the problem that ``Problem.from_stages`` describes.

    Raises
    ------
    BadInput
        As :func:`built`.
    """
    source = "Problem.from_stages"
    given = {key: plain(value) for key, value in given.items()}
    stages = [_entry(stage) for stage in given["stages"]]
    document: Document = {"format": FORMAT}
    document |= {key: given[key] for key in TEXTS if given[key]}
    if given["microbatches"] is not None:
        document["microbatches"] = given["microbatches"]
    devices = given["devices"]
    if devices is None:
        homes = [stage.get("device") for stage in stages if isinstance(stage, Mapping)]
        devices = max((home for home in homes if type(home) is int), default=0) + 1
    if not isinstance(devices, list):
        with said_of(source):
            devices = [Device()] * at_least(1, "devices", devices, MOST_DEVICES)
    document["devices"] = [_entry(device) for device in devices]
    document["stages"] = stages
    comm = given["comm"]
    document["comm"] = comm if isinstance(comm, Mapping) else {"default": comm}
    document |= _choices(given)
    if given["routes"] is not None:
        document["routes"] = given["routes"]
    return parse_problem(document, source)


def _document(placement: Placement, given: Mapping[str, Any]) -> Document:
    """Put the document together: costs in a placement, then what only files and Python can say."""
    devices = at_least(1, "devices", given["devices"], MOST_DEVICES)
    chunks = at_least(1, "chunks", given.get("chunks", CHUNKS))
    geometry = Geometry(placement, devices, chunks)
    stages = stages_of(placement, devices, chunks)
    costs = {
        key: _costs(key, given[key], stages)
        for key in COSTS
        if given[key] is not None or key in {*"FBW"}
    }
    microbatches = microbatches_of(given["microbatches"], len(geometry.routes))
    memory = memory_of(given["memory"])
    if isinstance(memory, Fraction) and isinstance(given["microbatches"], list):
        raise BadInput(
            "a share of 1F1B's peak needs microbatches that are alike: give a capacity",
            where="memory",
            value=given["memory"],
        )
    if given["split"] not in ("even", "balanced"):
        raise BadInput("expected 'even' or 'balanced'", where="split", value=given["split"])
    layers = given["layers"]
    if layers is not None:
        layers = at_least(1, "layers", layers, _MOST_LAYERS)
    setting = Setting(
        devices=devices,
        microbatches=sum(map(_count, microbatches)),
        memory=memory,
        static=amounts("static", given["static"]),
        backward=given["backward"],
        **{key: given[key] for key in TEXTS},
    )
    each = costs_of(costs, layers, stages)
    document = placed(each, setting, placement, chunks, given["split"])
    document["comm"] = comm_of(given["comm"], geometry.homes, geometry.routes, devices)
    if len(microbatches) == 1:
        document["microbatches"] = microbatches[0]
    else:
        document["routes"] = [
            {"stages": [*route], "microbatches": own}
            for route, own in zip(geometry.routes, microbatches, strict=True)
        ]
    channels = given["copy_channels"]
    if channels is not None:
        document |= on_devices(document, "copy_channels", amounts("copy_channels", channels))
    _set_on_stages(document, given, stages, len(geometry.routes))
    return document | _choices(given)


def _costs(key: str, value: Any, stages: int) -> int | list[int]:
    """One amount for all stages, one each, or one per layer, of which there are more."""
    values = amounts(key, value)
    if isinstance(values, list) and len(values) < stages:
        raise BadInput(
            f"{len(values)} values, expected {stages}, one per stage (or more, one per layer), or "
            "one for all",
            where=key,
        )
    return values


def _count(own: Any) -> int:
    """How many a number or a list of classes says, as far as it is one."""
    if not isinstance(own, list):
        return own if type(own) is int else 1
    counts = [entry.get("count") for entry in own if isinstance(entry, Mapping)]
    return sum(count for count in counts if type(count) is int) or 1


def _set_on_stages(
    document: Document, given: Mapping[str, Any], stages: int, replicas: int
) -> None:
    """Put the keys of stages that layers do not have into the document."""
    modes = given["modes"]
    if modes and not isinstance(modes, list):
        text = "expected a list of modes, or one such list per stage"
        raise BadInput(text, where="modes", value=modes)
    columns: dict[str, list[Any]] = {}
    for key in MORE:
        if given[key]:
            each = amounts(key, given[key])
            columns[key] = each if isinstance(each, list) else [each] * stages
    if modes:
        columns["modes"] = [modes] * stages if isinstance(modes[0], Mapping) else modes
    for key, column in columns.items():
        if len(column) != stages:
            raise BadInput(
                f"{len(column)} entries, expected {stages}, one per stage, or one for all",
                where=key,
            )
        for entry, value in zip(document["stages"], column * replicas, strict=True):
            if value:
                entry[key] = value


def _choices(given: Mapping[str, Any]) -> Document:
    """The document's keys that say what a schedule may do."""
    found = {key: given[key] for key in ("order", "mode_choice") if given[key] is not None}
    return found | overlap_of(given["overlap"])


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
    return {name: plain(value) for name, value in values.items() if name not in told}


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
