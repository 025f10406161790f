"""Parts from a trace of torch's profiler: annotated ranges of a GPU's kernels.

A kernel belongs to the annotation in which it was launched: the launch has the kernel's correlation
number, and the innermost annotation of the launching thread around it that the mapping names is the
one. What a kernel takes includes its waiting for other devices, and for other kernels of the GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, Field

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput
from pipesat.files.complaint import Says, validated_at
from pipesat.files.strict_json import read_json
from pipesat.parts.file import FORMAT, PartsMap, parse_parts, read_mapping
from pipesat.parts.parts import PART_KINDS, PartKind, Parts

LARGEST_TRACE: Final = 1 << 30
_MOST_US: Final = 1e12
# tuples, not sets: in a trace anything may stand there, lists too
_ON_GPU: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCH: Final = ("cuda_runtime", "cuda_driver")
_ANNOTATION: Final = "user_annotation"


@dataclass(frozen=True, repr=False)
class PartsOfTrace:
    """Parts, the text of the file that says them, and what the reader should know of it."""

    parts: Parts
    text: str
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        chunk = self.parts.chunks[0]
        counts = [f"{len(chunk.of_kind(kind))} of {kind}" for kind in PART_KINDS]
        return "\n".join([f"<PartsOfTrace {chunk.name!r}: {', '.join(counts)}>", *self.notes])


class _Event(BaseModel):
    """One event that counts; the rest of a trace may be anything."""

    name: Annotated[str, Field(strict=True)]
    ts: Annotated[
        float,
        Field(strict=True, allow_inf_nan=False, ge=-1e16, le=1e16),
        Says("a number of microseconds"),
    ]
    dur: Annotated[
        float,
        Field(strict=True, allow_inf_nan=False, ge=0, le=_MOST_US),
        Says("a number of microseconds from 0 to 10^12"),
    ] = 0.0
    pid: int | str = 0
    tid: int | str = 0
    args: dict[str, Any] = {}


class _Kernel(NamedTuple):
    annotation: str | None
    instance: int
    stream: int
    start: float
    end: float


@public
def parts_of_trace(path: str | Path, mapping: PartsMap | str | Path) -> PartsOfTrace:
    """Return the parts that a trace of torch's profiler gives.

    A part's time is its kernels' in the whole trace, divided by the trace's layers, in
    microseconds, rounded.

    Parameters
    ----------
    path
        The trace, ``.json`` or ``.json.gz``.
    mapping
        Which annotations of the trace are which parts: the path of a mapping file.

    Raises
    ------
    BadInput
        If the trace is none, or has no kernels of a part, or the parts are no parts file.
    """
    source, path = str(path), Path(path)
    mapping = mapping if isinstance(mapping, PartsMap) else read_mapping(mapping)
    named = [rule.annotation for rule in mapping.parts if rule.annotation is not None]
    kernels, unlaunched = _kernels(path, named)
    for number, rule in enumerate(mapping.parts):
        if not any(kernel.annotation == rule.annotation for kernel in kernels):
            raise BadInput(
                f"no kernel was launched in it, see parts[{number}] of the mapping",
                source=source,
                where="traceEvents",
                value=rule.annotation,
            )
    numbers = _stream_numbers(mapping, kernels, source)
    layers = mapping.layers or mapping.repeat
    rows: dict[PartKind, list[dict[str, Any]]] = {kind: [] for kind in PART_KINDS}
    for rule in mapping.parts:
        own = [k for k in kernels if k.annotation == rule.annotation]
        own = [k for k in own if k.stream in numbers[rule.stream]]
        time = int(_time(own, rule.time) / layers + 0.5)
        after = {"after": rule.after} if rule.kind == "W" else {}
        rows[rule.kind].append({"name": rule.name, "stream": rule.stream, "time": time} | after)
    chunk = {"name": mapping.chunk, "repeat": mapping.repeat} | rows
    document: dict[str, Any] = {
        "format": FORMAT,
        "time_unit": "us",
        "streams": list(mapping.streams),
        "chunks": [chunk],
        "stages": [mapping.chunk] if mapping.stages is None else mapping.stages,
    }
    if mapping.devices is not None:
        document["devices"] = mapping.devices
    parts = parse_parts(document, f"{source}: made into parts")
    notes = tuple(_notes(mapping, kernels, numbers, unlaunched))
    return PartsOfTrace(parts, _text(document), notes)


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def _kernels(path: Path, named: Sequence[str]) -> tuple[list[_Kernel], int]:
    """Read the kernels with their annotations; and how many have no launch in the trace."""
    source = str(path)
    document = read_json(path, LARGEST_TRACE, lenient=True)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise BadInput("expected a list of events", source=source, where="traceEvents")
    launches: dict[int, _Event] = {}
    running: list[tuple[int, _Event]] = []
    threads: dict[tuple[int | str, int | str], list[_Event]] = {}
    for number, event in enumerate(events):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        category, where = event.get("cat"), ("traceEvents", number)
        if category == _ANNOTATION and event.get("name") in named:
            found = validated_at(event, _Event, where, source)
            threads.setdefault((found.pid, found.tid), []).append(found)
        elif category in _ON_GPU or category in _LAUNCH:
            found = validated_at(event, _Event, where, source)
            if category in _ON_GPU:
                running.append((number, found))
            elif isinstance(correlation := found.args.get("correlation"), int):
                launches[correlation] = found
    kernels = []
    for number, event in running:
        correlation, stream = event.args.get("correlation"), event.args.get("stream")
        if not isinstance(stream, int):
            raise BadInput(
                "expected the number of a stream",
                source=source,
                where=f"traceEvents[{number}].args.stream",
                value=stream,
            )
        if isinstance(correlation, int) and correlation in launches:
            launch = launches[correlation]
            around = _innermost(threads.get((launch.pid, launch.tid), ()), launch.ts)
            name, at = (None, -1) if around is None else around
            kernels.append(_Kernel(name, at, stream, event.ts, event.ts + event.dur))
    return kernels, len(running) - len(kernels)


def _innermost(annotations: Sequence[_Event], time: float) -> tuple[str, int] | None:
    """Name and number of the shortest annotation of a thread around an instant."""
    around = [(a.dur, n) for n, a in enumerate(annotations) if a.ts <= time <= a.ts + a.dur]
    if not around:
        return None
    _, number = min(around)
    return annotations[number].name, number


def _stream_numbers(
    mapping: PartsMap, kernels: Sequence[_Kernel], source: str
) -> dict[str, set[int]]:
    """The trace's numbers of every stream: those given, or where its parts are busiest."""
    numbers: dict[str, set[int]] = {}
    for name, given in mapping.streams.items():
        numbers[name] = {*given}
        for rule in mapping.parts if not given else ():
            if rule.stream == name:
                own = [k for k in kernels if k.annotation == rule.annotation]
                streams = {k.stream for k in own}
                numbers[name].add(
                    max(streams, key=lambda s: _busy([k for k in own if k.stream == s]))
                )
    for name, own_numbers in numbers.items():
        for other, theirs in numbers.items():
            if name < other and own_numbers & theirs:
                raise BadInput(
                    f"stream {min(own_numbers & theirs)} of the trace would be both {name} and "
                    f"{other}: give the mapping's streams their numbers",
                    source=source,
                    where="traceEvents",
                )
    return numbers


