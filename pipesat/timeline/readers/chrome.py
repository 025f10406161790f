"""Chrome traces: torch's profiler (also d9d's ranges), and ByteDance's and veScale's NDTimeline.

torch's runtime names its ranges ``PP:0F0``, d9d ``0F0``; torch's plain GPipe has ``Forward 0`` and
``Backward 0``. One file has one rank. NDTimeline has all ranks: ``forward-compute`` and so on, the
replica as ``pid``, a rank's stream as ``tid``, and ``step``, ``model_chunk``, ``mb_id`` as
arguments (ByteDance-Seed/StragglerAnalysis, ``analyzer/to_timeline.py``). veScale's own have ``pp``
and ``tp`` instead of the latter two (``ndtimeline/handlers/local_timeline_handler.py``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from pipesat.core.errors import BadInput
from pipesat.core.ops import Kind
from pipesat.export.torch.lint import Action, parse_action, parse_cell
from pipesat.timeline.readers.rows import Row, Told, Trace, Value, chunks_in

_PLAIN: Final = re.compile(r"(Forward|Backward) ([0-9]{1,7})")
_COMPUTE: Final[dict[str, Kind]] = {
    "forward-compute": "F",
    "backward-compute": "BW",
    "backward-wgrad-compute": "W",
}
_THREAD: Final = re.compile(r"PP rank ([0-9]{1,7}), TP rank ([0-9]{1,7})\b.*")


def events_of(content: Any) -> list[dict[str, Any]] | None:
    """Return the events of a Chrome trace; ``None`` if it is none."""
    found = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(found, list) or not any(isinstance(e, dict) and "ph" in e for e in found):
        return None
    return [event for event in found if isinstance(event, dict)]


def is_torch(content: Any) -> bool:
    """Whether this is a trace with ranges of a pipeline runtime of torch."""
    return any(_cell(event) for event in events_of(content) or ())


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
    actions = [parse_action(part) for part in name.split("|")]
    plain = name if _PLAIN.fullmatch(name) else ""
    return plain if None in actions else [one for one in actions if one is not None]


def read_torch(files: Sequence[Value], _told: Told) -> Trace:
    """Read torch's traces, one per rank: those with the same stages are replicas."""
    ranks: dict[int, tuple[Value, list[Row]]] = {}
    zero = min(_base(file) for file in files)
    for place, file in enumerate(files):
        info = file["distributedInfo"]
        if not isinstance(info.content, dict | None):
            raise info.wrong("expected an object")
        said = info["rank"].whole_if_any()
        rank = place if said is None else said
        if rank in ranks:
            text = f"rank {rank}, as is {ranks[rank][0].source}: are these traces of one job?"
            raise BadInput(text, source=file.source, where="distributedInfo.rank")
        ranks[rank] = file, [*_ran(file, _base(file) - zero)]
    plain = any(row.stage is None for _, ran in ranks.values() for row in ran)
    held = {rank: tuple(sorted({r.stage or 0 for r in ran})) for rank, (_, ran) in ranks.items()}
    places = {stages: place for place, stages in enumerate(sorted({*held.values()}))}
    rows, alike = list[Row](), Counter[tuple[int, ...]]()
    for place, (rank, (_, ran)) in enumerate(sorted(ranks.items())):
        at, replica = (place, 0) if plain else (places[held[rank]], alike[held[rank]])
        alike[held[rank]] += 1
        rows += [row._replace(rank=at, stage=row.stage or 0, replica=replica) for row in ran]
    return Trace("torch profiler", files[0].source, rows, int(plain), waits_inside=True)


def _base(file: Value) -> float:
    """Return what a trace's times count from, in us."""
    since = file["baseTimeNanoseconds"]
    return 0.0 if since.content is None else since.number() / 1000


def _ran(file: Value, late: float) -> Iterator[Row]:
    """Yield the ops of a rank, later by so much; of torch's plain GPipe without stage.

    Those of the GPU, if there are any: the host's only say when it was asked.
    """
    found = [(n, event) for n, event in enumerate(events_of(file.content) or ()) if _cell(event)]
    on_gpu = [one for one in found if one[1].get("cat") == "gpu_user_annotation"]
    for place, event in on_gpu or found:
        cell = _cell(event)
        start, end = _times(Value(file.source, event, f"traceEvents[{place}]"))
        times = start + late, end + late
        if isinstance(cell, str):
            word, microbatch = cell.split()
            yield Row(0, None, int(microbatch), "F" if word == "Forward" else "BW", *times)
        else:  # ranges of several ops are cut later
            yield from (Row(0, a.stage, a.microbatch, a.kind, *times) for a in cell)


def _times(event: Value) -> tuple[float, float]:
    """Return start and end of a range, in us."""
    start = event["ts"].number()
    return start, start + event["dur"].number(0)


def read_ndtimeline(files: Sequence[Value], told: Told) -> Trace:
    """Read NDTimeline's traces: any number of files, all ranks of all replicas."""
    found: list[tuple[tuple[int, int], Value]] = []
    said: dict[tuple[Any, Any], tuple[int, int]] = {}
    threads: dict[int, set[int]] = defaultdict(set)
    for file in files:
        for place, content in enumerate(events_of(file.content) or ()):
            event = Value(file.source, content, f"[{place}]")
            args = event["args"]
            if str(content.get("name")) in _COMPUTE and content.get("ph") == "X":
                pid, tid = event["pid"].whole(), event["tid"].whole()
                threads[pid].add(tid)
                found.append(((pid, tid), event))
                if (pp := args["pp"].whole_if_any()) is not None:
                    said[pid, tid] = pp, args["tp"].content or 0
            elif name := _THREAD.fullmatch(str(args["name"].content)):
                said[content.get("pid"), content.get("tid")] = int(name[1]), int(name[2])
    alone = len(threads) > 1 and all(len(own) == 1 for own in threads.values())
    at: dict[tuple[int, int], tuple[int, int]] = {}
    for replica, (pid, own) in enumerate(sorted(threads.items())):
        for place, tid in enumerate(sorted(own)):
            rank, tensor = said.get((pid, tid), (place, 0))
            if tensor == 0:  # ranks of one tensor group run the same ops
                at[pid, tid] = (replica, 0) if alone else (rank, replica)
    rows = []
    for (rank, replica), event in ((at[key], event) for key, event in found if key in at):
        step, chunk, microbatch = (
            event["args"][key].whole_if_any() for key in ("step", "model_chunk", "mb_id")
        )
        chunk = 0 if chunk is None and microbatch is not None else chunk
        kind = _COMPUTE[event["name"].content]
        rows.append(Row(rank, chunk, microbatch, kind, *_times(event), step, replica))
    return Trace("NDTimeline", files[0].source, rows, max(chunks_in(rows), told.chunks or 1))
