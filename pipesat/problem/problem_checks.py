"""What holds of every problem, read or made: each value in its range, and one with another.

Complaints have the path of the value in the problem's file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, NamedTuple

from pipesat.core.errors import BadInput, require
from pipesat.core.strict_json import MOST, MOST_OPS_OF_A_PROBLEM
from pipesat.problem.plain_problems import with_idle_keys, without_idle_keys
from pipesat.problem.problem import TEXTS, Device, Problem, Route
from pipesat.problem.stage import AMOUNTS, FACTORS, MicrobatchClass, Stage, scaled, stated_amounts


def require_amount(where: str, value: Any, expected: str = "") -> None:
    """Pass if a value is an integer of the range that all times and memory amounts have."""
    require(
        type(value) is int and 0 <= value <= MOST,
        f"expected an integer from 0 to 10^12{expected}",
        where=where,
        value=value,
    )


def require_devices(devices: Iterable[Device]) -> None:
    """Pass if amounts of devices are in their ranges."""
    for number, device in enumerate(devices):
        where = f"devices[{number}]"
        if device.memory is not None:
            require_amount(f"{where}.memory", device.memory, " or null")
        require_amount(f"{where}.static", device.static)


_AMOUNTS_OF: Final = attrgetter(*AMOUNTS)


def require_stages(stages: Iterable[Stage]) -> None:
    """Pass if amounts that stages state are in their ranges; a BW that is a sum may be larger."""
    for number, stage in enumerate(stages):
        values = _AMOUNTS_OF(stage)
        if min(values) < 0 or max(values) > MOST:
            for key, value in zip(AMOUNTS, values, strict=True):
                if not (key == "BW" and stage.sums):
                    require_amount(f"stages[{number}].{key}", value)


def valid(problem: Problem) -> Problem:
    """Return a problem that was made or changed, as :func:`checked` does, its values in range."""
    for where in (*TEXTS, "estimate"):
        text = getattr(problem, where)
        require(
            not any("\ud800" <= character <= "\udfff" for character in text),
            "a string has a lone surrogate, which is no text",
            where=where,
        )
    require_devices(problem.devices)
    require_stages(problem.stages)
    for delay in {delay for link in problem.links.values() for delay in (link.F, link.B)}:
        require_amount("comm", delay)
    return checked(problem)


def changed(problem: Problem, own: Sequence[Mapping[str, Any]] = (), **parts: Any) -> Problem:
    """Return a copy of a problem that differs, as :func:`valid` does.

    Parameters
    ----------
    own
        Which fields of each stage are otherwise, and how; empty: none of any.
    parts
        Fields of the problem that are otherwise.
    """
    whole = with_idle_keys(problem)
    if own:
        each = zip(whole.stages, own, strict=True)
        parts["stages"] = tuple(replace(stage, **fields) for stage, fields in each)
    return valid(replace(whole, **parts))


def checked(problem: Problem) -> Problem:
    """Return a problem whose parts fit each other, keys that say nothing ``idle``.

    Raises
    ------
    BadInput
        If there are too many ops, a list of microbatches has pairs by time, a class names stages
        that it may not name, or what it scales is too large.
    """
    require(
        problem.op_count <= MOST_OPS_OF_A_PROBLEM,
        f"{problem.op_count} ops, expected at most {MOST_OPS_OF_A_PROBLEM}",
        where="microbatches",
        value=sum(route.microbatches for route in problem.routes),
    )
    if problem.has_lists:
        _check_times_of_pairs(problem)
        _check_classes(problem)
    if not problem.chains_only:
        _check_slices(problem)
        _check_forward_only(problem)
    return without_idle_keys(problem)


def _check_slices(problem: Problem) -> None:
    """Check that every sequence of a route has all of its slices."""
    for number, route in enumerate(problem.routes):
        if route.microbatches % route.slices:
            text = f"expected a divisor of the route's {route.microbatches} microbatches"
            raise BadInput(text, where=f"routes[{number}].slices", value=route.slices)


def _check_forward_only(problem: Problem) -> None:
    """Check that what comes before a stage without a backward has none, and that none offloads."""
    for number, stage in enumerate(problem.stages):
        if stage.has_backward:
            continue
        for before in problem.before[number]:
            require(
                not problem.stages[before].has_backward,
                f"stage {before} leads to it and has a backward, which it would wait for",
                where=f"stages[{number}].backward",
                value="none",
            )
        for place, mode in enumerate(stage.modes):
            where = f"stages[{number}].modes[{place}]"
            require(
                mode.offload is None,
                "the stage has no backward and holds nothing after F: nothing to offload",
                where=f"{where}.offload",
            )
            require(
                mode.backward is None,
                "the stage has no backward, and modes change nothing of that",
                where=f"{where}.backward",
                value=mode.backward,
            )


def _check_times_of_pairs(problem: Problem) -> None:
    for number, entry in enumerate(problem.document.get("overlap", {}).get("pairs", ())):
        require(
            "time" not in entry,
            "microbatches that are a list take no pairs by time: give `factor`, [num, den] of "
            "what the two take alone",
            where=f"overlap.pairs[{number}].time",
            value=entry.get("time"),
        )


def _check_classes(problem: Problem) -> None:
    """Check that classes name stages that they may name, and that no scaled amount is too large."""
    for number, route in enumerate(problem.routes):
        if not route.definitions:
            continue
        amounts, places = list(_amounts(problem, route)), problem.places_of(number)
        largest = max((one.value for one in amounts), default=0)
        for definition in route.definitions:
            place = places[definition.name]
            _check_names(problem, route, definition, place)
            if all(scaled(largest, getattr(definition, by)) <= MOST for by in FACTORS):
                continue  # most problems need no closer look
            outright = {(stage, key) for stage, keys in definition.outright for key, _ in keys}
            for one in amounts:
                value = scaled(one.value, getattr(definition, one.by))
                require(
                    value <= MOST or (one.stage, one.key) in outright,
                    f"{one.key} {one.of} becomes {value}, expected at most 10^12",
                    where=place,
                    value=definition.name,
                )


class _Amount(NamedTuple):
    """A stated amount, of what it is, and the factor by which classes scale it."""

    stage: int
    key: str
    of: str
    value: int
    by: str


def _amounts(problem: Problem, route: Route) -> Iterator[_Amount]:
    for stage in route.stages:
        data = problem.stages[stage]
        for mode in (None, *data.modes):
            of = f"of stage {stage}" if mode is None else f"of stage {stage} in mode {mode.name}"
            for key, value in stated_amounts(data, mode).items():
                yield _Amount(stage, key, of, value, AMOUNTS[key])
            if mode is not None and mode.offload is not None:
                yield _Amount(stage, "out", of, mode.offload.time_out, "held")
                yield _Amount(stage, "in", of, mode.offload.time_in, "held")
        for after in problem.after[stage]:
            if link := problem.links.get((stage, after)):
                yield _Amount(stage, "delay F", f"from stage {stage}", link.F, "comm")
                yield _Amount(stage, "delay B", f"from stage {stage}", link.B, "comm")


def _check_names(problem: Problem, route: Route, definition: MicrobatchClass, place: str) -> None:
    mine = set(route.stages)
    for stage, _ in definition.outright:
        here = f"{place}.stages['{stage}']"
        if stage not in mine:
            few = f"0 to {len(mine) - 1}" if mine == set(range(len(mine))) else str(sorted(mine))
            raise BadInput(
                f"there is no stage {stage} on this route, expected one of {few}", where=here
            )
        require(
            not problem.stages[stage].modes,
            f"stage {stage} has modes, so a class cannot state its amounts, only factors",
            where=here,
        )
