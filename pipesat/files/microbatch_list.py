"""A list of ``microbatches`` in a problem file: classes that differ (contract, section 8)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import Field

from pipesat.core.errors import BadInput
from pipesat.core.problem import MicrobatchClass, Problem, Route
from pipesat.core.stage import AMOUNTS, ONE, Factor, scaled, stated_amounts
from pipesat.files.complaint import validated_at
from pipesat.files.problem_entries import AmountsModel, stated_in
from pipesat.files.strict_json import MOST, Count, FactorOf, StrictModel

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
    """What a list says: ``runs`` of microbatches ``(class, count)``, and the classes.

    A number has neither.
    """

    total: int
    runs: tuple[tuple[int, int], ...] = ()
    definitions: tuple[MicrobatchClass, ...] = ()
    where: str = ""

    def route(self, stages: tuple[int, ...]) -> Route:
        """Return a route without its classes: they may be more than there may be ops."""
        return Route(stages, self.total, None, self.definitions)

    def with_classes(self, route: Route) -> Route:
        """Return a route with the class of every microbatch."""
        classes = tuple(kind for kind, count in self.runs for _ in range(count))
        return replace(route, classes=classes or None)


def parse_microbatches(value: object, path: tuple[str | int, ...], where: str) -> Listed:
    """Validate a number of microbatches, or a list of them; ``where`` is its path as text."""
    if not isinstance(value, list):
        if type(value) is not int or not 1 <= value <= MOST:
            text = "expected an integer from 1 to 10^12, or a list of classes"
            raise BadInput(text, where=where, value=value)
        return Listed(value)
    if not value:
        raise BadInput("0 entries, expected at least 1", where=where)
    known: dict[str, int] = {}
    definitions: list[MicrobatchClass] = []
    runs: list[tuple[int, int]] = []
    for number, part in enumerate(value):
        entry = validated_at(part, EntryModel, (*path, number))
        here = f"{where}[{number}]"
        if entry.name not in known:
            known[entry.name] = len(definitions)
            definitions.append(_definition(entry, here))
        elif further := sorted(entry.model_fields_set - {"name", "count"}):
            text = (
                f"expected name and count alone, without {', '.join(further)}: the first entry "
                "of a name says what its microbatches are"
            )
            raise BadInput(text, where=here, value=entry.name)
        runs.append((known[entry.name], entry.count))
    return Listed(sum(count for _, count in runs), tuple(runs), tuple(definitions), where)


def _definition(entry: EntryModel, where: str) -> MicrobatchClass:
    outright = []
    for key, amounts in entry.stages.items():
        if _NUMBER.fullmatch(key) is None:
            text = "expected stage numbers, as in 0"
            raise BadInput(text, where=f"{where}.stages", value=key)
        outright.append((int(key), stated_in(amounts)))
    return MicrobatchClass(
        entry.name,
        _factor(entry.time),
        _factor(entry.held),
        _factor(entry.comm),
        tuple(sorted(outright)),
    )


def _factor(given: Sequence[int]) -> Factor:
    return given[0], given[1]


def check_order(lists: Sequence[Listed], given: frozenset[str] | set[str], classes: int) -> None:
    """Refuse ``order`` beside plain numbers, and more than so many classes."""
    if "order" in given and not any(listed.runs for listed in lists):
        text = "expected a list of microbatches beside it: those of a number are all alike"
        raise BadInput(text, where="order")
    if (count := sum(len(listed.definitions) for listed in lists)) > classes:
        where = next(listed.where for listed in lists if listed.runs)
        text = f"{count} classes, expected at most {classes}"
        raise BadInput(text, where=where)


def check_classes(problem: Problem, lists: Sequence[Listed]) -> None:
    """Check that classes name stages that they may name, and that no scaled amount is too large."""
    for route, listed in zip(problem.routes, lists, strict=True):
        if not listed.definitions:
            continue
        entries = {kind: number for number, (kind, _) in reversed([*enumerate(listed.runs)])}
        first = [f"{listed.where}[{entries[kind]}]" for kind in range(len(entries))]
        for definition, where in zip(listed.definitions, first, strict=True):
            _check_names(problem, route, definition, where)
        _check_scaled(problem, route, listed, first)


def _check_names(problem: Problem, route: Route, definition: MicrobatchClass, where: str) -> None:
    mine = set(route.stages)
    for stage, _ in definition.outright:
        here = f"{where}.stages['{stage}']"
        if stage not in mine:
            few = f"0 to {len(mine) - 1}" if mine == set(range(len(mine))) else str(sorted(mine))
            text = f"there is no stage {stage} on this route, expected one of {few}"
            raise BadInput(text, where=here)
        if problem.stages[stage].modes:
            text = f"stage {stage} has modes, so a class cannot state its amounts; use factors"
            raise BadInput(text, where=here)


def _check_scaled(problem: Problem, route: Route, listed: Listed, first: Sequence[str]) -> None:
    """Compare the largest amounts first: most problems need no more than that."""
    amounts = [
        (stage, mode) for stage in route.stages for mode in (None, *problem.stages[stage].modes)
    ]
    stated = [(stage, mode, stated_amounts(problem.stages[stage], mode)) for stage, mode in amounts]
    hops = [hop for hop in problem.links if hop[0] in set(route.stages)]
    largest = max(
        [
            *(value for _, _, keys in stated for value in keys.values()),
            *(v for s, m in amounts if m and (o := m.offload) for v in (o.time_out, o.time_in)),
            *(v for hop in hops for v in (problem.links[hop].F, problem.links[hop].B)),
        ]
    )
    for definition, where in zip(listed.definitions, first, strict=True):
        factors = (definition.time, definition.held, definition.comm)
        if all(scaled(largest, factor) <= MOST for factor in factors):
            continue
        for what, value in _scaled_amounts(problem, definition, stated, hops):
            if value > MOST:
                text = f"{what} becomes {value}, expected at most 10^12"
                raise BadInput(text, where=where, value=definition.name)


def _scaled_amounts(
    problem: Problem, definition: MicrobatchClass, stated: Any, hops: Sequence[tuple[int, int]]
) -> Any:
    outright = {stage: dict(keys) for stage, keys in definition.outright}
    for stage, mode, keys in stated:
        own = f"stage {stage}" if mode is None else f"stage {stage} in mode {mode.name}"
        for key, value in keys.items():
            if key not in outright.get(stage, ()):
                yield f"{key} of {own}", scaled(value, getattr(definition, AMOUNTS[key]))
        if mode is not None and mode.offload is not None:
            yield f"out of {own}", scaled(mode.offload.time_out, definition.held)
            yield f"in of {own}", scaled(mode.offload.time_in, definition.held)
    for stage, after in hops:
        link = problem.links[stage, after]
        for direction, delay in (("F", link.F), ("B", link.B)):
            yield f"delay {direction} from stage {stage}", scaled(delay, definition.comm)
