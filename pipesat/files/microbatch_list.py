"""A list of ``microbatches`` in a problem file: classes that differ (contract, section 8)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from typing import Final, NamedTuple

from pydantic import Field

from pipesat.core.errors import BadInput
from pipesat.core.problem import MicrobatchClass, Problem, Route
from pipesat.core.stage import AMOUNTS, ONE, scaled, stated_amounts
from pipesat.files.complaint import validated_at
from pipesat.files.problem_entries import AmountsModel, stated_in
from pipesat.files.strict_json import (
    MOST,
    MOST_OPS,
    Count,
    FactorOf,
    Path_,
    StrictModel,
    path_text,
)

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


class Listed(NamedTuple):
    """What a list says: its classes, that of each microbatch, and where each is defined.

    A number has none of these.
    """

    total: int
    classes: tuple[int, ...] | None = None
    definitions: tuple[MicrobatchClass, ...] = ()
    places: tuple[Path_, ...] = ()

    def route(self, stages: Sequence[int]) -> Route:
        """Return a route that they travel."""
        return Route(tuple(stages), self.total, self.classes, self.definitions)


def parse_microbatches(value: object, path: Path_) -> Listed:
    """Validate a number of microbatches, or a list of them, at ``path``."""
    where = path_text(path)
    if not isinstance(value, list):
        if type(value) is not int or not 1 <= value <= MOST:
            text = "expected an integer from 1 to 10^12, or a list of classes"
            raise BadInput(text, where=where, value=value)
        return Listed(value)
    if not value:
        raise BadInput("0 entries, expected at least 1", where=where)
    number_of: dict[str, int] = {}
    definitions: list[MicrobatchClass] = []
    places: list[Path_] = []
    classes: list[int] = []
    for number, part in enumerate(value):
        here = (*path, number)
        entry = validated_at(part, EntryModel, here)
        if entry.name not in number_of:
            number_of[entry.name] = len(places)
            definitions.append(_definition(entry, here))
            places.append(here)
        elif further := sorted(entry.model_fields_set - {"name", "count"}):
            text = (
                f"expected name and count alone, without {', '.join(further)}: the first entry "
                "of a name says what its microbatches are"
            )
            raise BadInput(text, where=path_text(here), value=entry.name)
        if (total := len(classes) + entry.count) > MOST_OPS:
            raise BadInput(
                f"{total} microbatches of some ops, expected at most {MOST_OPS}", where=where
            )
        classes += [number_of[entry.name]] * entry.count
    return Listed(len(classes), tuple(classes), tuple(definitions), tuple(places))


def _definition(entry: EntryModel, path: Path_) -> MicrobatchClass:
    outright = []
    for key, amounts in entry.stages.items():
        if _NUMBER.fullmatch(key) is None:
            where = path_text((*path, "stages"))
            raise BadInput("expected stage numbers, as in 0", where=where, value=key)
        outright.append((int(key), stated_in(amounts)))
    time, held, comm = ((one[0], one[1]) for one in (entry.time, entry.held, entry.comm))
    return MicrobatchClass(entry.name, time, held, comm, tuple(sorted(outright)))


def check_order(lists: Sequence[Listed], given: Set[str], classes: int) -> None:
    """Refuse ``order`` beside plain numbers, and more than so many classes."""
    places = [place for listed in lists for place in listed.places]
    if "order" in given and not places:
        text = "expected a list of microbatches beside it: those of a number are all alike"
        raise BadInput(text, where="order")
    if len(places) > classes:
        text = f"{len(places)} classes, expected at most {classes}"
        raise BadInput(text, where=path_text(places[0][:-1]))


def check_classes(problem: Problem, lists: Sequence[Listed]) -> None:
    """Check that classes name stages that they may name, and that no scaled amount is too large."""
    for route, listed in zip(problem.routes, lists, strict=True):
        amounts = list(_amounts(problem, route)) if listed.places else []
        largest = max((one.value for one in amounts), default=0)
        for definition, place in zip(listed.definitions, listed.places, strict=True):
            _check_names(problem, route, definition, place)
            if all(scaled(largest, getattr(definition, by)) <= MOST for by in _FACTORS):
                continue  # most problems need no closer look
            outright = {(stage, key) for stage, keys in definition.outright for key, _ in keys}
            for one in amounts:
                value = scaled(one.value, getattr(definition, one.by))
                if value > MOST and (one.stage, one.key) not in outright:
                    text = f"{one.key} {one.of} becomes {value}, expected at most 10^12"
                    raise BadInput(text, where=path_text(place), value=definition.name)


_FACTORS: Final = ("time", "held", "comm")


class _Amount(NamedTuple):
    """A stated amount, of what it is, and the factor by which classes scale it."""

    stage: int
    key: str
    of: str
    value: int
    by: str


def _amounts(problem: Problem, route: Route) -> Iterator[_Amount]:
    for stage in route.stages:
        data, after = problem.stages[stage], problem.next[stage]
        for mode in (None, *data.modes):
            of = f"of stage {stage}" if mode is None else f"of stage {stage} in mode {mode.name}"
            for key, value in stated_amounts(data, mode).items():
                yield _Amount(stage, key, of, value, AMOUNTS[key])
            if mode is not None and mode.offload is not None:
                yield _Amount(stage, "out", of, mode.offload.time_out, "held")
                yield _Amount(stage, "in", of, mode.offload.time_in, "held")
        if after is not None and (link := problem.links.get((stage, after))):
            yield _Amount(stage, "delay F", f"from stage {stage}", link.F, "comm")
            yield _Amount(stage, "delay B", f"from stage {stage}", link.B, "comm")


def _check_names(problem: Problem, route: Route, definition: MicrobatchClass, path: Path_) -> None:
    mine = set(route.stages)
    for stage, _ in definition.outright:
        here = path_text((*path, "stages", str(stage)))
        if stage not in mine:
            few = f"0 to {len(mine) - 1}" if mine == set(range(len(mine))) else str(sorted(mine))
            text = f"there is no stage {stage} on this route, expected one of {few}"
            raise BadInput(text, where=here)
        if problem.stages[stage].modes:
            text = f"stage {stage} has modes, so a class cannot state its amounts; use factors"
            raise BadInput(text, where=here)
