"""Parts from a trace of torch's profiler: annotated ranges of a GPU's kernels.

A kernel belongs to the annotation in which it was launched: the launch has the kernel's correlation
number, and the innermost annotation of the launching thread around it that the mapping names is the
one. What a kernel takes includes its waiting for other devices, and for other kernels of the GPU.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import BaseModel, Field

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput
from pipesat.files.complaint import Says, validated_at
from pipesat.files.strict_json import read_json
from pipesat.parts.file import FORMAT, PartsMap, parse_parts, read_mapping
from pipesat.parts.parts import PART_KINDS, PartKind
from pipesat.placement.documents import stated

LARGEST_TRACE: Final = 1 << 30
_MOST_US: Final = 1e12
# tuples, not sets: in a trace anything may stand there, lists too
_ON_GPU: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCH: Final = ("cuda_runtime", "cuda_driver")
_ANNOTATION: Final = "user_annotation"


@dataclass(frozen=True)
class PartsOfTrace:
    """The text of a parts file, and what the reader should know of it."""

    text: str
    notes: tuple[str, ...]


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
    """When it ran, and in which run of its annotation it was launched."""

    instance: int
    start: float
    end: float


_Kernels: TypeAlias = dict[tuple[str | None, int], list[_Kernel]]
"""By annotation, ``None`` without one, and by the trace's number of the stream."""


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
        Write a parts file instead, of a trace of torch's profiler: which of its annotations are
        which parts (JSON).

    Raises
    ------
    BadInput
        If the trace is none, or has no kernels of a part, or the parts are no parts file.
    """
    source, path = str(path), Path(path)
    mapping = mapping if isinstance(mapping, PartsMap) else read_mapping(mapping)
    kernels, unlaunched = _kernels(path, {rule.annotation for rule in mapping.parts} - {None})
    for number, rule in enumerate(mapping.parts):
        if all(annotation != rule.annotation for annotation, _ in kernels):
            raise BadInput(
                f"no kernel was launched in it, see parts[{number}] of the mapping",
                source=source,
                where="traceEvents",
                value=rule.annotation,
            )
    numbers = _stream_numbers(mapping, kernels, source)
    layers = mapping.layers or mapping.repeat
    rows: dict[PartKind, list[dict[str, Any]]] = {kind: [] for kind in PART_KINDS}
    taken = set()
    for rule in mapping.parts:
        keys = [(rule.annotation, stream) for stream in numbers[rule.stream]]
        taken.update(keys)
        own = [kernel for key in keys for kernel in kernels.get(key, ())]
        time = int((_busy if rule.time == "busy" else _wall)(own) / layers + 0.5)
        after = {"after": rule.after} if rule.kind == "W" else {}
        rows[rule.kind].append({"name": rule.name, "stream": rule.stream, "time": time} | after)
    document = stated(
        format=FORMAT,
        time_unit="us",
        streams=list(mapping.streams),
        chunks=[{"name": mapping.chunk, "repeat": mapping.repeat} | rows],
        stages=[mapping.chunk] if mapping.stages is None else mapping.stages,
        devices=mapping.devices,
    )
    parse_parts(document, f"{source}: made into parts")
    notes = [
        f"left out: {_busy(some):,.0f} us of {annotation or 'no annotation of the mapping'} on "
        f"stream {stream}"
        for (annotation, stream), some in kernels.items()
        if (annotation, stream) not in taken
    ]
    if unlaunched:
        notes.append(f"left out: {unlaunched} kernels whose launch is not in the trace")
    if any(rule.time == "wall" for rule in mapping.parts):
        notes.append(
            "wall times include gaps between kernels: a calibration, not what the kernels take"
        )
    return PartsOfTrace(json.dumps(document, indent=1) + "\n", tuple(notes))


def _kernels(path: Path, named: Collection[str | None]) -> tuple[_Kernels, int]:
    """Read the kernels with their annotations; and how many have no launch in the trace."""
    source = str(path)
    document = read_json(path, LARGEST_TRACE, lenient=True)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise BadInput("expected a list of events", source=source, where="traceEvents")
    launches: dict[str, _Event] = {}
    running: list[_Event] = []
    threads: dict[tuple[int | str, int | str], list[_Event]] = {}
    for number, event in enumerate(events):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        category, where = event.get("cat"), ("traceEvents", number)
        if category == _ANNOTATION and event.get("name") in named:
            found = validated_at(event, _Event, where, source)
            threads.setdefault((found.pid, found.tid), []).append(found)
        elif category in _LAUNCH:
            found = validated_at(event, _Event, where, source)
            if isinstance(correlation := found.args.get("correlation"), int):
                launches[str(correlation)] = found
        elif category in _ON_GPU:
            running.append(validated_at(event, _Event, where, source))
            if not isinstance(stream := running[-1].args.get("stream"), int):
                raise BadInput(
                    "expected the number of a stream",
                    source=source,
                    where=f"traceEvents[{number}].args.stream",
                    value=stream,
                )
    kernels: _Kernels = {}
    unlaunched = 0
    for event in running:
        launch = launches.get(str(event.args.get("correlation")))
        if launch is None:
            unlaunched += 1
            continue
        around = threads.get((launch.pid, launch.tid), ())
        name, instance = _innermost(around, launch.ts)
        kernel = _Kernel(instance, event.ts, event.ts + event.dur)
        kernels.setdefault((name, event.args["stream"]), []).append(kernel)
    return kernels, unlaunched


def _innermost(annotations: Sequence[_Event], time: float) -> tuple[str | None, int]:
    """Name and number of the shortest annotation of a thread around an instant."""
    around = [(a.dur, n) for n, a in enumerate(annotations) if a.ts <= time <= a.ts + a.dur]
    if not around:
        return None, -1
    _, number = min(around)
    return annotations[number].name, number


def _stream_numbers(mapping: PartsMap, kernels: _Kernels, source: str) -> dict[str, set[int]]:
    """The trace's numbers of every stream: those given, or where its parts are busiest."""
    numbers = {name: {*given} for name, given in mapping.streams.items()}
    for rule in mapping.parts:
        if not mapping.streams[rule.stream]:
            busy = {s: _busy(own) for (name, s), own in kernels.items() if name == rule.annotation}
            numbers[rule.stream].add(max(busy, key=busy.__getitem__))
    for (name, own), (other, theirs) in combinations(sorted(numbers.items()), 2):
        if own & theirs:
            raise BadInput(
                f"stream {min(own & theirs)} of the trace would be both {name} and {other}: give "
                "the mapping's streams their numbers",
                source=source,
                where="traceEvents",
            )
    return numbers


def _wall(kernels: Iterable[_Kernel]) -> float:
    """Time from the first kernel's start to the last one's end, in every run of the annotation."""
    runs: dict[int, list[_Kernel]] = {}
    for kernel in kernels:
        runs.setdefault(kernel.instance, []).append(kernel)
    return sum(max(k.end for k in run) - min(k.start for k in run) for run in runs.values())


def _busy(kernels: Iterable[_Kernel]) -> float:
    """Time in which at least one of the kernels runs."""
    total, until = 0.0, float("-inf")
    for kernel in sorted(kernels, key=lambda k: k.start):
        total += max(0.0, kernel.end - max(until, kernel.start))
        until = max(until, kernel.end)
    return total