def _time(kernels: Sequence[_Kernel], how: Literal["busy", "wall"]) -> float:
    if how == "busy":
        return _busy(kernels)
    instances: dict[int, list[_Kernel]] = {}
    for kernel in kernels:
        instances.setdefault(kernel.instance, []).append(kernel)
    return sum(max(k.end for k in some) - min(k.start for k in some) for some in instances.values())


def _busy(kernels: Iterable[_Kernel]) -> float:
    """Time in which at least one of the kernels runs."""
    total, until = 0.0, float("-inf")
    for kernel in sorted(kernels, key=lambda k: k.start):
        total += max(0.0, kernel.end - max(until, kernel.start))
        until = max(until, kernel.end)
    return total


def _notes(
    mapping: PartsMap, kernels: Sequence[_Kernel], numbers: Mapping[str, set[int]], unlaunched: int
) -> Iterator[str]:
    """Yield what the trace has and the parts have not."""
    taken = {(r.annotation, n) for r in mapping.parts for n in numbers[r.stream]}
    left: dict[tuple[str | None, int], list[_Kernel]] = {}
    for kernel in kernels:
        if (kernel.annotation, kernel.stream) not in taken:
            left.setdefault((kernel.annotation, kernel.stream), []).append(kernel)
    for (annotation, stream), some in left.items():
        name = "no annotation of the mapping" if annotation is None else annotation
        yield f"left out: {_busy(some):,.0f} us of {name} on stream {stream}"
    if unlaunched:
        yield f"left out: {unlaunched} kernels whose launch is not in the trace"
    if any(rule.time == "wall" for rule in mapping.parts):
        yield "wall times include gaps between kernels: a calibration, not what the kernels take"
