"""Chrome traces: torch's profiler, and ByteDance's NDTimeline.

torch's runtime names its ranges ``PP:0F0``; torch's plain GPipe has ``Forward 0`` and
``Backward 0``. One file has one rank, or each rank is a process or thread of it. A range of the
host begins with the wait for its input. ``gloo:recv`` ends when an op has waited for it (torch
2.13), so the one that ends within a range tells when its input was there: these ranges overlap
without nesting. On the GPU a range begins with its first kernel, and ``PP:1RECV_F0`` ends with the
message.

NDTimeline has all ranks: ``forward-compute`` and so on, the replica as ``pid``, a rank's stream as
``tid``, and ``step``, ``model_chunk``, ``mb_id`` as arguments (ByteDance-Seed/StragglerAnalysis,
``analyzer/to_timeline.py``).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from pipesat.core.errors import BadInput
from pipesat.measure.timeline.readers.rows import (
    FileValue,
    Trace,
    TraceRow,
    TraceStatement,
    chunks_in,
)
from pipesat.problem.ops import Kind
from pipesat.runtimes.torch.lint import LETTER_OF, Action, parse_action, parse_cell

_PLAIN: Final = re.compile(r"(Forward|Backward) ([0-9]{1,7})")
_COMPUTE: Final[dict[str, Kind]] = {
    "forward-compute": "F",
    "backward-compute": "BW",
    "backward-wgrad-compute": "W",
}
_RECEIVE: Final = re.compile(r"\w+:recv\b.*")
_SEND: Final = re.compile(r"c10d::send|\w+:send\b.*")
_MESSAGE: Final = re.compile(r"PP:([0-9]{1,7})RECV_([FB])([0-9]{1,7})")
_GPU: Final = "gpu_user_annotation"
_DIGITS: Final = re.compile(r"[0-9]{1,18}")


def events_of(content: Any) -> list[dict[str, Any]] | None:
    """Return the events of a Chrome trace; ``None`` if it is none."""
    found = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(found, list) or not any(isinstance(e, dict) and "ph" in e for e in found):
        return None
    return [event for event in found if isinstance(event, dict)]


def is_torch(content: Any) -> bool:
    """Whether this is a trace with ranges of a pipeline runtime of torch."""
    return not drawn(content) and any(_cell(event) for event in events_of(content) or ())


def drawn(content: Any) -> str:
    """Return what a schedule's times are that was written as a trace; nothing if it is none."""
    about = content.get("otherData") if isinstance(content, dict) else None
    if isinstance(about, dict) and "problem_sha256" in about:
        return "times are predicted: pipesat wrote this trace of a schedule"
    dumped = (
        event.get("cat") == "computation" and _cell(event) for event in events_of(content) or ()
    )
    if any(dumped):
        return "every op takes 1: this is torch's dump of a schedule, and nothing was measured"
    return ""


def _as_torch(content: Any) -> Any:
    """Return a trace of ours with torch's names for ops: their kinds are ours in ``cat``."""
    if not isinstance(content, dict) or "problem_sha256" not in (content.get("otherData") or {}):
        return content
    events = [
        event | {"name": str(event["name"]).replace(event["cat"], LETTER_OF[event["cat"]])}
        for event in events_of(content) or ()
        if event.get("cat") in LETTER_OF
    ]
    return {"traceEvents": events}


def is_ndtimeline(content: Any) -> bool:
    """Whether this is a Chrome trace of NDTimeline."""
    return any(str(event.get("name")) in _COMPUTE for event in events_of(content) or ())


def _cell(event: dict[str, Any]) -> Sequence[Action] | str:
    """The actions of a range; of torch's plain GPipe, its name; else nothing."""
    name = event.get("name")
    if event.get("ph") != "X" or not isinstance(name, str):
        return ""
    if name.startswith("PP:"):
        with suppress(ValueError):
            return parse_cell(name[3:]) or ""
    if (action := parse_action(name)) is not None:
        return [action]
    return name if _PLAIN.fullmatch(name) else ""


