"""What every reader of traces yields: plain rows, one for each time that an op ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pipesat.core.errors import BadInput
from pipesat.core.ops import Kind, members, parse_item

_LARGEST: Final = 1e20
"""No time is larger: as nanoseconds, 3,000 years."""


class Row(NamedTuple):
    """One op: where and when it ran, in us; ``None`` where the trace does not say.

    ``rank`` is the pipeline rank within ``replica``. ``stage`` is a stage's number or, where the
    trace's ``chunks`` is above 0, which of the rank's chunks it is. ``BW`` is a backward that may
    have a ``W`` apart.
    """

    rank: int
    stage: int | None
    microbatch: int | None
    kind: Kind
    start: float
    end: float
    iteration: int | None = None
    replica: int = 0


class Document(NamedTuple):
    """One file: its name, and what is in it."""

    source: str
    content: Any


@dataclass(frozen=True)
class Trace:
    """The rows of all files of a run.

    Attributes
    ----------
    name
        What wrote it.
    source
        File that complaints are about.
    chunks
        How many chunks each rank has, where rows count chunks; 0: they have stages' numbers.
    waits_inside
        Whether an op's time includes the wait for its input.
    host_times
        Whether times are those of the host, which runs ahead of the GPU.
    timed
        Whether starts are known; otherwise only how long ops took.
    notes
        What a reader should know.
    """

    name: str
    source: str
    rows: Sequence[Row]
    chunks: int = 0
    waits_inside: bool = False
    host_times: bool = False
    timed: bool = True
    notes: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Told:
    """What a user states because a trace does not say it; ``None``: not stated."""

    chunks: int | None = None
    microbatches: int | None = None
    patterns: Mapping[str, str] = field(default_factory=dict)


def number(document: Document, where: str, value: object, least: float = -_LARGEST) -> float:
    """Return a number of a trace."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or not least <= value <= _LARGEST:  # type: ignore[operator]
        text = "a number" if least == -_LARGEST else f"a number of at least {least:g}"
        raise BadInput(f"expected {text}", source=document.source, where=where, value=value)
    return float(value)  # type: ignore[arg-type]


def whole(document: Document, where: str, value: object) -> int:
    """Return a whole number from 0 to 10^6."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10**6:
        text = "expected a whole number from 0 to 1000000"
        raise BadInput(text, source=document.source, where=where, value=value)
    return value


def is_recorded(content: Any) -> bool:
    """Whether this is a timeline file."""
    return isinstance(content, dict) and content.get("format") == "pipesat.timeline/1"


def read_recorded(documents: Sequence[Document], _told: Told) -> Trace:
    """Read timelines: each file is a replica."""
    rows = []
    for replica, document in enumerate(documents):
        for step, ran in enumerate(document.content.get("steps", ())):
            for rank, device in enumerate(ran.get("devices", ())):
                for place, (text, *times) in enumerate(device.get("ops", ())):
                    where = f"steps[{step}].devices[{rank}].ops[{place}]"
                    start, end = (number(document, where, time) for time in times[:2])
                    rows += [
                        Row(rank, op.stage, op.microbatch, op.kind, start, end, step, replica)
                        for op in members(parse_item(text))
                    ]
    return Trace("pipesat timeline", documents[0].source, rows)
