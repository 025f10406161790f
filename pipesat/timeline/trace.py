"""Import of traces of torch's profiler: the ranges ``PP:1F0`` that its pipeline runtime leaves.

A range includes the wait for the action's input, and nothing in a trace says when the input came.
It is taken to have come when the op that sends it ended, so that delays count as compute; a
timeline of ``pipesat run`` knows them apart. An overlapped cell has one range for its members: it
is a pair where the problem has one, else it is cut in proportion to the problem's costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from pipesat.core.errors import BadInput
from pipesat.core.ops import Item, members
from pipesat.core.problem import Problem
from pipesat.core.rules import duration
from pipesat.export.torch.adapt import require_torch_pipeline
from pipesat.export.torch.read import items_of
from pipesat.export.torch.tokens import parse_cell
from pipesat.files.complaint import validated, validated_at
from pipesat.files.strict_json import read_json
from pipesat.timeline.file import MOST_US
from pipesat.timeline.replay import places_of, sources_of
from pipesat.timeline.timeline import (
    DeviceRun,
    Ran,
    Timeline,
    TrainingStep,
    TransferCall,
    require_op,
    require_order_of,
    us_per_unit,
)

LARGEST_FILE = 1 << 30
_TRANSFER = re.compile(r"[0-9]+(SEND|RECV)_[FB][0-9]+")
_MOST_TS = 1e16  # microseconds since 1970 are 1.8e15
_ON_GPU = "gpu_user_annotation"


@dataclass(frozen=True)
class ImportedTrace:
    """A timeline, and what the reader should know of it."""

    timeline: Timeline
    notes: tuple[str, ...]


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


class _Range(NamedTuple):
    item: Item
    start: float
    end: float


class _TraceRank(NamedTuple):
    number: int | None
    base: int
    source: str
    ops: list[_Range]
    transfers: list[TransferCall]


def import_traces(problem: Problem, paths: Sequence[str | Path], *, skip: int = 0) -> ImportedTrace:
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
    ranks = _on_one_clock([_rank(problem, Path(path)) for path in paths])
    numbers = [rank.number for rank in ranks]
    if sorted(n for n in numbers if n is not None) == list(range(len(ranks))):
        ranks.sort(key=lambda rank: rank.number or 0)
    elif any(number is not None for number in numbers):
        raise BadInput(
            f"the traces are of ranks {numbers}, expected 0 to {len(ranks) - 1}, each once",
            source=ranks[0].source,
            where="distributedInfo.rank",
            value=numbers[0],
        )
    for device, found in enumerate(ranks):
        for op in (op for ran in found.ops for op in members(ran.item)):
            require_op(problem, op, device, found.source, f"PP ranges of rank {device}")
    steps = [_step(parts) for parts in _steps(ranks, skip, str(paths[0]))]
    _require_short(steps, str(paths[0]))
    measured = Timeline(
        problem.sha256,
        tuple(steps),
        us_per_unit(problem),
        "torch profiler",
        None,
        {"traces": ", ".join(Path(path).name for path in paths)},
    )
    require_order_of(problem, measured, str(paths[0]))
    timeline = replace(measured, steps=tuple(_with_waits(problem, step) for step in steps))
    return ImportedTrace(timeline, tuple(_notes(problem, timeline)))


def _rank(problem: Problem, path: Path) -> _TraceRank:
    source = str(path)
    document = read_json(path, LARGEST_FILE, lenient=True)
    if isinstance(document, list):
        document = {"traceEvents": document}
    trace = validated(document, _TraceModel, source, _wanted)
    ranges = [
        (number, validated_at(event, _RangeModel, source, ("traceEvents", number), _wanted))
        for number, event in enumerate(trace.traceEvents)
        if isinstance(event, dict)
        and event.get("ph") == "X"
        and str(event.get("name", "")).startswith("PP:")
    ]
    if on_gpu := [(number, event) for number, event in ranges if event.cat == _ON_GPU]:
        ranges = on_gpu  # when the GPU ran it; the host's ranges end when it was asked to
    ops: list[_Range] = []
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
    return _TraceRank(rank, trace.baseTimeNanoseconds, source, ops, transfers)


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


def _on_one_clock(ranks: Sequence[_TraceRank]) -> list[_TraceRank]:
    """Shift every rank's times, which count from its own ``baseTimeNanoseconds``."""
    base = min(rank.base for rank in ranks)
    return [
        rank._replace(
            ops=[_Range(r.item, r.start + by, r.end + by) for r in rank.ops],
            transfers=[TransferCall(t.name, t.start + by, t.end + by) for t in rank.transfers],
        )
        for rank in ranks
        for by in ((rank.base - base) / 1000,)
    ]


