"""Chrome's trace-event format, which https://ui.perfetto.dev opens: ops, memory, dependencies.

One process per device with its ops on the thread ``compute``; the second member of a pair stands on
a second thread, ``overlapped``, copies from and to the host on ``copies in`` and ``copies out``.
The format's times are microseconds: problems in a unit of seconds show their true times, in any
other unit one unit is shown as 1 us.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, TypeAlias

from pipesat.core.amounts import seconds_of
from pipesat.problem.ops import PHASE_OF, Copy, Op, Unreadable, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import inputs_of
from pipesat.schedule.metrics import memory_profiles
from pipesat.schedule.schedule import Schedule

TraceEvent: TypeAlias = dict[str, Any]

_MOST_ITEMS_WITH_FLOWS = 20_000  # arrows of larger schedules would only fill the file


def microseconds_of(unit: str) -> Fraction:
    """Return how many a unit of time is; one that is no time counts as 1."""
    return 10**6 * (seconds_of(unit) or Fraction(1, 10**6))


def trace_bytes(problem: Problem, schedule: Schedule) -> bytes:
    """Return the trace as a JSON file, one event per line."""
    scale = microseconds_of(problem.time_unit)
    ran = [*_ran(problem, schedule, scale)]
    events = [*_names(problem, schedule), *ran, *_memory(problem, schedule, scale)]
    if len(schedule) <= _MOST_ITEMS_WITH_FLOWS:
        events += _flows(problem, ran)
    encoder = json.JSONEncoder(separators=(",", ":"))  # one for all: json.dumps makes one for each
    lines = ",\n".join(map(encoder.encode, events))
    about = {
        "problem": problem.name,
        "problem_sha256": problem.sha256,
        "source": schedule.source,
        "time_unit": problem.time_unit,
        "memory_unit": problem.memory_unit,
    }
    text = (
        f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n{lines}\n]}}\n'
    )
    return text.encode()


def trace_notes(problem: Problem, schedule: Schedule) -> Iterator[str]:
    """Yield what a trace does not show as it is."""
    if not seconds_of(problem.time_unit):
        unit = problem.time_unit or "time unit"
        yield f"1 {unit} is shown as 1 us: the format knows no other time"
    if len(schedule) > _MOST_ITEMS_WITH_FLOWS and len(problem.devices) > 1:
        yield f"without arrows: they are left out of more than {_MOST_ITEMS_WITH_FLOWS} ops"


def _time(time: int, scale: Fraction) -> int | float:
    """Return a time in microseconds, whole where it can be."""
    found = time * scale
    return int(found) if found.denominator == 1 else float(found)


def _thread(problem: Problem, device: int, member: int) -> dict[str, int]:
    """Process and thread of an item's ``member``: 0 compute, 1 overlapped; 2 and 3: copies.

    No two processes share a thread number, because Perfetto looks threads up without the process;
    a process' main thread has its own number. Perfetto keeps process 0 for the kernel's idle one.
    """
    return {"pid": device + 1, "tid": device + 1 + member * len(problem.devices)}


def _names(problem: Problem, schedule: Schedule) -> Iterator[TraceEvent]:
    for device, items in enumerate(schedule.order):
        process = {"ph": "M", **_thread(problem, device, 0)}
        yield {**process, "name": "process_name", "args": {"name": problem.device_name(device)}}
        yield {**process, "name": "process_sort_index", "args": {"sort_index": device}}
        threads = {0: "compute"}
        if any(len(members(item)) > 1 for item in items):
            threads[1] = "overlapped"
        if schedule.copies_of(device):
            threads |= {2: "copies out", 3: "copies in"}
        for member, name in threads.items():
            thread = {"ph": "M", **_thread(problem, device, member)}
            yield {**thread, "name": "thread_name", "args": {"name": name}}
            yield {**thread, "name": "thread_sort_index", "args": {"sort_index": member}}


def _ran(problem: Problem, schedule: Schedule, scale: Fraction) -> Iterator[TraceEvent]:
    """Yield an event for every op and copy."""
    ran: list[tuple[int, int, Op | Copy, int, int]] = [
        (device, member, op, *timed[1:])
        for device, (items, row) in enumerate(zip(schedule.order, schedule.devices, strict=True))
        for item, timed in zip(items, row, strict=True)
        for member, op in enumerate(members(item))
    ]
    ran += [
        (device, 2 + (copy.kind == "L"), copy, start, end)
        for device, row in enumerate(schedule.copies)
        for copy, start, end in row
        if not isinstance(copy, Unreadable)
    ]
    for device, member, what, start, end in ran:
        yield {
            "ph": "X",
            "name": str(what),
            "cat": what.kind,
            **_thread(problem, device, member),
            "ts": _time(start, scale),
            "dur": _time(end - start, scale),
            "args": what._asdict(),
        }


def _memory(problem: Problem, schedule: Schedule, scale: Fraction) -> Iterator[TraceEvent]:
    """Yield one counter per device, with an event wherever its value changes."""
    unit = f" ({problem.memory_unit})" if problem.memory_unit else ""
    for device, profile in enumerate(memory_profiles(problem, schedule)):
        before = None
        for time, held in zip(profile.times.tolist(), profile.held.tolist(), strict=True):
            if held != before:
                yield {
                    "ph": "C",
                    "name": f"memory{unit}",
                    "pid": device + 1,
                    "ts": _time(time, scale),
                    "args": {"held": held},
                }
            before = held


def _flows(problem: Problem, ran: list[TraceEvent]) -> Iterator[TraceEvent]:
    """Yield an arrow for all data that goes to another device, from start to start.

    Arrows bind to the slice that encloses their time, and a slice does not enclose its own end.
    """
    places = {
        Op(**event["args"]): {key: event[key] for key in ("pid", "tid", "ts")}
        for event in ran
        if event["cat"] in PHASE_OF
    }
    by_event = {op.event: place for op, place in places.items()}
    number = 0
    for op, target in places.items():
        for need in inputs_of(problem, op):
            source = by_event.get(need.event)
            if source and source["pid"] != target["pid"]:
                number += 1
                arrow = {"name": PHASE_OF[op.kind], "cat": "transfer", "id": number}
                yield {"ph": "s", **arrow, **source}
                yield {"ph": "f", "bp": "e", **arrow, **target}