def read_torch(files: Sequence[FileValue], _told: TraceStatement) -> Trace:
    """Read torch's traces, of one rank or of all: ranks with the same stages are replicas."""
    ranks: dict[int, tuple[FileValue, list[TraceRow]]] = {}
    zero = min(_base(file) for file in files)
    host = False
    for file in files:
        info = file["distributedInfo"]
        if not isinstance(info.content, dict | None):
            raise info.wrong("expected an object")
        said = info["rank"].whole_if_any()
        found, ahead = _ran(file, _base(file) - zero)
        host |= ahead
        for own in found:
            rank = len(ranks) if said is None or len(found) > 1 else said
            if rank in ranks:
                raise BadInput(
                    f"rank {rank}, as is {ranks[rank][0].source}: are these traces of one job?",
                    source=file.source,
                    where="distributedInfo.rank",
                )
            ranks[rank] = file, own
    plain = any(row.stage is None for _, ran in ranks.values() for row in ran)
    held = {rank: tuple(sorted({r.stage or 0 for r in ran})) for rank, (_, ran) in ranks.items()}
    places = {stages: place for place, stages in enumerate(sorted({*held.values()}))}
    rows, alike = list[TraceRow](), Counter[tuple[int, ...]]()
    for place, (rank, (_, ran)) in enumerate(sorted(ranks.items())):
        at, replica = (place, 0) if plain else (places[held[rank]], alike[held[rank]])
        alike[held[rank]] += 1
        rows += [row._replace(rank=at, stage=row.stage or 0, replica=replica) for row in ran]
    first = files[0].source
    return Trace("torch profiler", first, rows, int(plain), not host, host_times=host)


def read_drawn(files: Sequence[FileValue], told: TraceStatement) -> Trace:
    """Read the order and the costs of a schedule that was written as a trace."""
    notes = tuple({drawn(file.content): None for file in files})
    trace = read_torch([FileValue(one.source, _as_torch(one.content)) for one in files], told)
    return Trace("schedule", trace.source, trace.rows, trace.chunks, ran=False, notes=notes)


def _base(file: FileValue) -> float:
    """Return what a trace's times count from, in us."""
    since = file["baseTimeNanoseconds"]
    return 0.0 if since.content is None else since.number() / 1000


_Place: TypeAlias = tuple[str, str]
"""Process and thread, or GPU and stream."""
_Range: TypeAlias = tuple[float, float, Sequence[Action] | str]
"""Start and end of a range, and what it says."""


def _ran(file: FileValue, late: float) -> tuple[list[list[TraceRow]], bool]:
    """Return the ops of each rank, later by so much, and whether a host ran ahead of its GPU.

    Those of the GPU, if there are any: the host's only say when it was asked. A rank is a process,
    on the host also a thread of one.
    """
    ranges: tuple[dict[_Place, list[_Range]], ...] = defaultdict(list), defaultdict(list)
    came: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    sent: dict[_Place, list[float]] = defaultdict(list)
    messages, ahead = set[_Place](), False
    for place, content in enumerate(events_of(file.content) or ()):
        name, event = content.get("name"), FileValue(file.source, content, f"traceEvents[{place}]")
        if content.get("ph") != "X" or not isinstance(name, str):
            continue
        at, on_gpu = (str(content.get("pid")), str(content.get("tid"))), content.get("cat") == _GPU
        ahead |= name.startswith("nccl:")
        if cell := _cell(content):
            ranges[on_gpu][at].append((*_times(event, late), cell))
        elif on_gpu and (said := _MESSAGE.fullmatch(name)):
            came[at[0], int(said[1]), said[2], int(said[3])].append(_times(event, late)[1])
        elif content.get("cat") == "kernel" and name.startswith("nccl"):
            messages.add(at)  # what a range of this stream holds is no op
        elif not on_gpu and _RECEIVE.fullmatch(name):
            came[at].append(_times(event, late)[1])
        elif not on_gpu and _SEND.fullmatch(name):
            sent[at].append(_times(event, late)[0])
    for ends in (*came.values(), *sent.values()):
        ends.sort()
    ranks: dict[_Place, list[TraceRow]] = defaultdict(list)
    for at, own in ranges[1].items():
        for start, end, cell in own if at not in messages else ():
            first = None if isinstance(cell, str) else cell[0]
            key = (at[0], first.stage, first.kind[0], first.microbatch) if first else ()
            ranks[at[0], ""] += _rows(start, end, cell, _last(came.get(key), start, end))
    for at, own in ranges[0].items() if not ranks else ():
        ranks[at] += _on_host(own, came.get(at), sent[at])
    order = sorted(ranks, key=lambda at: [[*map(int, _DIGITS.findall(one))] for one in at])
    return [ranks[at] for at in order], ahead and not ranges[1]


