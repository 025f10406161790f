"""Import of traces of torch's profiler: the ranges ``PP:1F0`` that its pipeline runtime leaves.

A range includes the wait for the action's input, and nothing in a trace says when the input came.
It is taken to have come when the op that sends it ended, so that delays count as compute; a
timeline of ``pipesat run`` knows them apart. An overlapped cell has one range for its members,
which is cut in proportion to the problem's costs.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pipesat.errors import BadInput
from pipesat.export.torch.adapt import require_torch_pipeline
from pipesat.export.torch.tokens import parse_cell
from pipesat.ops import Op
from pipesat.problem import Problem
from pipesat.rules import duration
from pipesat.timeline.assemble import op_of
from pipesat.timeline.replay import source_of
from pipesat.timeline.timeline import (
    Ran,
    Row,
    Step,
    Timeline,
    Transfer,
    require_order_of,
    us_per_unit,
)

LARGEST_FILE = 1 << 30
_TRANSFER = re.compile(r"[0-9]+(SEND|RECV)_[FB][0-9]+")
_ON_GPU = "gpu_user_annotation"


@dataclass(frozen=True)
class Imported:
    """A timeline, and what the reader should know of it."""

    timeline: Timeline
    notes: tuple[str, ...]


class _Range(NamedTuple):
    op: Op
    start: float
    end: float


class _Rank(NamedTuple):
    number: int | None
    ops: list[_Range]
    transfers: list[Transfer]


def import_traces(problem: Problem, paths: Sequence[Path], *, skip: int = 0) -> Imported:
    """Read one trace per rank (``.json`` or ``.json.gz``), without the first ``skip`` steps.

    A trace that names its rank (``distributedInfo``) has that one; otherwise the order of the files
    counts.

    Raises
    ------
    BadInput
        If a file is no such trace, or ranks, steps or ops are missing.
    NotApplicable
        If torch cannot run a pipeline of the problem's shape.
    """
    require_torch_pipeline(problem)
    if len(paths) != len(problem.devices):
        raise BadInput(f"{len(paths)} traces, expected {len(problem.devices)}, one per rank")
    documents = [_read(path) for path in paths]
    base = min(int(d.get("baseTimeNanoseconds", 0)) for d in documents)
    ranks = [
        _rank(problem, document, str(path), base)
        for document, path in zip(documents, paths, strict=True)
    ]
    numbers = [rank.number for rank in ranks]
    if sorted(n for n in numbers if n is not None) == list(range(len(ranks))):
        ranks.sort(key=lambda rank: rank.number or 0)
    elif any(number is not None for number in numbers):
        raise BadInput(
            f"the traces are of ranks {numbers}, expected 0 to {len(ranks) - 1}, each once"
        )
    steps = [_step(problem, parts) for parts in _steps(ranks, skip, str(paths[0]))]
    timeline = Timeline(
        problem.sha256,
        tuple(steps),
        us_per_unit(problem),
        "torch profiler",
        None,
        {"traces": ", ".join(path.name for path in paths)},
    )
    require_order_of(problem, timeline, str(paths[0]))
    return Imported(timeline, tuple(_notes(problem, timeline)))


def _read(path: Path) -> dict[str, Any]:
    source = str(path)
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise BadInput(f"larger than the limit of {LARGEST_FILE >> 20} MiB", source=source)
        document = json.loads(data.decode("utf-8", "replace"), strict=False)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"cannot read: {error}", source=source) from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}", source=source) from None
    if isinstance(document, list):
        document = {"traceEvents": document}
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise BadInput("expected a chrome trace, an object with traceEvents", source=source)
    return document


def _rank(problem: Problem, document: dict[str, Any], source: str, base: int) -> _Rank:
    ranges = [
        event
        for event in document["traceEvents"]
        if isinstance(event, dict)
        and event.get("ph") == "X"
        and str(event.get("name", "")).startswith("PP:")
    ]
    if on_gpu := [event for event in ranges if event.get("cat") == _ON_GPU]:
        ranges = on_gpu  # when the GPU ran it; the host's ranges end when it was asked to
    shift = (int(document.get("baseTimeNanoseconds", 0)) - base) / 1000
    ops: list[_Range] = []
    transfers: list[Transfer] = []
    for event in sorted(ranges, key=lambda event: float(event["ts"])):
        name = str(event["name"]).removeprefix("PP:")
        start = float(event["ts"]) + shift
        end = start + float(event.get("dur", 0.0))
        if _TRANSFER.fullmatch(name):
            transfers.append(Transfer(name, start, end))
        else:
            ops += _members(problem, name, start, end, source)
    if not ops:
        raise BadInput(
            "no range of torch's pipeline runtime (PP:0F0 and so on) stands in it", source=source
        )
    rank = document.get("distributedInfo", {}).get("rank")
    return _Rank(rank if isinstance(rank, int) else None, ops, transfers)


def _members(
    problem: Problem, name: str, start: float, end: float, source: str
) -> Iterator[_Range]:
    try:
        cell = parse_cell(name)
    except ValueError as error:
        raise BadInput(str(error), source=source, where=f"PP:{name}") from None
    if cell is None:
        return
    if any(action.stage >= len(problem.routes[0].stages) for action in cell):
        raise BadInput("there is no such stage in the problem", source=source, where=f"PP:{name}")
    ops = [op_of(problem, action) for action in cell]
    costs = [duration(problem.stages[op.stage], op.kind) for op in ops]
    share = (end - start) / (sum(costs) or 1)
    for op, cost in zip(ops, costs, strict=True):
        length = cost * share if len(ops) > 1 else end - start
        yield _Range(op, start, start + length)
        start += length


def _steps(
    ranks: Sequence[_Rank], skip: int, source: str
) -> Iterator[list[tuple[list[_Range], list[Transfer]]]]:
    """Cut every rank's ranges into steps: an op's k-th range is of step k."""
    counts = {divmod(len(rank.ops), len({r.op for r in rank.ops})) for rank in ranks}
    if len(counts) != 1 or (number_and_rest := counts.pop())[1]:
        raise BadInput(
            "the traces hold parts of steps, or different numbers of them; expected whole ones",
            source=source,
        )  # fmt: skip
    number = number_and_rest[0]
    if skip >= number:
        raise BadInput(f"the traces have {number} steps", where="--skip", value=skip)
    for step in range(skip, number):
        parts = []
        for rank in ranks:
            size = len(rank.ops) // number
            ops = rank.ops[step * size : (step + 1) * size]
            begin = ops[0].start if step else float("-inf")
            end = rank.ops[(step + 1) * size].start if step + 1 < number else float("inf")
            parts.append((ops, [t for t in rank.transfers if begin <= t.start < end]))
        yield parts


def _step(problem: Problem, parts: Sequence[tuple[list[_Range], list[Transfer]]]) -> Step:
    zero = min(r.start for ops, _ in parts for r in ops)
    place: dict[tuple[int, Any, int], Ran] = {
        (r.op.stage, r.op.kind, r.op.microbatch): Ran(r.op, r.start - zero, r.end - zero, 0.0)
        for ops, _ in parts
        for r in ops
    }

    def waited(ran: Ran) -> Ran:
        source = source_of(problem, ran.op, place)
        came = ran.start if source is None else min(max(source.end, ran.start), ran.end)
        return Ran(ran.op, came, ran.end, came - ran.start)

    def row(ops: list[_Range], transfers: list[Transfer]) -> Row:
        ran = (place[r.op.stage, r.op.kind, r.op.microbatch] for r in ops)
        calls = (Transfer(t.name, t.start - zero, t.end - zero) for t in transfers)
        return Row(tuple(map(waited, ran)), tuple(calls))

    rows = [row(*part) for part in parts]
    begin = min(ran.start for r in rows for ran in r.ops)
    if begin:  # the first op of all is one that no other sends to: its start is the zero
        return _shifted(rows, -begin)
    return Step(tuple(rows))


def _shifted(rows: Sequence[Row], by: float) -> Step:
    return Step(
        tuple(
            Row(
                tuple(Ran(r.op, r.start + by, r.end + by, r.waited) for r in row.ops),
                tuple(Transfer(t.name, t.start + by, t.end + by) for t in row.transfers),
            )
            for row in rows
        )
    )


def _notes(problem: Problem, timeline: Timeline) -> Iterator[str]:
    yield "link delays are not in the trace: they count as time of the op that waited"
    worst = 0.0
    for step in timeline.steps:
        place = {(r.op.stage, r.op.kind, r.op.microbatch): r for _, r in step}
        for _, ran in step:
            source = source_of(problem, ran.op, place)
            if source is not None:
                worst = max(worst, source.end - ran.end)
    if worst > 0:
        yield (
            f"an op ends {worst:.0f} us before its input was sent: the clocks of the ranks differ "
            "by at least that much"
        )
