"""What the program makes of a file that is written for it; that it is what was meant.

No exporter writes without: those of :data:`pipesat.export.EXPORTERS` read every file by that
program's rules, as far as they are known, before anybody sees it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any, TypeAlias

from pipesat.core.errors import BadInput, Fault, PipesatError, require
from pipesat.core.strict_json import decoded, parse_json
from pipesat.problem.ops import PHASE_OF, Op, members
from pipesat.problem.problem import Problem
from pipesat.runtimes.options import Options
from pipesat.schedule.schedule import Exported, Order, Schedule
from pipesat.schedule.schedule_file import schedule_of_document

Meaning: TypeAlias = Mapping[str, Any]
"""What a file says, by name: ``order`` (:func:`rows_of`), ``layers`` per stage, ``ranks``, ..."""


def rows_of(order: Order) -> list[list[tuple[Op, ...]]]:
    """Return an order to compare: per device the ops of each item, those of a pair sorted."""
    return [[tuple(sorted(members(item))) for item in row] for row in order]


def ops_of(order: Order) -> list[list[Op]]:
    """Return per device the ops, those of a pair one after the other."""
    return [[op for item in row for op in members(item)] for row in order]


def require_as_meant(name: str, exported: Exported, read: Callable[[], Meaning]) -> None:
    """Pass if a file says what its writer meant.

    Raises
    ------
    Fault
        If the program would read something else, or refuse it.
    """
    try:
        found = read()
    except (PipesatError, LookupError, SyntaxError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise Fault(f"the file for {name} would be refused there: {why}") from error
    if not exported.means:
        raise Fault(f"nothing is known of what the file for {name} means")
    for key, meant in exported.means.items():
        if (said := found.get(key)) != meant:
            raise Fault(f"the file for {name} says other {key} than meant{_where(meant, said)}")


def _where(meant: Any, said: Any) -> str:
    """Say where two values first differ, rank by rank where they have rows."""
    if not (isinstance(meant, list) and isinstance(said, list)):
        return f": {said!r}, not {meant!r}"
    for rank, (one, other) in enumerate(zip_longest(meant, said)):
        if one != other:
            rows = (row if isinstance(row, list) else [row] for row in (one, other))
            for place, (a, b) in enumerate(zip_longest(*rows)):
                if a != b:
                    return f", row {rank + 1}, place {place + 1}: {_text(b)}, not {_text(a)}"
    return ""


def _text(value: Any) -> str:
    ops = value if isinstance(value, tuple) and not isinstance(value, Op) else (value,)
    return "+".join(map(str, ops))


# Files for no runtime


def read_order(problem: Problem, exported: Exported, _: Options) -> Meaning:
    """Read an order of microbatches, or one per route."""
    found = json.loads(exported.data)
    orders = [found] if len(problem.routes) == 1 else found
    for order, route in zip(orders, problem.routes, strict=True):
        require(
            sorted(order) == [*range(route.microbatches)],
            "expected every microbatch once",
            value=order,
        )
    return {"microbatches": orders}


def schedule_means(schedule: Schedule) -> Meaning:
    """What a schedule file means: modes are in the ops."""
    return {"order": rows_of(schedule.order), "times": times_of(schedule)}


def times_of(schedule: Schedule) -> list[list[tuple[int, int]]]:
    """Return starts and ends of every device's items, then of its copies."""
    rows = [*schedule.devices, *schedule.copies]
    return [[(start, end) for _, start, end in row] for row in rows]


def read_schedule_file(problem: Problem, exported: Exported, _: Options) -> Meaning:
    """Read a schedule file."""
    document = parse_json(decoded(exported.data, "schedule"), "schedule")
    return schedule_means(schedule_of_document(document, problem, "schedule"))


def read_trace(problem: Problem, exported: Exported, _: Options) -> Meaning:
    """Read a trace as Perfetto does: slices by process, of one thread in turn, arrows by number."""
    events = json.loads(exported.data)["traceEvents"]
    rows: list[list[Op]] = [[] for _ in problem.devices]
    begun: dict[tuple[int, int], float] = {}
    for event in events:
        if event["ph"] == "X":
            thread = event["pid"], event["tid"]
            if event["ts"] < begun.get(thread, 0):
                raise BadInput("expected a thread's slices in turn", value=event["name"])
            begun[thread] = event["ts"]
            if event["cat"] in PHASE_OF:
                rows[event["pid"] - 1].append(Op(**event["args"]))
    starts, ends = ({e["id"] for e in events if e["ph"] == phase} for phase in ("s", "f"))
    if starts != ends:
        raise BadInput("an arrow has one end", value=min(starts ^ ends))
    return {"order": rows}
