"""Megatron's OpenTelemetry spans: the console's JSON, OTLP's JSON, or what Jaeger downloads.

Names are of Megatron-LM d98e8a64 (``megatron/core/pipeline_parallel/schedules.py``,
``megatron/training/training.py``). Spans have no microbatch: the k-th forward of a step is the k-th
of Megatron's order. A process is told by ``service.instance.id``, which ends in ``-rank{r}``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from pipesat.core.ops import Kind
from pipesat.timeline.readers.rows import Document, Row, Told, Trace, number

_STEP: Final = "megatron.train.iteration.forward_backward"
_KINDS: Final[dict[str, Kind]] = {
    "megatron.microbatch.forward": "F",
    "megatron.microbatch.backward": "BW",
}
_RANK: Final = re.compile(r".*-rank(\d+)")


class _Span(NamedTuple):
    """Name, start and end in us, and attributes of its process."""

    name: str
    start: float
    end: float
    process: Mapping[str, Any]


def is_spans(content: Any) -> bool:
    """Whether this holds OpenTelemetry spans, of whatever program."""
    one = content[0] if isinstance(content, list) and content else content
    if not isinstance(one, dict):
        return False
    return "resourceSpans" in one or {"start_time", "context"} <= one.keys() or _jaeger(one) != []


def _jaeger(one: Mapping[str, Any]) -> list[Any]:
    data = one.get("data")
    traces = data if isinstance(data, list) else []
    return [trace for trace in traces if isinstance(trace, dict) and "spans" in trace]


def read_spans(documents: Sequence[Document], told: Told) -> Trace:
    """Read all spans; those of one pipeline rank in tensor and data groups are replicas."""
    found: dict[int, list[_Span]] = defaultdict(list)
    size = 0
    for document in documents:
        for span in _spans(document):
            said = _RANK.fullmatch(str(span.process.get("service.instance.id")))
            rank = said[1] if said else span.process.get("dl.rank")
            if rank is not None and (span.name in _KINDS or span.name == _STEP):
                found[int(rank)].append(span)
                size = int(span.process.get("dl.pipeline_parallel.size") or size)
    world = max(found, default=-1) + 1
    group = max(1, world // (size or world or 1))
    chunks = told.chunks or 1
    flown = max((_flown(spans) for spans in found.values()), default=0)
    count = told.microbatches * chunks if told.microbatches else flown
    rows = [row for rank, spans in found.items() for row in _rows(rank, spans, group, count)]
    name = "Megatron OpenTelemetry"
    return Trace(name, documents[0].source, rows, chunks, host_times=True)


def _flown(spans: Sequence[_Span]) -> int:
    """Return how many forwards a rank starts until nothing is in flight: a step, on the first."""
    flying = flown = 0
    for span in sorted(spans, key=lambda span: span.start):
        forward = span.name in _KINDS and _KINDS[span.name] == "F"
        flown += forward
        flying += forward or -(span.name in _KINDS)
        if flown and flying <= 0:
            break
    return flown


def _rows(rank: int, spans: Sequence[_Span], group: int, count: int) -> Iterator[Row]:
    """Yield the ops of a rank; a group of ranks in a row is one pipeline rank.

    Without spans around steps, these have ``count`` forwards and as many backwards.
    """
    steps = sorted(span.start for span in spans if span.name == _STEP)
    seen = Counter[str]()
    for span in sorted(spans, key=lambda span: span.start):
        if span.name in _KINDS:
            step = bisect_right(steps, span.start) if steps else seen[span.name] // count
            seen[span.name] += 1
            times = (span.start, span.end)
            yield Row(rank // group, None, None, _KINDS[span.name], *times, step, rank % group)


def _spans(document: Document) -> Iterator[_Span]:
    content = document.content
    for one in content if isinstance(content, list) else [content]:
        for group in one.get("resourceSpans", ()):
            process = {
                entry["key"]: next(iter(entry["value"].values()), None)
                for entry in group["resource"]["attributes"]
            }
            for span in (span for scope in group["scopeSpans"] for span in scope["spans"]):
                start, end = (int(span[f"{part}TimeUnixNano"]) / 1000 for part in ("start", "end"))
                yield _Span(span["name"], start, end, process)
        for trace in _jaeger(one):
            for span in trace["spans"]:
                tags = trace["processes"][span["processID"]].get("tags", ())
                start = number(document, "startTime", span["startTime"])
                end = start + number(document, "duration", span["duration"], 0)
                process = {tag["key"]: tag["value"] for tag in tags}
                yield _Span(span["operationName"], start, end, process)
        if "start_time" in one:
            start, end = (_us(one[key]) for key in ("start_time", "end_time"))
            yield _Span(one["name"], start, end, (one.get("resource") or {}).get("attributes", {}))


def _us(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() * 1e6
