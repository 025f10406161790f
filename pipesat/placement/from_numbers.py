"""What users give as numbers, as a problem document has it; or what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

from pipesat.core.amounts import one_in_unit
from pipesat.core.errors import BadInput
from pipesat.files.folder import changed_document
from pipesat.files.strict_json import MOST, MOST_STAGES
from pipesat.placement.documents import (
    Costs,
    Document,
    comm_entry,
    per_device,
)
from pipesat.placement.geometry import Geometry, Placement

_SHARE_OF_1F1B: Final = re.compile(r"1f1b(?:\*([0-9]{1,9}(?:\.[0-9]{1,9})?))?")


_OF_MEMORY: Final = ("memory", "static", "held_after_F", "held_after_B", "held_in_backward")


def share_of_1f1b(text: str) -> Fraction | None:
    """Read ``1f1b*0.75`` (``1f1b`` is all of it); ``None`` if it is something else."""
    match = _SHARE_OF_1F1B.fullmatch(text.lower().replace(" ", ""))
    return None if match is None else Fraction(match[1] or 1)


def costs_of(
    given: Mapping[str, int | Sequence[int]],
    layers: int | None,
    stages: int,
    named: Callable[[str], str] = str,
) -> list[Costs]:
    """Return the costs of layers, or of ``stages`` stages where nothing speaks of layers.

    ``given`` has a value per field of :class:`Costs`. One number stands for all entries; lists
    have one number per entry. ``named`` says how users call a field, for messages.

    Raises
    ------
    BadInput
        If lists differ in length.
    """
    count, because = layers, named("layers")
    for field, values in given.items():
        if not isinstance(values, int):
            if count is not None and len(values) != count:
                raise BadInput(
                    f"{len(values)} numbers, expected {count} as `{because}` says, or one for all",
                    where=named(field),
                )
            count, because = len(values), named(field) if layers is None else because
    entries = stages if count is None else count
    columns = {
        field: [values] * entries if isinstance(values, int) else values
        for field, values in given.items()
    }
    return [
        Costs(**{field: column[entry] for field, column in columns.items()})
        for entry in range(entries)
    ]


def stages_of(placement: Placement, devices: int, chunks: int) -> int:
    """How many stages the layers are cut into.

    Raises
    ------
    BadInput
        If they are more than a problem may have.
    """
    stages = Geometry(placement, devices, chunks).parts
    if stages > MOST_STAGES:
        raise BadInput(f"{stages} stages, expected at most {MOST_STAGES}", where="chunks")
    return stages


def plain(value: Any) -> Any:
    """Return what JSON would have: numpy's numbers and arrays as Python's, tuples as lists."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain(inner) for inner in value]
    return value


def in_memory_units(given: Mapping[str, Any], unit: str) -> dict[str, Any]:
    """Return what is given with amounts such as ``40GiB`` in the problem's unit of memory.

    A capacity is rounded down, what is held is rounded up.
    """

    def read(where: str, value: Any) -> Any:
        if isinstance(value, list):
            return [read(f"{where}[{place}]", one) for place, one in enumerate(value)]
        if not isinstance(value, str) or share_of_1f1b(value) is not None:
            return value
        try:
            return one_in_unit(where, value, unit, up=not where.startswith("memory"))
        except BadInput as error:
            share = ", or a share such as 1f1b*0.75" if where == "memory" else ""
            raise BadInput(f"{error.expected}{share}", where=where, value=value) from None

    return {**given, **{key: read(key, given[key]) for key in _OF_MEMORY if key in given}}


def amount(where: str, value: Any) -> int:
    """Return a time or an amount of memory, if it is one.

    Raises
    ------
    BadInput
        If it is none.
    """
    if type(value) is not int or not 0 <= value <= MOST:
        raise BadInput("expected an integer from 0 to 10^12", where=where, value=value)
    return value


def amounts(where: str, value: Any) -> int | list[int]:
    """Return one amount, or a list of several.

    Raises
    ------
    BadInput
        If it is none.
    """
    if isinstance(value, list):
        if not value:
            raise BadInput("an empty list, expected a number or several", where=where)
        return [amount(f"{where}[{i}]", one) for i, one in enumerate(value)]
    return amount(where, value)


def at_least(least: int, where: str, value: Any, most: int = MOST) -> int:
    """Return a count of at most so many.

    Raises
    ------
    BadInput
        If it is none.
    """
    if type(value) is not int or not least <= value <= most:
        limit = "10^12" if most == MOST else most
        raise BadInput(f"expected an integer from {least} to {limit}", where=where, value=value)
    return value


def microbatches_of(given: Any, routes: int) -> list[Any]:
    """What each route's microbatches are: a number or a list of classes."""
    if routes == 1:
        return [at_least(1, "microbatches", given) if not isinstance(given, list) else given]
    if isinstance(given, list):
        if len(given) != routes or any(isinstance(own, Mapping) for own in given):
            raise BadInput(
                f"expected a number, or {routes}: one per direction, each a number or a list",
                where="microbatches",
                value=given,
            )
        return given
    together = at_least(routes, "microbatches", given)
    return [together - together // 2, together // 2]


def memory_of(given: Any) -> Any:
    """Return one capacity or several, or the share of 1F1B's peak that a text names.

    Raises
    ------
    BadInput
        If a number is no capacity.
    """
    if isinstance(given, str):
        return share_of_1f1b(given)
    if given is None or isinstance(given, Fraction):
        return given
    if isinstance(given, list):
        return [None if x is None else amount(f"memory[{i}]", x) for i, x in enumerate(given)]
    return amount("memory", given)


def comm_of(given: Any, homes: Sequence[int], routes: Sequence[Sequence[int]], devices: int) -> Any:
    """``comm`` of the document: one delay, or one per link between neighbouring devices."""
    if isinstance(given, Mapping):
        return given
    delays = amounts("comm", given)
    if isinstance(delays, int):
        return {"default": delays}
    if len(delays) != max(devices - 1, 0):
        raise BadInput(
            f"{len(delays)} delays, expected {devices - 1}, one per link between neighbours, or "
            "one for all",
            where="comm",
        )
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


def on_devices(document: Mapping[str, Any], key: str, value: Any) -> Document:
    """Return a document with a key of devices: one value for all or one each; ``None``: none."""
    each = per_device(value, len(document["devices"]), key)
    return changed_document(document, devices=[{key: own} for own in each])


def overlap_of(given: Any) -> Document:
    """Return the document's ``overlap``, if there is one."""
    if given is None:
        return {}
    return {"overlap": given if isinstance(given, Mapping) else {"FB": given}}
