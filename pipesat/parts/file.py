"""Parts files, ``pipesat.parts/1``: every value checked, every complaint with its path."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, said_of
from pipesat.files.complaint import validated
from pipesat.files.strict_json import (
    MOST_DEVICES,
    MOST_STAGES,
    Amount,
    Count,
    StrictModel,
    read_json,
)
from pipesat.parts.parts import PART_KINDS, Chunk, Part, PartKind, Parts

FORMAT: Final = "pipesat.parts/1"
LARGEST_FILE: Final = 64 << 20
MOST_PARTS: Final = 5000
"""Of all layers of a chunk together."""

Name = Annotated[str, Field(min_length=1)]


class PartModel(StrictModel):
    """One entry of ``F`` or ``B``."""

    name: Name
    stream: str
    time: Amount


class WeightPartModel(PartModel):
    """One entry of ``W``: it follows the part of B that it names."""

    after: str


class ChunkModel(StrictModel):
    """One entry of ``chunks``."""

    name: Name
    repeat: Count = 1
    F: list[PartModel]
    B: list[PartModel]
    W: list[WeightPartModel] = []


class PartsModel(StrictModel):
    """The whole document."""

    format: Literal["pipesat.parts/1"]
    time_unit: str = ""
    streams: Annotated[list[Name], Field(min_length=1)]
    chunks: Annotated[list[ChunkModel], Field(min_length=1)]
    stages: Annotated[list[str], Field(min_length=1, max_length=MOST_STAGES)]
    devices: Annotated[list[Amount], Field(max_length=MOST_STAGES)] = []


@public
def read_parts(path: str | Path) -> Parts:
    """Read and validate a parts file.

    Raises
    ------
    BadInput
        With the file, the path of the value, the value and what would be right.
    """
    return parse_parts(read_json(Path(path), LARGEST_FILE), str(path))


def parse_parts(document: object, source: str = "parts") -> Parts:
    """Validate a parts document (what ``json.loads`` returns)."""
    if isinstance(document, dict) and "traceEvents" in document:
        text = "expected parts; of a trace, `problem pairs TRACE --map MAPPING` makes them"
        raise BadInput(text, source=source)
    model = validated(document, PartsModel, source)
    with said_of(source):
        return _parts(model, source)


def _parts(model: PartsModel, source: str) -> Parts:
    names = [chunk.name for chunk in model.chunks]
    _refuse_repeated(model.streams, "streams[{}]")
    _refuse_repeated(names, "chunks[{}].name")
    chunks = tuple(
        _chunk(chunk, f"chunks[{number}]", model.streams)
        for number, chunk in enumerate(model.chunks)
    )
    stages = tuple(
        _place(name, names, "a chunk", f"stages[{number}]")
        for number, name in enumerate(model.stages)
    )
    return Parts(model.time_unit, tuple(model.streams), chunks, stages, _devices(model), source)


def _chunk(model: ChunkModel, where: str, streams: Sequence[str]) -> Chunk:
    number = model.repeat * sum(len(getattr(model, kind)) for kind in PART_KINDS)
    if number > MOST_PARTS:
        raise BadInput(
            f"{number} parts in all layers, expected at most {MOST_PARTS}",
            where=f"{where}.repeat",
            value=model.repeat,
        )
    before = [part.name for part in model.B]

    def parts(kind: PartKind) -> tuple[Part, ...]:
        row: list[PartModel] = getattr(model, kind)
        return tuple(
            _part(part, f"{where}.{kind}[{place}]", streams, before)
            for place, part in enumerate(row)
        )

    return Chunk(model.name, model.repeat, *map(parts, PART_KINDS))


def _part(model: PartModel, where: str, streams: Sequence[str], before: Sequence[str]) -> Part:
    stream = _place(model.stream, streams, "a stream", f"{where}.stream")
    if not isinstance(model, WeightPartModel):
        return Part(model.name, stream, model.time)
    after = _place(model.after, before, "a part of B", f"{where}.after")
    if before.count(model.after) > 1:
        raise BadInput(
            "several parts of B have this name, expected one",
            where=f"{where}.after",
            value=model.after,
        )
    return Part(model.name, stream, model.time, after)


def _devices(model: PartsModel) -> tuple[int, ...]:
    given = "devices" in model.model_fields_set
    devices = tuple(model.devices if given else range(len(model.stages)))
    if len(devices) != len(model.stages):
        text = f"{len(devices)} entries, expected {len(model.stages)}, one per stage"
        raise BadInput(text, where="devices")
    for number, device in enumerate(devices):
        if device >= MOST_DEVICES:
            text = f"expected a device from 0 to {MOST_DEVICES - 1}"
            raise BadInput(text, where=f"devices[{number}]", value=device)
    return devices


def _place(name: str, known: Sequence[str], what: str, where: str) -> int:
    """Place of a name among those that are known."""
    if name in known:
        return known.index(name)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    hint = f"; the nearest is {near[0]}" if near else "; there is none"
    raise BadInput(f"expected the name of {what}{hint}", where=where, value=name)


def _refuse_repeated(names: Sequence[str], place: str) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise BadInput("this name appears twice", where=place.format(number), value=name)


MAP_FORMAT: Final = "pipesat.parts-map/1"
LARGEST_MAP: Final = 1 << 20
StreamNumber = Annotated[int, Field(ge=-(10**12), le=10**12)]


class PartRule(StrictModel):
    """One entry of ``parts``: which kernels are a part of a layer.

    Attributes
    ----------
    annotation
        ``None``: the kernels that were launched in none of the mapping's annotations.
    time
        ``busy``: the kernels' own time; ``wall``: from the first one's start to the last one's end.
    """

    kind: PartKind
    name: Name
    annotation: str | None
    stream: str
    after: str = ""
    time: Literal["busy", "wall"] = "busy"


class PartsMap(StrictModel):
    """The whole document; ``source`` is its file.

    Attributes
    ----------
    layers
        Layers that the trace has; ``repeat`` of the chunk if absent.
    streams
        The trace's numbers of each stream; without numbers, a part's stream is the one on which its
        annotation is busiest.
    """

    format: Literal["pipesat.parts-map/1"]
    chunk: Name
    repeat: Annotated[int, Field(ge=1, le=10**12)] = 1
    layers: Annotated[int, Field(ge=1, le=10**12)] | None = None
    streams: dict[str, list[StreamNumber]]
    parts: Annotated[list[PartRule], Field(min_length=1)]
    stages: list[str] | None = None
    devices: list[int] | None = None


def read_mapping(path: str | Path) -> PartsMap:
    """Read and validate a mapping file, ``pipesat.parts-map/1``."""
    source = str(path)
    mapping = validated(read_json(Path(path), LARGEST_MAP), PartsMap, source)
    with said_of(source):
        _check_map(mapping)
    return mapping


def _check_map(mapping: PartsMap) -> None:
    for number, rule in enumerate(mapping.parts):
        where = f"parts[{number}]"
        if rule.stream not in mapping.streams:
            raise BadInput(
                f"expected a key of streams: {', '.join(mapping.streams)}",
                where=f"{where}.stream",
                value=rule.stream,
            )
        same = [r for r in mapping.parts[:number] if _source(r) == _source(rule)]
        if same:
            raise BadInput(
                f"{same[0].kind} {same[0].name} takes the same kernels, expected each once",
                where=f"{where}.annotation",
                value=rule.annotation,
            )
        if (rule.kind == "W") != bool(rule.after):
            raise BadInput(
                "expected the part of B that it follows" if rule.kind == "W" else "only W has it",
                where=f"{where}.after",
                value=rule.after,
            )
        if rule.annotation is None and rule.time == "wall":
            raise BadInput(
                "expected busy: without an annotation there is no first and last kernel",
                where=f"{where}.time",
                value=rule.time,
            )


def _source(rule: PartRule) -> tuple[str | None, str]:
    return rule.annotation, rule.stream
