"""What every reader of traces yields: plain rows, one for each time that an op ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pipesat.core.errors import BadInput
from pipesat.problem.ops import Kind, members, parse_item

_LARGEST: Final = 1e20
"""No time is larger: as nanoseconds, 3,000 years."""


class TraceRow(NamedTuple):
    """One op: where and when it ran, in us; ``None`` where the trace does not say.

    ``rank`` is the pipeline rank within ``replica``. ``stage`` is a stage's number or, where the
    trace's ``chunks`` is above 0, which of the rank's chunks it is. ``BW`` is a backward that may
    have a ``W`` apart. ``came`` is when its input was there, which is not before ``start``.
    """

    rank: int
    stage: int | None
    microbatch: int | None
    kind: Kind
    start: float
    end: float
    iteration: int | None = None
    replica: int = 0
    came: float | None = None


@dataclass(frozen=True, slots=True)
class FileValue:
    """A value of a file and where it is: ``file["steps"][0]`` is one inside; ``None``: nothing."""

    source: str
    content: Any
    where: str = ""

    def __getitem__(self, key: str | int) -> FileValue:
        if isinstance(key, int):
            return FileValue(self.source, self.content[key], f"{self.where}[{key}]")
        inside = self.content.get(key) if isinstance(self.content, dict) else None
        return FileValue(self.source, inside, f"{self.where}.{key}" if self.where else key)

    def __iter__(self) -> Iterator[FileValue]:
        """Yield what a list has."""
        return (self[place] for place in range(len(self.content or ())))

    def wrong(self, text: str) -> BadInput:
        """Return a complaint."""
        if self.content is None:
            return BadInput(
                "this key is required and missing", source=self.source, where=self.where
            )
        return BadInput(text, source=self.source, where=self.where, value=self.content)

    def number(self, least: float = -_LARGEST) -> float:
        """Return a number of a trace."""
        value = self.content
        known = isinstance(value, int | float) and not isinstance(value, bool)
        if not known or not least <= value <= _LARGEST:
            more = "" if least == -_LARGEST else f" of at least {least:g}"
            raise self.wrong(f"expected a number{more}")
        return float(value)

    def whole(self) -> int:
        """Return a whole number from 0 to 10^6."""
        value = self.content
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10**6:
            raise self.wrong("expected a whole number from 0 to 1000000")
        return value

    def whole_if_any(self) -> int | None:
        """Return a whole number; ``None`` if there is nothing."""
        return None if self.content is None else self.whole()


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
        Whether an op's time includes the wait for its input, up to ``came``.
    host_times
        Whether times are those of the host, which runs ahead of the GPU.
    timed
        Whether starts are known; otherwise only how long ops took.
    ran
        Whether it is of a run; otherwise of a schedule, of which nothing was measured.
    notes
        What a reader should know.
    """

    name: str
    source: str
    rows: Sequence[TraceRow]
    chunks: int = 0
    waits_inside: bool = False
    host_times: bool = False
    timed: bool = True
    ran: bool = True
    notes: Sequence[str] = field(default=())

    @property
    def measured(self) -> bool:
        """Whether it says how long a step took."""
        return self.timed and self.ran


@dataclass(frozen=True)
class TraceStatement:
    """What a user states because a trace does not say it; ``None``: not stated."""

    chunks: int | None = None
    microbatches: int | None = None


def chunks_in(rows: Iterable[TraceRow]) -> int:
    """Return how many chunks rows tell of."""
    return max((row.stage or 0 for row in rows), default=0) + 1


def is_recorded(content: Any) -> bool:
    """Whether this is a timeline file."""
    return isinstance(content, dict) and content.get("format") == "pipesat.timeline/1"


def read_recorded(files: Sequence[FileValue], _told: TraceStatement) -> Trace:
    """Read timelines: each file is a replica."""
    rows = [
        TraceRow(
            rank, op.stage, op.microbatch, op.kind, ran[1].number(), ran[2].number(), step, replica
        )
        for replica, file in enumerate(files)
        for step, devices in enumerate(file["steps"])
        for rank, device in enumerate(devices["devices"])
        for ran in device["ops"]
        for op in members(parse_item(ran[0].content))
    ]
    return Trace("pipesat timeline", files[0].source, rows)
