"""Schedule files, ``pipesat.schedule/1``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from pipesat.core.arguments import public
from pipesat.core.arrays import nothing_collected
from pipesat.core.atomic import write_file
from pipesat.core.complaint import Says, validated
from pipesat.core.errors import BadInput, require, said_of
from pipesat.core.strict_json import LARGEST_RUN, read_json
from pipesat.problem.ops import Item, Pair, Unreadable, parse_copy, parse_item, with_ops
from pipesat.problem.problem import Problem
from pipesat.problem.rules import in_order
from pipesat.problem.stage import KEEP
from pipesat.schedule.schedule import Schedule, Timed, TimedCopy
from pipesat.schedule.timing import time_order

FORMAT = "pipesat.schedule/1"

Time = Annotated[StrictInt, Field(ge=-(10**18), le=10**18)]


ModeEntry: TypeAlias = tuple[StrictInt, StrictInt, StrictStr]
"""A (stage, microbatch) and the name of its mode."""

ModeEntries: TypeAlias = Annotated[
    list[ModeEntry],
    Says("a list of [stage, microbatch, mode], two integers and a mode's name"),
]
Rows: TypeAlias = list[list[tuple[StrictStr, Time, Time]]]
Order: TypeAlias = list[list[StrictStr]]
_TIMES: Final = "a string, times integers of at most 10^18"
Modes: TypeAlias = Mapping[tuple[int, int], int]
"""Modes of the (stage, microbatch) that are not kept."""
_KEPT: Final[Modes] = {}


class ScheduleModel(BaseModel):
    """The whole document; op texts are judged by the checker, not here."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["pipesat.schedule/1"]
    problem_sha256: Annotated[StrictStr, Says("the problem's digest, a string")] = ""
    source: StrictStr = ""
    devices: Annotated[
        Rows | Order,
        Field(union_mode="left_to_right"),
        Says(f"one list per device, of [op, start, end] or of ops alone, op {_TIMES}"),
    ]
    modes: ModeEntries = []
    copies: Annotated[Rows, Says(f"one list per device of [copy, start, end], copy {_TIMES}")] = []


def schedule_bytes(problem: Problem, schedule: Schedule) -> bytes:
    """Return the file's content: one line per device, so that it can be read and compared."""
    head = {"format": FORMAT, "problem_sha256": problem.sha256, "source": schedule.source}
    rows = [
        [
            (str(in_order(problem, item) if isinstance(item, Pair) else item), *times)
            for item, *times in row
        ]
        for row in schedule.devices
    ]
    text = f'{json.dumps(head)[:-1]}, "devices": {_lines(rows)}'
    if problem.has_modes and (modes := schedule.modes):  # those that are not kept
        entries = [
            (stage, microbatch, problem.stages[stage].modes[mode - 1].name)
            for (stage, microbatch), mode in modes.items()
        ]
        text += f', "modes": {json.dumps(entries, separators=(",", ":"))}'
    if any(schedule.copies):
        copies = [[(str(copy), *times) for copy, *times in row] for row in schedule.copies]
        text += f', "copies": {_lines(copies)}'
    return f"{text}}}\n".encode()


def _lines(rows: Sequence[object]) -> str:
    body = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    return f"[\n{body}\n]"


@public
def write_schedule(path: str | Path, problem: Problem, schedule: Schedule) -> None:
    """Write a schedule file, whole or not at all.

    Raises
    ------
    BadInput
        If it cannot be written.
    """
    write_file(Path(path), schedule_bytes(problem, schedule))


@public
@nothing_collected()
def read_schedule(path: str | Path, problem: Problem) -> Schedule:
    """Read a schedule of ``problem``; its ops are as they stand in the file, not yet checked.

    Raises
    ------
    BadInput
        If the file is no schedule file or belongs to another problem.
    """
    return schedule_of_document(read_json(Path(path), LARGEST_RUN), problem, str(path))


def schedule_of_document(document: object, problem: Problem, source: str) -> Schedule:
    """Return what a schedule file says; see :func:`read_schedule`."""
    if isinstance(document, list):  # an order alone
        document = {"format": FORMAT, "devices": document}
    with said_of(source):
        return _schedule(validated(document, ScheduleModel, source), problem)