def _on_host(
    ranges: Sequence[_Range], received: Sequence[float] | None, sent: Sequence[float]
) -> Iterator[TraceRow]:
    """Yield the ops of a thread: from the end of the receive within, if any was recorded.

    GPipe's ranges also have the call that sends; others have ranges of their own for it.
    """
    for start, end, cell in ranges:
        alone = isinstance(cell, str) or len(cell) == 1
        came = _last(received, start, end) if alone else None
        place = bisect_left(sent, start if came is None else came)
        ends = sent[place : place + 1] if isinstance(cell, str) else ()
        yield from _rows(start, min([end, *ends]), cell, came)


def _last(ends: Sequence[float] | None, start: float, end: float) -> float | None:
    """Return when the last message came within a range, else its start; ``None``: not recorded."""
    if not ends:
        return None
    place = bisect_left(ends, end)
    return max(start, ends[place - 1]) if place else start


def _rows(
    start: float, end: float, cell: Sequence[Action] | str, came: float | None
) -> Iterator[TraceRow]:
    if isinstance(cell, str):
        word, microbatch = cell.split()
        kind: Kind = "F" if word == "Forward" else "BW"
        yield TraceRow(0, None, int(microbatch), kind, start, end, came=came)
    else:  # ranges of several ops are cut later
        yield from (TraceRow(0, a.stage, a.microbatch, a.kind, start, end, came=came) for a in cell)


def _times(event: FileValue, late: float = 0.0) -> tuple[float, float]:
    """Return start and end of a range, in us."""
    start = event["ts"].number() + late
    return start, start + event["dur"].number(0)


def read_ndtimeline(files: Sequence[FileValue], told: TraceStatement) -> Trace:
    """Read NDTimeline's traces: any number of files, all ranks of all replicas."""
    found: list[tuple[tuple[int, int], FileValue]] = []
    threads: dict[int, set[int]] = defaultdict(set)
    for file in files:
        for place, content in enumerate(events_of(file.content) or ()):
            event = FileValue(file.source, content, f"[{place}]")
            if str(content.get("name")) in _COMPUTE and content.get("ph") == "X":
                pid, tid = event["pid"].whole(), event["tid"].whole()
                threads[pid].add(tid)
                found.append(((pid, tid), event))
    alone = len(threads) > 1 and all(len(own) == 1 for own in threads.values())
    at: dict[tuple[int, int], tuple[int, int]] = {}
    for replica, (pid, own) in enumerate(sorted(threads.items())):
        for place, tid in enumerate(sorted(own)):
            at[pid, tid] = (replica, 0) if alone else (place, replica)
    rows = []
    for (rank, replica), event in ((at[key], event) for key, event in found):
        step, chunk, microbatch = (
            event["args"][key].whole_if_any() for key in ("step", "model_chunk", "mb_id")
        )
        chunk = 0 if chunk is None and microbatch is not None else chunk
        kind = _COMPUTE[event["name"].content]
        rows.append(TraceRow(rank, chunk, microbatch, kind, *_times(event), step, replica))
    return Trace("NDTimeline", files[0].source, rows, max(chunks_in(rows), told.chunks or 1))