def _members(
    problem: Problem, name: str, start: float, end: float, source: str, where: str
) -> Iterator[_Range]:
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
        yield _Range(item, start, start + length)
        start += length


def _steps(
    ranks: Sequence[_TraceRank], skip: int, source: str
) -> Iterator[list[tuple[list[_Range], list[TransferCall]]]]:
    """Cut every rank's ranges into steps: an op's k-th range is of step k."""
    counts = {divmod(len(rank.ops), len({r.item for r in rank.ops})) for rank in ranks}
    if len(counts) != 1 or (number_and_rest := counts.pop())[1]:
        raise BadInput(
            "the traces hold parts of steps, or different numbers of them; expected whole ones",
            source=source,
        )
    number = number_and_rest[0]
    if skip >= number:
        raise BadInput(f"the traces have {number} steps", where="skip", value=skip)
    for step in range(skip, number):
        parts = []
        for rank in ranks:
            size = len(rank.ops) // number
            ops = rank.ops[step * size : (step + 1) * size]
            begin = ops[0].start if step else float("-inf")
            end = rank.ops[(step + 1) * size].start if step + 1 < number else float("inf")
            parts.append((ops, [t for t in rank.transfers if begin <= t.start < end]))
        yield parts


def _step(parts: Sequence[tuple[list[_Range], list[TransferCall]]]) -> TrainingStep:
    """One step as the ranges are, its first op at time 0; what an op waited is not known yet."""
    zero = min(r.start for ops, _ in parts for r in ops)
    return _shifted(
        TrainingStep(
            tuple(
                DeviceRun(tuple(Ran(r.item, r.start, r.end, 0.0) for r in ops), tuple(transfers))
                for ops, transfers in parts
            )
        ),
        -zero,
    )


def _require_short(steps: Sequence[TrainingStep], source: str) -> None:
    for number, step in enumerate(steps):
        if step.makespan > MOST_US:
            raise BadInput(
                f"a step of {step.makespan:g} us, expected at most {MOST_US:g}: are these the "
                "traces of one run?",
                source=source,
                where=f"steps[{number}]",
            )


def _with_waits(problem: Problem, step: TrainingStep) -> TrainingStep:
    """Let every op wait until the op that sends its input has ended."""
    place = places_of(step)

    def waited(ran: Ran) -> Ran:
        sent = [place[event].end for _, event in sources_of(problem, ran.item)]
        came = min(max([ran.start, *sent]), ran.end)
        return Ran(ran.item, came, ran.end, came - ran.start)

    found = TrainingStep(
        tuple(DeviceRun(tuple(map(waited, row.ops)), row.transfers) for row in step.devices)
    )
    begin = min(ran.start for _, ran in found)
    # The first op of all is one that no other sends to: its start is the zero.
    return _shifted(found, -begin) if begin else found


def _shifted(step: TrainingStep, by: float) -> TrainingStep:
    return TrainingStep(
        tuple(
            DeviceRun(
                tuple(Ran(r.item, r.start + by, r.end + by, r.waited) for r in row.ops),
                tuple(TransferCall(t.name, t.start + by, t.end + by) for t in row.transfers),
            )
            for row in step.devices
        )
    )


def _notes(problem: Problem, timeline: Timeline) -> Iterator[str]:
    yield "link delays are not in the trace: they count as time of the op that waited"
    if problem.has_lists:
        yield (
            "microbatches differ, and their numbers here are taken for the problem's own: those of "
            "an exported order are places in the .order.json beside it"
        )
    worst = 0.0
    for step in timeline.steps:
        place = places_of(step)
        for _, ran in step:
            for _, event in sources_of(problem, ran.item):
                worst = max(worst, place[event].end - ran.end)
    if worst > 0:
        yield (
            f"an op ends {worst:.0f} us before its input was sent: the clocks of the ranks differ "
            "by at least that much"
        )
