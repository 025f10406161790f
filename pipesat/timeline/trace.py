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
from typing import Any, NamedTuple

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, said_of
from pipesat.core.ops import members
from pipesat.core.problem import Problem
from pipesat.core.rules import duration
from pipesat.core.settings import Steps
from pipesat.export.torch.adapt import require_torch_pipeline
from pipesat.export.torch.csv_file import items_of
from pipesat.export.torch.lint import parse_cell
from pipesat.files.strict_json import read_json
from pipesat.timeline.file import MOST_US
from pipesat.timeline.readers import LARGEST_FILE
from pipesat.timeline.readers.chrome import events_of, on_gpu, rank_of, times_of
from pipesat.timeline.readers.rows import Document
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

_TRANSFER = re.compile(r"[0-9]+(SEND|RECV)_[FB][0-9]+")


class TraceRank(NamedTuple):
    """What one trace says of all steps; ``base`` is what its times count from, in us."""

    number: int | None
    base: float
    source: str
    ran: DeviceRun


def read_rank(problem: Problem, path: Path) -> TraceRank:
    """Read the trace of one rank."""
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
    ops: list[Ran] = []
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
    row = DeviceRun(tuple(ops), tuple(transfers))
    return TraceRank(*rank_of(document), document.source, row)


def _members(
    problem: Problem, name: str, start: float, end: float, source: str, where: str
) -> Iterator[Ran]:
    """Yield the ops of a range; what they waited is not known yet."""
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
        yield Ran(item, start, start + length, 0.0)
        start += length


@dataclass(frozen=True)
class ImportedTrace:
    """A timeline, and what the reader should know of it."""

    timeline: Timeline
    notes: tuple[str, ...]


@public
def import_traces(
    problem: Problem, paths: Sequence[str | Path], *, skip: Steps = 0
) -> ImportedTrace:
    """Read one trace per rank, without the first ``skip`` steps.

    A trace that names its rank (``distributedInfo``) has that one; otherwise the order of the files
    counts.

    Parameters
    ----------
    problem
        The problem whose order ran.
    paths
        Chrome traces of torch's profiler (.json, .json.gz), one per rank.
    skip
        Steps to leave out first.

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
    ranks = [read_rank(problem, Path(path)) for path in paths]
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
        with said_of(found.source):
            for op in (op for ran in found.ran.ops for op in members(ran.item)):
                require_op(problem, op, device, f"PP ranges of rank {device}")
    base = min(rank.base for rank in ranks)
    rows = [_shifted(rank.ran, rank.base - base) for rank in ranks]
    steps = [_from_zero(parts) for parts in _steps(rows, skip, str(paths[0]))]
    for number, step in enumerate(steps):
        if step.makespan > MOST_US:
            raise BadInput(
                f"a step of {step.makespan:g} us, expected at most {MOST_US:g}: are these the "
                "traces of one run?",
                source=str(paths[0]),
                where=f"steps[{number}]",
            )
    measured = Timeline(
        problem.sha256,
        tuple(steps),
        us_per_unit(problem),
        "torch profiler",
        None,
        {"traces": ", ".join(Path(path).name for path in paths)},
    )
    with said_of(str(paths[0])):
        require_order_of(problem, measured)
    timeline = replace(measured, steps=tuple(_with_waits(problem, step) for step in steps))
    return ImportedTrace(timeline, tuple(_notes(problem, timeline)))


def _steps(rows: Sequence[DeviceRun], skip: int, source: str) -> Iterator[list[DeviceRun]]:
    """Cut what every rank ran into steps: an op's k-th range is of step k."""
    counts = {divmod(len(row.ops), len({ran.item for ran in row.ops})) for row in rows}
    number, rest = counts.pop()
    if counts or rest:
        raise BadInput(
            "the traces hold parts of steps, or different numbers of them, expected whole ones",
            source=source,
        )
    if skip >= number:
        raise BadInput(f"the traces have {number} steps", where="skip", value=skip)
    for step in range(skip, number):
        parts = []
        for row in rows:
            size = len(row.ops) // number
            ops = row.ops[step * size : (step + 1) * size]
            begin = ops[0].start if step else float("-inf")
            end = row.ops[(step + 1) * size].start if step + 1 < number else float("inf")
            calls = tuple(call for call in row.transfers if begin <= call.start < end)
            parts.append(DeviceRun(ops, calls))
        yield parts


def _from_zero(rows: Sequence[DeviceRun]) -> TrainingStep:
    """Put the rows of a step together, its first op at time 0."""
    zero = min(ran.start for row in rows for ran in row.ops)
    return TrainingStep(tuple(_shifted(row, -zero) for row in rows))


def _shifted(row: DeviceRun, by: float) -> DeviceRun:
    def moved(ran: Any) -> Any:
        return ran._replace(start=ran.start + by, end=ran.end + by)

    return DeviceRun(tuple(map(moved, row.ops)), tuple(map(moved, row.transfers)))


def _with_waits(problem: Problem, step: TrainingStep) -> TrainingStep:
    """Let every op wait until the op that sends its input has ended."""
    place = places_of(step)

    def waited(ran: Ran) -> Ran:
        sent = [place[event].end for _, event in sources_of(problem, ran.item)]
        came = min(max([ran.start, *sent]), ran.end)
        return Ran(ran.item, came, ran.end, came - ran.start)

    return _from_zero([replace(row, ops=tuple(map(waited, row.ops))) for row in step.devices])


def _notes(problem: Problem, timeline: Timeline) -> Iterator[str]:
    yield "link delays are not in the trace: they count as time of the op that waited"
    if problem.has_lists:
        yield (
            "microbatches differ, and their numbers here are taken for the problem's own: those of "
            "an exported order are places in the .order.json beside it"
        )
    late = (
        place[event].end - ran.end
        for step in timeline.steps
        for place in (places_of(step),)
        for _, ran in step
        for _, event in sources_of(problem, ran.item)
    )
    worst = max(late, default=0.0)
    if worst > 0:
        yield (
            f"an op ends {worst:.0f} us before its input was sent: the clocks of the ranks differ "
            "by at least that much"
        )
