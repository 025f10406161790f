"""Timeline files, ``pipesat.timeline/1``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field

from pipesat.core.arguments import public
from pipesat.core.complaint import Says, validated
from pipesat.core.errors import BadInput, said_of
from pipesat.core.strict_json import LARGEST_RUN, StrictModel, read_json
from pipesat.problem.ops import Copy, Item, Pair, members, parse_copy, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.rules import in_order
from pipesat.runtimes.timeline import (
    DeviceRun,
    Ran,
    RanCopy,
    Timeline,
    TrainingStep,
    TransferCall,
    require_order_of,
)
from pipesat.schedule.schedule_file import ModeEntries, Modes, in_mode, modes_of_entry

_T = TypeVar("_T")

SHORTEST_UNIT, LONGEST_UNIT = 1e-15, 1e18
"""Bounds of ``us_per_time_unit``: a second stretched by the largest ``run --scale`` is 1e15."""
MOST_US = 1e15

MeasuredTime = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-MOST_US, le=MOST_US)]
Length = Annotated[MeasuredTime, Field(ge=0)]
Text = Annotated[str, Field(strict=True)]
_Between = tuple[Text, MeasuredTime, MeasuredTime]
_TIMES = "times in microseconds of at most 1e15"


class RowModel(StrictModel):
    """One device of a step.

    ``[item, start, end, waited, cpu]``, ``[transfer, start, end]`` and ``[copy, start, end]``.
    """

    model_config = ConfigDict(strict=False)  # a list is read as a tuple; each entry is strict

    ops: Annotated[
        list[tuple[Text, MeasuredTime, MeasuredTime, Length, Length | None]],
        Says(f"[op or pair, start, end, waited, cpu or null], {_TIMES}"),
    ]
    transfers: Annotated[list[_Between], Says(f"[transfer, start, end], {_TIMES}")] = []
    copies: Annotated[list[_Between], Says(f"[copy, start, end], {_TIMES}")] = []


class StepModel(StrictModel):
    """One entry of ``steps``."""

    devices: Annotated[list[RowModel], Field(min_length=1)]


class TimelineModel(StrictModel):
    """The whole document."""

    model_config = ConfigDict(strict=False)  # entries of modes are tuples; each part is strict

    format: Literal["pipesat.timeline/1"]
    problem_sha256: Text
    source: Text = ""
    us_per_time_unit: Annotated[
        float, Field(strict=True, allow_inf_nan=False, ge=SHORTEST_UNIT, le=LONGEST_UNIT)
    ]
    clock_error: Length | None = None
    environment: dict[str, Text] = {}
    modes: ModeEntries = []
    steps: Annotated[list[StepModel], Field(min_length=1)]


@public
def read_timeline(path: str | Path, problem: Problem) -> Timeline:
    """Read a timeline of an order of ``problem``, or of a problem of the same shape.

    Raises
    ------
    BadInput
        If the file is no timeline file, or its order is none of the problem's.
    """
    source = str(path)
    model = validated(read_json(Path(path), LARGEST_RUN), TimelineModel, source)
    with said_of(source):
        return _timeline(model, problem)


def _timeline(model: TimelineModel, problem: Problem) -> Timeline:
    modes = modes_of_entry(model.modes, problem)
    timeline = Timeline(
        model.problem_sha256,
        tuple(_step(problem, step, number, modes) for number, step in enumerate(model.steps)),
        model.us_per_time_unit,
        model.source,
        model.clock_error,
        model.environment,
        {(stage, microbatch): name for stage, microbatch, name in model.modes},
    )
    require_order_of(problem, timeline)
    return timeline


def _step(problem: Problem, model: StepModel, number: int, modes: Modes) -> TrainingStep:
    rows = []
    for device, row in enumerate(model.devices):
        where = f"steps[{number}].devices[{device}]"
        ops = tuple(
            Ran(in_mode(_item(problem, entry, f"{where}.ops[{place}]"), modes), *entry[1:])
            for place, entry in enumerate(row.ops)
        )
        copies = tuple(
            RanCopy(_copy(problem, entry, modes, f"{where}.copies[{place}]"), *entry[1:])
            for place, entry in enumerate(row.copies)
        )
        calls = tuple(TransferCall(*transfer) for transfer in row.transfers)
        rows.append(DeviceRun(ops, calls, copies))
    return TrainingStep(tuple(rows))


def _parsed(parse: Callable[[str], _T], wanted: str, entry: Sequence[Any], where: str) -> _T:
    text, start, end = entry[:3]
    if end < start:
        raise BadInput("it ends before it starts", where=where, value=[text, start, end])
    try:
        return parse(text)
    except ValueError:
        raise BadInput(f"expected {wanted}", where=where, value=text) from None


def _copy(problem: Problem, entry: Sequence[Any], modes: Modes, where: str) -> Copy:
    copy = _parsed(parse_copy, "a copy, as 0O3 or 0L3", entry, where)
    mode = modes.get((copy.stage, copy.microbatch), 0)
    if not mode or problem.stages[copy.stage].modes[mode - 1].offload is None:
        raise BadInput("its microbatch is not offloaded there", where=where, value=entry[0])
    return copy


def _item(problem: Problem, entry: Sequence[Any], where: str) -> Item:
    item = _parsed(parse_item, "an op, as 0F3, or a pair, as (0F3+1BW0)", entry, where)
    if max(op.stage for op in members(item)) >= len(problem.stages):
        raise BadInput("it is of no stage of this problem", where=where, value=entry[0])
    return in_order(problem, item) if isinstance(item, Pair) else item
