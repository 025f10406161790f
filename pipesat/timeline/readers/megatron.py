"""Megatron's own records: Primus' dump_pp_data, the VPP simulator's task times, timer logs, spans.

Primus (AMD-AGI/Primus, ``pp_visualizer.py``) writes ``config.json`` and ``pp_rank_{r}.json``: per
iteration lists ``fwd_start``, ``fwd_end``, ``bwd_*``, ``wgrad_*`` in ms, of schedules of its own
with ``*_minibatch`` and ``*_chunk``. The simulator (Megatron-LM #5104) writes
``task_durations.json``. Timers (``megatron/core/timers.py``) log how long each rank took in all.

OpenTelemetry spans come as the console's JSON, OTLP's JSON, or what Jaeger downloads. Names are of
Megatron-LM d98e8a64 (``megatron/core/pipeline_parallel/schedules.py``,
``megatron/training/training.py``). Spans have no microbatch: the k-th forward of a step is the k-th
of Megatron's order. A process is told by ``service.instance.id``, which ends in ``-rank{r}``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import product, zip_longest
from typing import Any, Final, NamedTuple

from pipesat.core.errors import BadInput
from pipesat.core.ops import Kind
from pipesat.timeline.readers.rows import Row, Told, Trace, Value, chunks_in

_SERIES: Final[dict[str, Kind]] = {"fwd": "F", "bwd": "BW", "wgrad": "W"}
_TASK: Final = re.compile(r"pp_\d+-mbs_\d+-model_chunk_\d+-task_type_\w+")
_TIMER: Final = re.compile(r"^\s*(forward|backward)-compute:((?:\s+rank +\d+: [\d.]+)+)", re.M)
_RANK: Final = re.compile(r"rank +(\d+): ([\d.]+)")
_ARGUMENT: Final = re.compile(r"^\W*(?:\w+:\s*)*(\w+) \.+ (\d+)\s*$", re.M)


def _is_config(content: Any) -> bool:
    return isinstance(content, dict) and "pp_size" in content


def _is_rank(content: Any) -> bool:
    return isinstance(content, dict) and any(
        isinstance(value, dict) and "fwd_start" in value for value in content.values()
    )


def is_primus(content: Any) -> bool:
    """Whether this is a file of Primus' dump_pp_data."""
    return _is_config(content) or _is_rank(content)


def read_primus(files: Sequence[Value], told: Told) -> Trace:
    """Read a folder of dump_pp_data: ``config.json`` and one file per pipeline rank."""
    configs = [file for file in files if _is_config(file.content)]
    if len(configs) > 1:
        text = f"a second configuration, beside {configs[0].source}: are these files of one job?"
        raise BadInput(text, source=configs[1].source)
    ranks: dict[int, Value] = {}
    for place, file in enumerate(file for file in files if _is_rank(file.content)):
        said = re.search(r"pp_rank_(\d+)", file.source.rpartition("/")[2])
        rank = int(said[1]) if said else place
        if rank in ranks:
            text = f"rank {rank} again, beside {ranks[rank].source}: are these files of one job?"
            raise BadInput(text, source=file.source)
        ranks[rank] = file
    config = (configs or [*ranks.values()])[0]
    size = config["pp_size"].whole_if_any() or len(ranks)
    if sorted(ranks) != [*range(size)]:
        text = f"expected pp_rank_0.json and so on, one for each of {size} ranks"
        raise BadInput(text, source=config.source, where="ranks", value=sorted(ranks))
    rows = [row for rank, file in ranks.items() for row in _primus_rows(rank, file)]
    stated = [config[key].whole_if_any() for key in ("vp_size", "vpp_size")]
    chunks = next(filter(None, (told.chunks, *stated)), 1)
    return Trace("Primus dump_pp_data", config.source, rows, max(chunks, chunks_in(rows)))


def _primus_rows(rank: int, file: Value) -> Iterator[Row]:
    for key in file.content:
        if not key.isdecimal() or not isinstance(file.content[key], dict):
            raise BadInput("expected an iteration", source=file.source, where=key)
        for series, kind in _SERIES.items():
            starts, ends, chunks, microbatches = (
                file[key][f"{series}_{part}"] for part in ("start", "end", "chunk", "minibatch")
            )
            if len(starts.content or ()) != len(ends.content or ()):
                raise BadInput(
                    "expected as many ends as starts", source=file.source, where=ends.where
                )
            for start, end, *marks in zip_longest(starts, ends, chunks, microbatches):
                chunk, microbatch = (
                    None if mark is None else mark.whole_if_any() for mark in marks
                )
                times = 1000 * start.number(), 1000 * end.number()
                yield Row(rank, chunk, microbatch, kind, *times, int(key))