def _schedule(model: ScheduleModel, problem: Problem) -> Schedule:
    first = next(chain.from_iterable(model.devices), None)
    untimed = isinstance(first, str) or (first is None and not model.problem_sha256)
    require(
        model.problem_sha256 or untimed,
        "this key is required and missing, as ops have times",
        where="problem_sha256",
    )
    require(
        model.problem_sha256 in (problem.sha256, ""),
        f"a schedule of another problem, expected the digest {problem.sha256} "
        f"of {problem.name or 'the given problem'}",
        where="problem_sha256",
        value=model.problem_sha256,
    )
    modes = modes_of_entry(model.modes, problem)
    if untimed:
        require(not model.copies, "expected none, as ops have no times", where="copies")
        return schedule_in_order(problem, cast(Order, model.devices), model.source, modes)
    timed = cast(Rows, model.devices)
    items = {text: _item(problem, modes, text) for row in timed for text, _, _ in row}
    rows = tuple(tuple(Timed(items[text], start, end) for text, start, end in row) for row in timed)
    require(
        len(model.copies) in (0, len(problem.devices)),
        f"expected one list per device, {len(problem.devices)}, not {len(model.copies)}",
        where="copies",
    )
    copies = tuple(
        tuple(TimedCopy(_parsed(parse_copy, text), start, end) for text, start, end in row)
        for row in model.copies
    )
    return Schedule(rows, model.source, copies if any(copies) else ())


def schedule_in_order(
    problem: Problem, order: Sequence[Sequence[str]], source: str = "", modes: Modes = _KEPT
) -> Schedule:
    """Return the schedule that runs each device's ops in this order, each as early as it can be.

    Raises
    ------
    BadInput
        If a text is no op, or names a stage, device or pair that the problem does not have.
    Deadlock
        If its ops wait for each other, or for an op that the order lacks.
    """
    items: dict[str, Item] = {}
    for device, row in enumerate(order):
        for place, text in enumerate(row):
            item = _item(problem, modes, text)
            if isinstance(item, Unreadable):
                raise BadInput(
                    "expected an op, <stage><F|B|W|BW><microbatch>, or a pair as (0F2+7BW0)",
                    where=f"devices[{device}][{place}]",
                    value=text,
                )
            items[text] = item
    rows = tuple(tuple(items[text] for text in row) for row in order)
    try:
        return time_order(problem, rows, source=source)
    except ValueError as error:
        raise BadInput(str(error), where="devices") from None


def modes_of_entry(listed: Sequence[ModeEntry], problem: Problem) -> dict[tuple[int, int], int]:
    """Return the mode of every (stage, microbatch) that a file's ``modes`` list."""
    modes: dict[tuple[int, int], int] = {}
    for number, (stage, microbatch, name) in enumerate(listed):
        where = f"modes[{number}]"
        if not 0 <= stage < len(problem.stages):
            raise BadInput(
                f"expected a stage from 0 to {len(problem.stages) - 1}",
                where=f"{where}[0]",
                value=stage,
            )
        if not 0 <= microbatch < problem.microbatches[stage]:
            raise BadInput(
                f"expected a microbatch of stage {stage}, from 0 to "
                f"{problem.microbatches[stage] - 1}",
                where=f"{where}[1]",
                value=microbatch,
            )
        names = [mode.name for mode in problem.stages[stage].modes]
        if name not in names:
            kept = "; what is kept is not listed" if name == KEEP else ""
            one_of = f"one of {', '.join(names)}" if names else "none: the stage has no modes"
            raise BadInput(
                f"expected a mode of stage {stage}, {one_of}{kept}", where=f"{where}[2]", value=name
            )
        if (stage, microbatch) in modes:
            raise BadInput(
                "the mode of this stage and microbatch is given already",
                where=where,
                value=[stage, microbatch, name],
            )
        modes[stage, microbatch] = 1 + names.index(name)
    return modes


def in_mode(item: Item, modes: Modes) -> Item:
    """Return an item in the modes of its (stage, microbatch)."""
    return (
        with_ops(item, lambda op: op._replace(mode=modes.get((op.stage, op.microbatch), 0)))
        if modes
        else item
    )


def _item(problem: Problem, modes: Modes, text: str) -> Item | Unreadable:
    item = _parsed(parse_item, text)
    if isinstance(item, Unreadable):
        return item
    if isinstance(item, Pair) and item.first.event[1] != item.second.event[1]:
        item = in_order(problem, item)  # two of one phase send in the order of the text
    return in_mode(item, modes)


ParsedT = TypeVar("ParsedT")


def _parsed(parse: Callable[[str], ParsedT], text: str) -> ParsedT | Unreadable:
    try:
        return parse(text)
    except ValueError:
        return Unreadable(text)
