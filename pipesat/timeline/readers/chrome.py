"""Chrome traces: torch's profiler (also d9d's ranges), and ByteDance's and veScale's NDTimeline.

torch's runtime names its ranges ``PP:0F0``, d9d ``0F0``; torch's plain GPipe has ``Forward 0`` and
``Backward 0``. One file has one rank. NDTimeline has all ranks: ``forward-compute`` and so on, the
replica as ``pid``, a rank's stream as ``tid``, and ``step``, ``model_chunk``, ``mb_id`` as
arguments (ByteDance-Seed/StragglerAnalysis, ``analyzer/to_timeline.py``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pipesat.core.errors import BadInput
from pipesat.core.ops import Kind
from pipesat.export.torch.tokens import Action, parse_action, parse_cell
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
    return any(event.get("name") in _COMPUTE for event in events_of(content) or ())


def _cell(event: dict[str, Any]) -> list[Action] | str:
    """The actions of a range; of torch's plain GPipe, its name."""
    name = event.get("name")
    if event.get("ph") != "X" or not isinstance(name, str):
        return ""
    if name.startswith("PP:"):
        try:
            return [*(parse_cell(name[3:]) or ())]
        except ValueError:
            return ""
    if _PLAIN.fullmatch(name):
        return name
    actions = [parse_action(part) for part in name.split("|")]
    return [a for a in actions if a is not None] if None not in actions else ""


def read_torch(documents: Sequence[Document], _told: Told) -> Trace:
    """Read torch's traces, one per rank: those with the same stages are replicas."""
    numbered: dict[int, str] = {}
    ranks = []
    for place, document in enumerate(documents):
        own = document.content if isinstance(document.content, dict) else {}
        info = own.get("distributedInfo")
        rank = info.get("rank") if isinstance(info, dict) else None
        if isinstance(rank, int) and rank in numbered:
            text = f"this is rank {rank}, as is {numbered[rank]}: are these traces of one job?"
            raise BadInput(text, source=document.source, where="distributedInfo.rank")
        if isinstance(rank, int):
            numbered[rank] = document.source
        base = number(document, "baseTimeNanoseconds", own.get("baseTimeNanoseconds", 0)) / 1000
        ranks.append((place if rank is None else rank, base, [*_ranges(document)]))
    ranks.sort(key=lambda one: one[0])
    zero = min(one[1] for one in ranks)
    plain = any(ran[0] is None for one in ranks for ran in one[2])
    alike: dict[tuple[int, ...], int] = defaultdict(int)
    held = [tuple(sorted({ran[0].stage for ran in one[2] if ran[0]})) for one in ranks]
    places = {stages: place for place, stages in enumerate(sorted({*held}))}
    rows = []
    for place, ((_, base, ranges), stages) in enumerate(zip(ranks, held, strict=True)):
        rank, replica = (place, 0) if plain else (places[stages], alike[stages])
        alike[stages] += 1
        for action, kind, microbatch, start, end in ranges:
            stage = 0 if action is None else action.stage
            by = base - zero
            rows.append(Row(rank, stage, microbatch, kind, start + by, end + by, None, replica))
    return Trace("torch profiler", documents[0].source, rows, chunks=int(plain), waits_inside=True)


def _ranges(
    document: Document,
) -> Iterator[tuple[Action | None, Kind, int, float, float]]:
    """Yield the ops of a rank; where the GPU has ranges, the host's only say when it was asked."""
    found = [(n, e, c) for n, e in enumerate(events_of(document.content) or ()) if (c := _cell(e))]
    gpu = [one for one in found if one[1].get("cat") == "gpu_user_annotation"]
    for place, event, cell in gpu or found:
        start = number(document, f"traceEvents[{place}].ts", event.get("ts"))
        end = start + number(document, f"traceEvents[{place}].dur", event.get("dur"), 0)
        if isinstance(cell, str):
            word, microbatch = cell.split()
            yield None, "F" if word == "Forward" else "BW", int(microbatch), start, end
        else:
            for action in cell:  # ranges of several ops are cut later
                yield action, action.kind, action.microbatch, start, end


def read_ndtimeline(documents: Sequence[Document], _told: Told) -> Trace:
    """Read NDTimeline's traces: any number of files, all ranks of all replicas."""
    found: list[tuple[Document, int, dict[str, Any]]] = []
    names: dict[tuple[Any, Any], tuple[int, int]] = {}
    for document in documents:
        for place, event in enumerate(events_of(document.content) or ()):
            args = event.get("args") if isinstance(event.get("args"), dict) else {}
            thread = event.get("pid"), event.get("tid")
            if event.get("name") in _COMPUTE and event.get("ph") == "X":
                found.append((document, place, event | {"args": args}))
            elif event.get("name") == "thread_name":
                said = _THREAD.fullmatch(str((args or {}).get("name")))
                if said:
                    names[thread] = (int(said[1]), int(said[2]))
    threads: dict[Any, set[Any]] = defaultdict(set)
    for document, place, event in found:
        for key in ("pid", "tid"):
            whole(document, f"[{place}].{key}", event.get(key))
        threads[event["pid"]].add(event["tid"])
    alone = len(threads) > 1 and all(len(own) == 1 for own in threads.values())
    where: dict[tuple[Any, Any], tuple[int, int]] = {}
    for replica, (pid, own) in enumerate(sorted(threads.items())):
        for rank, tid in enumerate(sorted(own)):
            pp, tp = names.get((pid, tid), (rank, 0))
            if tp == 0:  # ranks of one tensor group run the same ops
                where[pid, tid] = (replica, 0) if alone else (pp, replica)
    rows = []
    for document, place, event in found:
        if (event["pid"], event["tid"]) not in where:
            continue
        rank, replica = where[event["pid"], event["tid"]]
        args = event["args"]
        known = {
            key: None if args.get(key) is None else whole(document, f"[{place}].args.{key}", value)
            for key, value in ((k, args.get(k)) for k in ("step", "model_chunk", "mb_id"))
        }
        start = number(document, f"[{place}].ts", event.get("ts"))
        end = start + number(document, f"[{place}].dur", event.get("dur"), 0)
        chunk, microbatch = known["model_chunk"], known["mb_id"]
        chunk = 0 if chunk is None and microbatch is not None else chunk
        kind = _COMPUTE[event["name"]]
        rows.append(Row(rank, chunk, microbatch, kind, start, end, known["step"], replica))
    chunks = max((row.stage or 0 for row in rows), default=0) + 1
    return Trace("NDTimeline", documents[0].source, rows, chunks=chunks)