def is_tasks(content: Any) -> bool:
    """Whether these are task times of Megatron's VPP simulator."""
    return isinstance(content, dict) and any(_TASK.fullmatch(str(key)) for key in content)


def read_tasks(files: Sequence[Value], _told: Told) -> Trace:
    """Read ``task_durations.json``: how long every op takes, without when."""
    rows = []
    named = [file for file in files if "task_durations" in file.source]  # not what follows it
    for task in (file[key] for file in named or files for key in file.content):
        rank, chunk, microbatch = (
            task[part].whole() for part in ("pp_rank", "model_chunk_id", "microbatch_id")
        )
        kind: Kind = "F" if task["task_type"].content == "forward" else "BW"
        rows.append(
            Row(rank, chunk, microbatch, kind, 0.0, 1000 * task["duration_ms"].number(0), 0)
        )
    name = "Megatron VPP simulator"
    return Trace(name, files[0].source, rows, chunks_in(rows), timed=False)


def is_timers(content: Any) -> bool:
    """Whether this is a log with Megatron's timers."""
    return isinstance(content, str) and "time" in content and "across ranks (ms):" in content


def read_timers(files: Sequence[Value], told: Told) -> Trace:
    """Read the totals of a log: an op's time is its rank's total over the number of such ops.

    The first block, of the first steps, is left out if there are others.
    """
    log = files[0]
    stated = {name: int(value) for name, value in _ARGUMENT.findall(log.content)}
    totals: dict[tuple[str, int], list[float]] = defaultdict(list)
    for name, block in _TIMER.findall(log.content):
        for rank, value in _RANK.findall(block):
            totals[name, int(rank)].append(float(value))
    if not totals:
        text = (
            "its timers do not say what each rank took: run with --timing-log-level 2 "
            "--timing-log-option all"
        )
        raise BadInput(text, source=log.source)
    world = len({rank for _, rank in totals})
    size = min(stated.get("pipeline_model_parallel_size", world), world)
    together = stated.get("micro_batch_size", 0) * stated.get("data_parallel_size", 0)
    microbatches = told.microbatches or stated.get("global_batch_size", 0) // max(together, 1)
    if not microbatches:
        text = "the log does not say how many microbatches a step has: give `microbatches`"
        raise BadInput(text, source=log.source)
    chunks = told.chunks or 1
    seen: dict[tuple[int, Kind], list[float]] = defaultdict(list)
    for (name, rank), values in totals.items():
        seen[rank * size // world, "F" if name == "forward" else "BW"] += values[1:] or values
    rows = []
    for (rank, kind), own in seen.items():
        each = 1000 * sorted(own)[len(own) // 2] / (microbatches * chunks)
        ops = product(range(chunks), range(microbatches))
        rows += [Row(rank, *op, kind, 0.0, each, 0) for op in ops]
    notes = ["averages only: a rank's total over its microbatches, with synchronised timers"]
    return Trace("Megatron timers", log.source, rows, chunks, timed=False, notes=notes)


_STEP: Final = "megatron.train.iteration.forward_backward"
_KINDS: Final[dict[str, Kind]] = {
    "megatron.microbatch.forward": "F",
    "megatron.microbatch.backward": "BW",
}
_INSTANCE: Final = re.compile(r".*-rank(\d+)")


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


def read_spans(files: Sequence[Value], told: Told) -> Trace:
    """Read all spans; those of one pipeline rank in tensor and data groups are replicas."""
    found: dict[int, list[_Span]] = defaultdict(list)
    size = 0
    for span in (span for file in files for span in _spans(file)):
        said = _INSTANCE.fullmatch(str(span.process.get("service.instance.id")))
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
    return Trace("Megatron OpenTelemetry", files[0].source, rows, chunks, host_times=True)


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


def _spans(file: Value) -> Iterator[_Span]:
    content = file.content
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
                process = {tag["key"]: tag["value"] for tag in tags}
                own = Value(file.source, span)
                start = own["startTime"].number()
                yield _Span(
                    span["operationName"], start, start + own["duration"].number(0), process
                )
        if "start_time" in one:
            start, end = (
                1e6 * datetime.fromisoformat(one[key]).timestamp()
                for key in ("start_time", "end_time")
            )
            yield _Span(one["name"], start, end, (one.get("resource") or {}).get("attributes", {}))
