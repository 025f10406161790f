"""Schedule files, ``pipesat.schedule/1``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from pipesat.core.errors import BadInput
from pipesat.core.ops import Item, Pair, Unreadable, parse_item
from pipesat.core.problem import Problem
from pipesat.core.rules import in_order
from pipesat.core.schedule import Schedule, Timed
from pipesat.files.atomic import write_file
from pipesat.files.complaint import validated
from pipesat.files.strict_json import read_json

FORMAT = "pipesat.schedule/1"
LARGEST_FILE = 1 << 30

Time = Annotated[StrictInt, Field(ge=-(10**18), le=10**18)]


class ScheduleModel(BaseModel):
    """The whole document; op texts are judged by the checker, not here."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["pipesat.schedule/1"]
    problem_sha256: StrictStr
    source: StrictStr = ""
    devices: list[list[tuple[StrictStr, Time, Time]]]


def schedule_bytes(problem: Problem, schedule: Schedule) -> bytes:
    """Return the file's content: one line per device, so that it can be read and compared."""
    head = {
        "format": FORMAT,
        "problem_sha256": problem.sha256,
        "source": schedule.source,
    }
    rows = (
        json.dumps([[_text(problem, t.item), t.start, t.end] for t in row], separators=(",", ":"))
        for row in schedule.devices
    )
    body = ",\n".join(rows)
    return f'{json.dumps(head)[:-1]}, "devices": [\n{body}\n]}}\n'.encode()


def write_schedule(path: str | Path, problem: Problem, schedule: Schedule) -> None:
    """Write a schedule file, whole or not at all.

    Raises
    ------
    BadInput
        If it cannot be written.
    """
    write_file(Path(path), schedule_bytes(problem, schedule))


def read_schedule(path: str | Path, problem: Problem) -> Schedule:
    """Read a schedule of ``problem``; its ops are as they stand in the file, not yet checked.

    Raises
    ------
    BadInput
        If the file is no schedule file or belongs to another problem.
    """
    source = str(path)
    model = validated(read_json(Path(path), LARGEST_FILE), ScheduleModel, source, _wanted)
    if model.problem_sha256 != problem.sha256:
        raise BadInput(
            f"a schedule of another problem, expected the digest {problem.sha256} "
            f"of {problem.name or 'the given problem'}",
            source=source, where="problem_sha256", value=model.problem_sha256,
        )  # fmt: skip
    known: dict[str, Item | Unreadable] = {}
    rows = []
    for row in model.devices:
        timed = []
        for text, start, end in row:
            if text not in known:
                known[text] = _parse(problem, text)
            timed.append(Timed(known[text], start, end))
        rows.append(tuple(timed))
    return Schedule(tuple(rows), model.source)


def _text(problem: Problem, item: Item | Unreadable) -> str:
    return str(in_order(problem, item) if isinstance(item, Pair) else item)


def _parse(problem: Problem, text: str) -> Item | Unreadable:
    try:
        item = parse_item(text)
    except ValueError:
        return Unreadable(text)
    return in_order(problem, item) if isinstance(item, Pair) else item


def _wanted(path: tuple[int | str, ...], kind: str, context: dict[str, Any]) -> str | None:
    """What would be right, where this format can say more than any other."""
    del kind, context
    if path == ("format",):
        return f'"{FORMAT}"'
    if path[0] == "problem_sha256":
        return "the problem's digest, a string"
    if path[0] == "devices":
        return (
            "one list per device of [op, start, end], op a string, times integers of at most 10^18"
        )
    return None
