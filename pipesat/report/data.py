"""What the page's timeline shows, as plain data for JSON; small, because files hold many of them.

Per device a schedule has parallel lists, one entry per op in execution order: ``kinds`` (one letter
each: F, B, W, X for BW, lower-case for the two members of a pair, side by side), ``microbatches``,
``gaps`` (start minus the end of the op before it), and ``stages`` where the device has several.
Lengths follow from stage and kind; only those of pairs are listed, in ``pairs``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pipesat.core.critical_path import critical_path
from pipesat.core.least import require_plain
from pipesat.core.metrics import measure
from pipesat.core.ops import PHASE_OF, Kind, Op, Pair, members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, duration, memory_change
from pipesat.core.schedule import Schedule, Timed
from pipesat.picture.style import FILL, INK_ON, MEANING
from pipesat.report.markup import plain
from pipesat.report.shown import ReportedCase, Shown

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
    return {
        "name": plain(case.name),
        "timeUnit": plain(problem.time_unit, 20),
        "memoryUnit": plain(problem.memory_unit, 40),
        "objective": result.objective,
        "colours": {kind: [FILL[kind], INK_ON[kind], MEANING[kind]] for kind in FILL},
        "devices": [
            {"name": plain(problem.device_name(number)), "memory": device.memory}
            | {"static": device.static}
            for number, device in enumerate(problem.devices)
        ],
        "stages": list(_stages(problem)),
        "schedules": schedules,
    }


def _head(shown: Shown, problem: Problem) -> dict[str, Any]:
    peaks = shown.row.peak_memory or []
    over = [
        number
        for number, (device, peak) in enumerate(zip(problem.devices, peaks, strict=True))
        if device.memory is not None and peak > device.memory
    ]
    return {
        "name": shown.name,
        "source": plain(shown.source),
        "valid": shown.row.valid,
        "whyNot": None if shown.row.why_not is None else plain(shown.row.why_not, 400),
        "over": over,
        "makespan": shown.row.makespan,
        "span": shown.row.span,
    }


def _stages(problem: Problem) -> Iterator[dict[str, Any]]:
    """Per stage: its device and place there, and each kind's length, memory change and wait."""
    require_plain(problem, "report")
    for number, stage in enumerate(problem.stages):
        ops = [Op(number, kind, 0) for kind in PHASE_OF]
        needs = {op.kind: awaited(problem, op) for op in ops}
        yield {
            "device": stage.device,
            "place": problem.stages_on[stage.device].index(number),
            "length": {op.kind: duration(problem, op) for op in ops},
            "memory": {op.kind: list(memory_change(problem, op)) for op in ops},
            "waits": {kind: need and [*need.event[:2], need.delay] for kind, need in needs.items()},
        }


def schedule_data(problem: Problem, schedule: Schedule) -> dict[str, Any]:
    """Return one schedule's ops, idle time by cause, peaks and critical path."""
    metrics = measure(problem, schedule)
    path = critical_path(problem, schedule)
    first_op = [_first_ops(row) for row in schedule.devices]
    index = [{timed.item: n for n, timed in enumerate(row)} for row in schedule.devices]
    return {
        "devices": [
            _row(row, several=len(problem.stages_on[device]) > 1)
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


def _row(row: tuple[Timed, ...], *, several: bool) -> dict[str, Any]:
    kinds: list[str] = []
    stages, microbatches, gaps, pairs = [], [], [], []
    free_at = 0
    for item, start, end in row:
        for op in members(item):  # type: ignore[arg-type]
            letter = _LETTER[op.kind]
            kinds.append(letter.lower() if isinstance(item, Pair) else letter)
            stages.append(op.stage)
            microbatches.append(op.microbatch)
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
    return data
