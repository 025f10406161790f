"""What the page's timeline shows, as plain data for JSON; small, because files hold many of them.

Per device a schedule has parallel lists, one entry per op in execution order: ``kinds`` (one letter
each: F, B, W, X for BW, lower-case for the two members of a pair, side by side), ``microbatches``,
``gaps`` (start minus the end of the op before it), ``stages`` where the device has several, and
``modes`` where some are not kept. Lengths follow from stage, kind, mode and the microbatch's
class: ``stages[stage].amounts[mode][class]`` is the place of an entry in ``amounts``. Only those of
pairs are listed, in ``pairs``. ``copies`` has [out, stage, microbatch, start, end].
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

from pipesat.compare.best_known import Comparison, over_capacity
from pipesat.compare.hand_written import ScheduleRow
from pipesat.compare.report.tables import ordered, plain, source_of
from pipesat.core.amounts import SHARE, bytes_of, seconds_of
from pipesat.draw.style import COPY_BACK, COPY_OUT, MEANING, TINTS, class_tints, fill, ink_on
from pipesat.problem.ops import KINDS, PHASE_OF, Item, Kind, Op, Pair, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import copied_amount, duration, inputs_of, memory_change, one_of_each
from pipesat.problem.stage import KEEP
from pipesat.schedule.metrics import measure
from pipesat.schedule.schedule import Schedule, Timed, TimedCopy
from pipesat.schedule.timing import critical_path

LARGEST: Final = 4_000_000
"""Bytes of all schedules of a report; beyond it, baselines keep their line but no timeline."""

_LETTER: Final[dict[Kind, str]] = {"F": "F", "B": "B", "W": "W", "BW": "X"}


def case_data(case: Comparison, left: int = LARGEST) -> dict[str, Any]:
    """Return everything that the timeline of one case needs.

    The solver's schedule is always there; of the others, those that fit into ``left`` bytes.
    """
    result = case.result
    problem = result.problem
    schedules: list[dict[str, Any]] = []
    first_with: dict[object, str] = {}
    for row in ordered(case):
        if row.schedule is None:
            continue
        entry, devices = _head(row, problem), row.schedule.devices
        if devices in first_with:
            entry["sameAs"] = first_with[devices]
        else:
            entry |= schedule_data(problem, row.schedule)
            size = len(json.dumps(entry, separators=(",", ":")))
            if schedules and size > left:
                continue
            left -= size
            first_with[devices] = row.name
        schedules.append(entry)
    stages, amounts = _stages(problem)
    return {
        "name": plain(case.placement or ""),
        "timeScale": time_scale(problem.time_unit),
        "memoryScale": memory_scale(problem.memory_unit),
        "objective": result.objective,
        "meanings": [MEANING[kind] for kind in KINDS],
        "shades": list(_shades(max(map(len, problem.stages_on)))),
        "copyColours": [COPY_BACK, COPY_OUT],
        "devices": [
            {"name": plain(problem.device_name(number)), "memory": device.memory}
            | {"static": device.static}
            for number, device in enumerate(problem.devices)
        ],
        "stages": stages,
        "amounts": amounts,
        "routes": list(_routes(problem)),
        "schedules": schedules,
    }


def time_scale(unit: str) -> dict[str, Any]:
    """Return the unit that times are shown in, how many of it one is, and with which decimals."""
    second = seconds_of(unit)
    if second is None:
        return {"unit": plain(unit, 20), "each": 1, "digits": 0}
    each = 1000 * second
    return {"unit": "ms", "each": float(each), "digits": len(str(each.denominator)) - 1}


def memory_scale(unit: str) -> dict[str, Any]:
    """Return the same of memory; bytes are shown in KiB, MiB, ..., whatever fits each amount."""
    each = bytes_of(unit)
    if each is not None:
        return {"unit": "B", "each": float(each), "digits": 0}
    share = SHARE.fullmatch(unit)
    digits = int(share[1]) if share else 0
    return {"unit": plain(f"{share[2]}s" if share else unit, 40), "each": 10**-digits} | {
        "digits": digits
    }


def _shades(chunks: int) -> Iterator[list[list[str]]]:
    """Per chunk of a device and tint of a class: fill and ink of each kind."""
    for chunk in range(chunks):
        for tint in range(TINTS):
            fills = [fill(kind, chunk / max(1, chunks - 1), tint) for kind in KINDS]
            yield [[colour, ink_on(colour)] for colour in fills]


def _head(row: ScheduleRow, problem: Problem) -> dict[str, Any]:
    return {
        "name": row.name,
        "source": plain(source_of(row)),
        "valid": row.valid,
        "whyNot": None if row.why_not is None else plain(row.why_not, 400),
        "over": over_capacity(problem, row),
        "makespan": row.makespan,
        "span": row.span,
    }


def _stages(problem: Problem) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return where each stage is, whose end each kind waits for, and where its amounts are listed.

    The list has lengths, memory changes and delays of inputs by kind, and what a copy to the host
    sets free; equal ones of two stages stand once.
    """
    known: dict[str, tuple[int, dict[str, Any]]] = {}
    places: list[dict[int, dict[int, int]]] = [{} for _ in problem.stages]
    for op in one_of_each(problem):
        if op.kind == "F":
            amounts = _amounts(problem, op)
            of_class = places[op.stage].setdefault(op.mode, {})
            kind = problem.class_of(op.stage, op.microbatch)
            of_class[kind] = known.setdefault(str(amounts), (len(known), amounts))[0]
    stages = []
    for number, stage in enumerate(problem.stages):
        needs = {
            kind: next(iter(inputs_of(problem, Op(number, kind, 0))), None) for kind in PHASE_OF
        }
        entry = {
            "device": stage.device,
            "route": problem.route_of[number],
            "place": problem.stages_on[stage.device].index(number),
            "modes": [KEEP, *(plain(mode.name) for mode in stage.modes)],
            "amounts": [
                [place for _, place in sorted(row.items())]
                for _, row in sorted(places[number].items())
            ],
            "waits": {kind: need and list(need.event[:2]) for kind, need in needs.items()},
        }
        stages.append(entry)
    return stages, [amounts for _, amounts in known.values()]


