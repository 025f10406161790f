"""Timeline files, ``pipesat.timeline/1``."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipesat.errors import BadInput
from pipesat.files.atomic import write_file
from pipesat.files.strict_json import path_text, read_json
from pipesat.ops import Op, parse_item
from pipesat.problem import Problem
from pipesat.timeline.timeline import Ran, Row, Step, Timeline, Transfer, require_order_of

FORMAT = "pipesat.timeline/1"
LARGEST_FILE = 1 << 30

Time = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e15, le=1e15)]
Length = Annotated[Time, Field(ge=0)]
Text = Annotated[str, Field(strict=True)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RowModel(_Model):
    """One device of a step: ``[op, start, end, waited, cpu]`` and ``[transfer, start, end]``."""

    ops: list[tuple[Text, Time, Time, Length, Length | None]]
    transfers: list[tuple[Text, Time, Time]] = []


class StepModel(_Model):
    """One entry of ``steps``."""

    devices: Annotated[list[RowModel], Field(min_length=1)]


class TimelineModel(_Model):
    """The whole document."""

    format: Literal["pipesat.timeline/1"]
    problem_sha256: Text
    source: Text = ""
    us_per_time_unit: Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0)]
    clock_error: Length | None = None
    environment: dict[str, Text] = {}
    steps: Annotated[list[StepModel], Field(min_length=1)]


def timeline_bytes(timeline: Timeline) -> bytes:
    """Return the file's content: one line per device and step."""
    head = {
        "format": FORMAT,
        "problem_sha256": timeline.problem_sha256,
        "source": timeline.source,
        "us_per_time_unit": timeline.us_per_unit,
        "clock_error": timeline.clock_error,
        "environment": dict(timeline.environment),
    }
    steps = ",\n".join(
        '{"devices": [\n' + ",\n".join(map(_row_text, step.devices)) + "]}"
        for step in timeline.steps
    )
    return f'{json.dumps(head)[:-1]}, "steps": [\n{steps}\n]}}\n'.encode()


def _row_text(row: Row) -> str:
    document = {
        "ops": [[str(op), *map(_tenths, times)] for op, *times in row.ops],
        "transfers": [[name, *map(_tenths, times)] for name, *times in row.transfers],
    }
    return json.dumps(document, separators=(",", ":"))


def _tenths(time: float | None) -> float | None:
    return None if time is None else round(time, 1)


def write_timeline(path: Path, timeline: Timeline) -> None:
    """Write a timeline file, whole or not at all.

    Raises
    ------
    BadInput
        If it cannot be written.
    """
    write_file(path, timeline_bytes(timeline))


def read_timeline(path: Path, problem: Problem) -> Timeline:
    """Read a timeline of an order of ``problem``, or of a problem of the same shape.

    Raises
    ------
    BadInput
        If the file is no timeline file, or its order is none of the problem's.
    """
    source = str(path)
    document = read_json(path, LARGEST_FILE)
    try:
        model = TimelineModel.model_validate(document)
    except ValidationError as error:
        raise _bad_value(error, source) from None
    timeline = Timeline(
        model.problem_sha256,
        tuple(_step(step, source, number) for number, step in enumerate(model.steps)),
        model.us_per_time_unit,
        model.source,
        model.clock_error,
        model.environment,
    )
    require_order_of(problem, timeline, source)
    return timeline


def _step(model: StepModel, source: str, number: int) -> Step:
    rows = []
    for device, row in enumerate(model.devices):
        ops = []
        for place, (text, start, end, waited, cpu) in enumerate(row.ops):
            where = f"steps[{number}].devices[{device}].ops[{place}]"
            if end < start:
                raise BadInput(
                    "it ends before it starts", source=source, where=where, value=[text, start, end]
                )
            ops.append(Ran(_op(text, source, where), start, end, waited, cpu))
        rows.append(Row(tuple(ops), tuple(Transfer(*transfer) for transfer in row.transfers)))
    return Step(tuple(rows))


def _op(text: str, source: str, where: str) -> Op:
    try:
        item = parse_item(text)
    except ValueError:
        item = None
    if not isinstance(item, Op):
        raise BadInput("expected an op, as 0F3", source=source, where=where, value=text)
    return item


_WANTED = {
    "format": f'"{FORMAT}"',
    "us_per_time_unit": "a positive number",
    "clock_error": "a number of microseconds or null",
    "environment": "an object of texts",
    "ops": "[op, start, end, waited, cpu or null], times in microseconds",
    "transfers": "[transfer, start, end], times in microseconds",
    "steps": "a list of at least one step",
    "devices": "a list of at least one device",
}


def _bad_value(error: ValidationError, source: str) -> BadInput:
    errors = error.errors(include_url=False)
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    path = first["loc"]
    where = path_text(path)
    if first["type"] == "missing":
        return BadInput("this is required and missing", source=source, where=where)
    if first["type"] == "extra_forbidden":
        known = [name for m in (TimelineModel, StepModel, RowModel) for name in _fields(m)]
        near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.0)
        return BadInput(
            f"unknown key; the nearest known key is {near[0]}", source=source, where=where
        )
    names = [step for step in path if step in _WANTED]
    wanted = _WANTED[str(names[-1])] if names else "a text" if path else "a JSON object"
    return BadInput(f"expected {wanted}", source=source, where=where, value=first["input"])


def _fields(model: Any) -> list[str]:
    return list(model.model_fields)
