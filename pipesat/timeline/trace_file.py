"""One rank's trace of torch's profiler, read: its ranges of the pipeline runtime."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipesat.core.errors import BadInput
from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.rules import duration
from pipesat.export.torch.read import items_of
from pipesat.export.torch.tokens import parse_cell
from pipesat.files.strict_json import read_json
from pipesat.timeline.readers import LARGEST_FILE
from pipesat.timeline.readers.chrome import events_of, on_gpu, rank_of, times_of
from pipesat.timeline.readers.rows import Document
from pipesat.timeline.timeline import TransferCall

_TRANSFER = re.compile(r"[0-9]+(SEND|RECV)_[FB][0-9]+")


class Range(NamedTuple):
    """When an op ran, or was asked to, in the trace's own microseconds."""

    item: Item
    start: float
    end: float


class TraceRank(NamedTuple):
    """What one trace says; ``base`` is what its times count from, in us."""

    number: int | None
    base: float
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
    document = Document(str(path), read_json(path, LARGEST_FILE, lenient=True))
    found = [
        (place, event)
        for place, event in enumerate(events_of(document.content) or ())
        if event.get("ph") == "X" and str(event.get("name", "")).startswith("PP:")
    ]
    timed = [
        (*times_of(document, event, f"traceEvents[{place}]"), place, event["name"][3:])
        for place, event in on_gpu(found)
    ]
    ops: list[Range] = []
    transfers: list[TransferCall] = []
    for start, end, place, name in sorted(timed):
        if _TRANSFER.fullmatch(name):
            transfers.append(TransferCall(name, start, end))
        else:
            where = f"traceEvents[{place}].name"
            ops += _members(problem, name, start, end, document.source, where)
    if not ops:
        text = "no range of torch's pipeline runtime (PP:0F0 and so on) is in it"
        raise BadInput(text, source=document.source)
    return TraceRank(*rank_of(document), document.source, ops, transfers)


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
