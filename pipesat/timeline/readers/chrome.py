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
from pipesat.timeline.readers.rows import Document, Row, Told, Trace, number, whole

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


def read_torch(documents: Sequence[Document], _told: Told) -> Trace:
    """Read torch's traces, one per rank: those with the same stages are replicas."""
    ranks: dict[int, tuple[Document, float, list[Row]]] = {}
    for place, document in enumerate(documents):
        said, base = rank_of(document)
        rank = place if said is None else said
        if rank in ranks:
            text = f"rank {rank}, as is {ranks[rank][0].source}: are these traces of one job?"
            raise BadInput(text, source=document.source, where="distributedInfo.rank")
        ranks[rank] = (document, base, [*_ran(document)])
    zero = min(base for _, base, _ in ranks.values())
    plain = any(one.stage is None for _, _, ran in ranks.values() for one in ran)
    held = {rank: tuple(sorted({r.stage or 0 for r in ran})) for rank, (*_, ran) in ranks.items()}
    places = {stages: place for place, stages in enumerate(sorted({*held.values()}))}
    rows, alike = [], Counter[tuple[int, ...]]()
    for place, (rank, (_, base, ran)) in enumerate(sorted(ranks.items())):
        at, replica = (place, 0) if plain else (places[held[rank]], alike[held[rank]])
        alike[held[rank]] += 1
        for row in ran:
            start, end = row.start + base - zero, row.end + base - zero
            rows.append(
                Row(at, row.stage or 0, row.microbatch, row.kind, start, end, None, replica)
            )
    return Trace("torch profiler", documents[0].source, rows, int(plain), waits_inside=True)


def rank_of(document: Document) -> tuple[int | None, float]:
    """Return a trace's rank, if it says it, and what its times count from, in us."""
    own = document.content if isinstance(document.content, dict) else {}
    info = own.get("distributedInfo")
    if info is not None and not isinstance(info, dict):
        text = "expected an object"
        raise BadInput(text, source=document.source, where="distributedInfo", value=info)
    rank = (info or {}).get("rank")
    since = own.get("baseTimeNanoseconds", 0)
    base = number(document, "baseTimeNanoseconds", since) / 1000
    if not isinstance(since, int):
        text = "expected a whole number"
        raise BadInput(text, source=document.source, where="baseTimeNanoseconds", value=since)
    return None if rank is None else whole(document, "distributedInfo.rank", rank), base


def on_gpu(found: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    """Return the GPU's ranges, if there are any: the host's only say when it was asked."""
    return [one for one in found if one[1].get("cat") == "gpu_user_annotation"] or found


def _ran(document: Document) -> Iterator[Row]:
    """Yield the ops of a rank; of torch's plain GPipe without stage."""
    found = [
        (n, event) for n, event in enumerate(events_of(document.content) or ()) if _cell(event)
    ]
    for place, event in on_gpu(found):
        cell, times = _cell(event), times_of(document, event, f"traceEvents[{place}]")
        if isinstance(cell, str):
            word, microbatch = cell.split()
            yield Row(0, None, int(microbatch), "F" if word == "Forward" else "BW", *times)
        else:  # ranges of several ops are cut later
            yield from (Row(0, a.stage, a.microbatch, a.kind, *times) for a in cell)


def times_of(document: Document, event: dict[str, Any], where: str) -> tuple[float, float]:
    """Return start and end of a range, in us."""
    for key in ("ts", "dur"):
        if key not in event:
            text = "this key is required and missing"
            raise BadInput(text, source=document.source, where=f"{where}.{key}")
    start = number(document, f"{where}.ts", event.get("ts"))
    return start, start + number(document, f"{where}.dur", event.get("dur"), 0)


def read_ndtimeline(documents: Sequence[Document], told: Told) -> Trace:
    """Read NDTimeline's traces: any number of files, all ranks of all replicas."""
    found: list[tuple[Document, str, dict[str, Any]]] = []
    said: dict[tuple[Any, Any], tuple[int, int]] = {}
    threads: dict[int, set[int]] = defaultdict(set)
    for document in documents:
        for place, event in enumerate(events_of(document.content) or ()):
            args = event.get("args") if isinstance(event.get("args"), dict) else {}
            if str(event.get("name")) in _COMPUTE and event.get("ph") == "X":
                pid, tid = (whole(document, f"[{place}].{k}", event.get(k)) for k in ("pid", "tid"))
                threads[pid].add(tid)
                found.append((document, f"[{place}]", event | {"args": args or {}}))
                if args and "pp" in args:
                    pp = whole(document, f"[{place}].args.pp", args["pp"])
                    said[pid, tid] = (pp, args.get("tp") or 0)
            elif name := _THREAD.fullmatch(str((args or {}).get("name"))):
                said[event.get("pid"), event.get("tid")] = (int(name[1]), int(name[2]))
    alone = len(threads) > 1 and all(len(own) == 1 for own in threads.values())
    at: dict[tuple[int, int], tuple[int, int]] = {}
    for replica, (pid, own) in enumerate(sorted(threads.items())):
        for place, tid in enumerate(sorted(own)):
            rank, tensor = said.get((pid, tid), (place, 0))
            if tensor == 0:  # ranks of one tensor group run the same ops
                at[pid, tid] = (replica, 0) if alone else (rank, replica)
    rows = []
    for document, where, event in found:
        if (key := (event["pid"], event["tid"])) in at:
            rank, replica = at[key]
            step, chunk, microbatch = (
                None if (one := event["args"].get(k)) is None else whole(document, where, one)
                for k in ("step", "model_chunk", "mb_id")
            )
            kind, times = _COMPUTE[event["name"]], times_of(document, event, where)
            chunk = 0 if chunk is None and microbatch is not None else chunk
            rows.append(Row(rank, chunk, microbatch, kind, *times, step, replica))
    chunks = max((row.stage or 0 for row in rows), default=0) + 1
    return Trace("NDTimeline", documents[0].source, rows, max(chunks, told.chunks or 1))
