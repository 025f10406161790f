"""One rank's trace of torch's profiler, read: its ranges of the pipeline runtime."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from pipesat.core.errors import BadInput
from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.rules import duration
from pipesat.export.torch.read import items_of
from pipesat.export.torch.tokens import parse_cell
from pipesat.files.complaint import validated, validated_at
from pipesat.files.strict_json import read_json
from pipesat.timeline.file import MOST_US
from pipesat.timeline.timeline import TransferCall

LARGEST_FILE = 1 << 30
_TRANSFER = re.compile(r"[0-9]+(SEND|RECV)_[FB][0-9]+")
_MOST_TS = 1e16  # microseconds since 1970 are 1.8e15
_ON_GPU = "gpu_user_annotation"
_Us = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class _DistributedModel(BaseModel):
    rank: Annotated[int, Field(strict=True, ge=0, le=10**6)] | None = None


class _TraceModel(BaseModel):
    """What counts of a trace; events that are not the pipeline runtime's may be anything."""

    traceEvents: list[Any]
    baseTimeNanoseconds: Annotated[int, Field(strict=True, ge=-(10**19), le=10**19)] = 0
    distributedInfo: _DistributedModel | None = None


class _RangeModel(BaseModel):
    """One event of the pipeline runtime."""

    name: Annotated[str, Field(strict=True)]
    cat: Any = None
    ts: Annotated[_Us, Field(ge=-_MOST_TS, le=_MOST_TS)]
    dur: Annotated[_Us, Field(ge=0, le=MOST_US)]


class Range(NamedTuple):
    """When an op ran, or was asked to, in the trace's own microseconds."""

    item: Item
    start: float
    end: float


class TraceRank(NamedTuple):
    """What one trace says; ``base`` is its ``baseTimeNanoseconds``."""

    number: int | None
    base: int
    source: str
    ops: list[Range]
    transfers: list[TransferCall]


def read_rank(problem: Problem, path: Path) -> TraceRank:
    """Read the trace of one rank.

    Raises
    ------
    BadInput
        If it is none, or has no range of the pipeline runtime.
    """
    source = str(path)
    document = read_json(path, LARGEST_FILE, lenient=True)
    if isinstance(document, list):
        document = {"traceEvents": document}
    trace = validated(document, _TraceModel, source, _wanted)
    ranges = [
        (number, validated_at(event, _RangeModel, ("traceEvents", number), _wanted, source))
        for number, event in enumerate(trace.traceEvents)
        if isinstance(event, dict)
        and event.get("ph") == "X"
        and str(event.get("name", "")).startswith("PP:")
    ]
    if on_gpu := [(number, event) for number, event in ranges if event.cat == _ON_GPU]:
        ranges = on_gpu  # when the GPU ran it; the host's ranges end when it was asked to
    ops: list[Range] = []
    transfers: list[TransferCall] = []
    for number, event in sorted(ranges, key=lambda found: found[1].ts):
        name = event.name.removeprefix("PP:")
        start, end = event.ts, event.ts + event.dur
        if _TRANSFER.fullmatch(name):
            transfers.append(TransferCall(name, start, end))
        else:
            ops += _members(problem, name, start, end, source, f"traceEvents[{number}].name")
    if not ops:
        raise BadInput(
            "no range of torch's pipeline runtime (PP:0F0 and so on) is in it", source=source
        )
    rank = None if trace.distributedInfo is None else trace.distributedInfo.rank
    return TraceRank(rank, trace.baseTimeNanoseconds, source, ops, transfers)


def _wanted(path: tuple[int | str, ...], kind: str, context: dict[str, Any]) -> str | None:
    """What would be right, where this format can say more than any other."""
    del kind, context
    return {
        "traceEvents": "a list of events",
        "baseTimeNanoseconds": "a whole number of nanoseconds of at most 10^19",
        "distributedInfo": "an object",
        "rank": "a rank, a whole number",
        "ts": "a number of microseconds of at most 1e16",
        "dur": "a number of microseconds from 0 to 1e15",
        "name": "the range's name, a string",
    }.get(str(path[-1]))


def _members(
    problem: Problem, name: str, start: float, end: float, source: str, where: str
) -> Iterator[Range]:
    try:
        cell = parse_cell(name)
    except ValueError as error:
        raise BadInput(str(error), source=source, where=where, value=f"PP:{name}") from None
    if cell is None:
        return
    if any(action.stage >= len(problem.routes[0].stages) for action in cell):
        raise BadInput(
            "there is no such stage in the problem", source=source, where=where, value=f"PP:{name}"
        )
    items = items_of(cell, problem)
    costs = [duration(problem, item) for item in items]
    share = (end - start) / (sum(costs) or 1)
    for item, cost in zip(items, costs, strict=True):
        length = cost * share if len(items) > 1 else end - start
        yield Range(item, start, start + length)
        start += length