def _amounts(problem: Problem, forward: Op) -> dict[str, Any]:
    ops = [forward._replace(kind=kind) for kind in PHASE_OF]
    needs = {op.kind: next(iter(inputs_of(problem, op)), None) for op in ops}
    return {
        "length": {op.kind: duration(problem, op) for op in ops},
        "memory": {op.kind: list(memory_change(problem, op)) for op in ops},
        "delay": {kind: need.delay if need else 0 for kind, need in needs.items()},
        "copied": copied_amount(problem, forward),
    }


def _routes(problem: Problem) -> Iterator[dict[str, Any] | None]:
    """Per route: its classes' names and shades and each microbatch's class; null without a list."""
    tints = class_tints(problem)
    for number, route in enumerate(problem.routes):
        if route.classes is None or tints is None:
            yield None
            continue
        names = [plain(definition.name) for definition in route.definitions]
        yield {"names": names, "tints": list(tints.of_class[number]), "classes": route.classes}


def schedule_data(problem: Problem, schedule: Schedule) -> dict[str, Any]:
    """Return one schedule's ops, idle time by cause, peaks and critical path."""
    metrics = measure(problem, schedule)
    first_op: list[dict[Item, int]] = []  # number of each item's first op: a pair has two
    for row in schedule.order:
        sizes = accumulate((len(members(item)) for item in row), initial=0)
        first_op.append(dict(zip(row, sizes, strict=False)))
    return {
        "devices": [
            _row(row, schedule.copies_of(device), several=len(problem.stages_on[device]) > 1)
            for device, row in enumerate(schedule.devices)
        ],
        "idle": [
            [d.busy, d.warm_up, d.input, d.memory, d.unforced, d.cool_down] for d in metrics.devices
        ],
        "peaks": list(metrics.peak_memory),
        "path": [
            [device, first_op[device][timed.item], through[0]]  # type: ignore[index]
            for device, timed, through in critical_path(problem, schedule)
        ],
    }


def _row(row: tuple[Timed, ...], copies: tuple[TimedCopy, ...], *, several: bool) -> dict[str, Any]:
    kinds: list[str] = []
    stages, microbatches, gaps, pairs, modes = [], [], [], [], []
    free_at = 0
    for item, start, end in row:
        for op in members(item):  # type: ignore[arg-type]
            letter = _LETTER[op.kind]
            kinds.append(letter.lower() if isinstance(item, Pair) else letter)
            stages.append(op.stage)
            microbatches.append(op.microbatch)
            modes.append(op.mode)
            gaps.append(start - free_at)
            free_at = end
        if isinstance(item, Pair):
            pairs.append(end - start)
    data: dict[str, Any] = {"kinds": "".join(kinds), "microbatches": microbatches, "gaps": gaps}
    if several:
        data["stages"] = stages
    elif stages:
        data["stage"] = stages[0]
    if pairs:
        data["pairs"] = pairs
    if any(modes):
        data["modes"] = modes
    if copies:
        data["copies"] = [
            [int(copy.kind == "O"), copy.stage, copy.microbatch, start, end]  # type: ignore[union-attr]
            for copy, start, end in copies
        ]
    return data
