"""A list of ``microbatches`` in a problem file: classes that differ (contract, section 8)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from pydantic import Field

from pipesat.core.complaint import InFile, validated_at
from pipesat.core.errors import BadInput, require
from pipesat.core.strict_json import (
    MOST,
    MOST_OPS_OF_A_PROBLEM,
    Count,
    FactorOf,
    Path_,
    StrictModel,
    path_text,
)
from pipesat.problem.problem import MicrobatchClass, Route
from pipesat.problem.problem_entries import AmountsModel, stated_in
from pipesat.problem.stage import ONE

MOST_CLASSES = 4096

_NUMBER = re.compile("0|[1-9][0-9]{0,8}", re.ASCII)


class EntryModel(StrictModel):
    """One entry of a list of ``microbatches``."""

    name: str
    count: Count
    time: FactorOf = Field(default_factory=lambda: [*ONE])
    held: FactorOf = Field(default_factory=lambda: [*ONE])
    comm: FactorOf = Field(default_factory=lambda: [*ONE])
    stages: dict[str, AmountsModel] = Field(default_factory=dict)


Listed: TypeAlias = tuple[int, tuple[int, ...] | None, tuple[MicrobatchClass, ...]]
"""Microbatches as a :class:`Route` has them: how many, the class of each, and the classes."""


def routes_in(
    microbatches: Sequence[object],
    routes: Sequence[Iterable[int]],
    *,
    key: str,
    ordered: bool,
    classes: int = MOST_CLASSES,
) -> tuple[Route, ...]:
    """Return routes with their microbatches, each a number or a list of classes.

    Parameters
    ----------
    routes
        Stages of each.
    key
        Where they are stated: ``microbatches`` of the problem or of its ``routes``.
    ordered
        Whether ``order`` is stated beside them, which is for lists alone.
    classes
        How many classes there may be.
    """
    paths: list[Path_] = [("microbatches",)]
    if key == "routes":
        paths = [("routes", number, "microbatches") for number in range(len(routes))]
    for value, path in zip(microbatches, paths, strict=True):
        if isinstance(value, list) and value and isinstance(value[0], int):
            raise BadInput(
                "expected an object: `microbatches_from_lengths` makes them of lengths in tokens",
                where=f"{path_text(path)}[0]",
                value=value[0],
            )
    listed = zip(microbatches, paths, routes, strict=True)
    found = tuple(Route(tuple(own), *parse_microbatches(value, at)) for value, at, own in listed)
    first = next((path for path, one in zip(paths, found, strict=True) if one.definitions), None)
    require(
        first or not ordered,
        "expected a list of microbatches beside it: those of a number are all alike",
        where="order",
    )
    count = sum(len(route.definitions) for route in found)
    require(
        count <= classes,
        f"{count} classes, expected at most {classes}",
        where=path_text(first or ()),
    )
    return found


def parse_microbatches(value: object, path: Path_) -> Listed:
    """Validate a number of microbatches, or a list of them, at ``path``."""
    where = path_text(path)
    if not isinstance(value, list):
        if type(value) is not int or not 1 <= value <= MOST:
            raise BadInput(
                "expected an integer from 1 to 10^12, or a list of classes",
                where=where,
                value=InFile(value),
            )
        return value, None, ()
    require(value, "0 entries, expected at least 1", where=where)
    number_of: dict[str, int] = {}
    definitions: list[MicrobatchClass] = []
    classes: list[int] = []
    for number, part in enumerate(value):
        here = (*path, number)
        entry = validated_at(part, EntryModel, here)
        if entry.name not in number_of:
            number_of[entry.name] = len(definitions)
            definitions.append(_definition(entry, here))
        elif further := sorted(entry.model_fields_set - {"name", "count"}):
            raise BadInput(
                f"expected name and count alone, without {', '.join(further)}: the first entry "
                "of a name says what its microbatches are",
                where=path_text(here),
                value=entry.name,
            )
        if (total := len(classes) + entry.count) > MOST_OPS_OF_A_PROBLEM:
            raise BadInput(
                f"{total} microbatches of some ops, expected at most {MOST_OPS_OF_A_PROBLEM}",
                where=where,
            )
        classes += [number_of[entry.name]] * entry.count
    return len(classes), tuple(classes), tuple(definitions)


def _definition(entry: EntryModel, path: Path_) -> MicrobatchClass:
    outright = []
    for key, amounts in entry.stages.items():
        if _NUMBER.fullmatch(key) is None:
            raise BadInput(
                "expected stage numbers, as in 0", where=path_text((*path, "stages")), value=key
            )
        outright.append((int(key), stated_in(amounts)))
    time, held, comm = ((one[0], one[1]) for one in (entry.time, entry.held, entry.comm))
    return MicrobatchClass(entry.name, time, held, comm, tuple(sorted(outright)))
