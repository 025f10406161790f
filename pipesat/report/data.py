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
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pipesat.core.amounts import SECONDS, SHARE, bytes_of
from pipesat.core.metrics import measure
from pipesat.core.ops import KINDS, PHASE_OF, Kind, Op, Pair, members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, copied_amount, duration, memory_change, one_of_each
from pipesat.core.schedule import Schedule, Timed, TimedCopy
from pipesat.core.stage import KEEP
from pipesat.core.timing import critical_path
from pipesat.picture.style import COPY_BACK, COPY_OUT, MEANING, TINTS, class_tints, fill, ink_on
from pipesat.report.tables import ReportedCase, Shown, over_capacity, plain

LARGEST: Final = 4_000_000
"""Bytes of all schedules of a report; beyond it, baselines keep their line but no timeline."""

_LETTER: Final[dict[Kind, str]] = {"F": "F", "B": "B", "W": "W", "BW": "X"}


def case_data(case: ReportedCase, room: int = LARGEST) -> dict[str, Any]:
    """Return everything that the timeline of one case needs.

    The solver's schedule is always there; of the others, those that fit into ``room`` bytes.
    """
    result = case.result
    problem = result.problem
    schedules: list[dict[str, Any]] = []
    first_with: dict[object, str] = {}
    for shown in case.shown:
        if shown.schedule is None:
            continue
        entry = _head(shown, problem)
        same = first_with.setdefault(shown.schedule.devices, shown.name)
        if same == shown.name:
            entry |= schedule_data(problem, shown.schedule)
            size = len(json.dumps(entry, separators=(",", ":")))
            if schedules and size > room:
                del first_with[shown.schedule.devices]
                continue
            room -= size
        else:
            entry["sameAs"] = same
        schedules.append(entry)
    amounts = _Amounts(problem)
    return {
        "name": plain(case.name),
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
        "stages": list(_stages(problem, amounts)),
        "amounts": amounts.entries,
        "routes": list(_routes(problem)),
        "schedules": schedules,
    }


def time_scale(unit: str) -> dict[str, Any]:
    """Return the unit that times are shown in, how many of it one is, and with which decimals."""
    second = SECONDS.get(unit)
    if second is None:
        return {"unit": plain(unit, 20), "each": 1, "digits": 0}
    each = 1000 * second
    return {"unit": "ms", "each": float(each), "digits": len(str(each.denominator)) - 1}


def memory_scale(unit: str) -> dict[str, Any]:
    """Return the same of memory; bytes are shown in KiB, MiB, ..., whatever fits each amount."""
    each = bytes_of(unit)
    if each is not None:
        return {"unit": "B", "each": each, "digits": 0}
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


def _head(shown: Shown, problem: Problem) -> dict[str, Any]:
    return {
        "name": shown.name,
        "source": plain(shown.source),
        "valid": shown.row.valid,
        "whyNot": None if shown.row.why_not is None else plain(shown.row.why_not, 400),
        "over": over_capacity(problem, shown.row.peak_memory or ()),
        "makespan": shown.row.makespan,
        "span": shown.row.span,
    }


class _Amounts:
    """Length, memory change and delay of each kind's ops; equal ones of two stages stand once.

    ``delay`` is that of the input, ``copied`` what a copy to the host sets free.
    """

    def __init__(self, problem: Problem) -> None:
        self.entries: list[dict[str, Any]] = []
        self.places: list[dict[int, dict[int, int]]] = [{} for _ in problem.stages]
        known: dict[str, int] = {}
        for op in one_of_each(problem):
            if op.kind != KINDS[0]:
                continue
            entry = _amounts(problem, [op._replace(kind=kind) for kind in PHASE_OF])
            place = known.setdefault(json.dumps(entry), len(self.entries))
            if place == len(self.entries):
                self.entries.append(entry)
            kind = problem.class_of(op.stage, op.microbatch)
            self.places[op.stage].setdefault(op.mode, {})[kind] = place

    def of(self, stage: int) -> list[list[int]]:
        """Places of a stage's entries, by mode and class."""
        rows = self.places[stage]
        return [[row[kind] for kind in sorted(row)] for _, row in sorted(rows.items())]


def _amounts(problem: Problem, ops: Sequence[Op]) -> dict[str, Any]:
    needs = {op.kind: awaited(problem, op) for op in ops}
    return {
        "length": {op.kind: duration(problem, op) for op in ops},
        "memory": {op.kind: list(memory_change(problem, op)) for op in ops},
        "delay": {kind: need.delay if need else 0 for kind, need in needs.items()},
        "copied": copied_amount(problem, ops[0]),
    }


def _stages(problem: Problem, amounts: _Amounts) -> Iterator[dict[str, Any]]:
    """Per stage: where it is, whose end each kind waits for, and the places of its amounts."""
    for number, stage in enumerate(problem.stages):
        needs = {kind: awaited(problem, Op(number, kind, 0)) for kind in PHASE_OF}
        yield {
            "device": stage.device,
            "route": problem.route_of[number],
            "place": problem.stages_on[stage.device].index(number),
            "modes": [KEEP, *(plain(mode.name) for mode in stage.modes)],
            "amounts": amounts.of(number),
            "waits": {kind: need and list(need.event[:2]) for kind, need in needs.items()},
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
    path = critical_path(problem, schedule)
    first_op = [_first_ops(row) for row in schedule.devices]
    index = [{timed.item: n for n, timed in enumerate(row)} for row in schedule.devices]
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
            [device, first_op[device][index[device][timed.item]], through[0]]
            for device, timed, through in path
        ],
    }


def _first_ops(row: tuple[Timed, ...]) -> list[int]:
    """Number of each item's first op: a pair has two."""
    numbers, count = [], 0
    for timed in row:
        numbers.append(count)
        count += 2 if isinstance(timed.item, Pair) else 1
    return numbers


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
