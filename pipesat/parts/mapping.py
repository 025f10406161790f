"""Which annotations of a trace are which parts: mapping files, ``pipesat.parts-map/1``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from pipesat.core.errors import BadInput, said_of
from pipesat.files.complaint import validated
from pipesat.files.strict_json import read_json
from pipesat.files.strict_model import StrictModel
from pipesat.parts.parts import PartKind

MAP_FORMAT: Final = "pipesat.parts-map/1"
LARGEST_MAP: Final = 1 << 20
Name = Annotated[str, Field(min_length=1)]
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
    """Read and validate a mapping file, ``pipesat.parts-map/1``.

    Raises
    ------
    BadInput
        With the file, the path of the value, the value and what would be right.
    """
    source = str(path)
    mapping = validated(read_json(Path(path), LARGEST_MAP), PartsMap, source, _wanted)
    with said_of(source):
        _check(mapping)
    return mapping


def _check(mapping: PartsMap) -> None:
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


def _wanted(path: tuple[int | str, ...], kind: str, context: dict[str, Any]) -> str | None:
    """What would be right, where this format can say more than any other."""
    del context
    if path == ("format",):
        return f'"{MAP_FORMAT}"'
    return "a name, not empty" if kind == "string_too_short" else None
