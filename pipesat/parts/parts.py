"""Chunks of a model as parts on streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

PartKind: TypeAlias = Literal["F", "B", "W"]
PART_KINDS: Final[tuple[PartKind, ...]] = ("F", "B", "W")


class Part(NamedTuple):
    """What one layer of a chunk runs on one stream without a break.

    Attributes
    ----------
    stream
        Number of the stream.
    time
        In time units.
    after
        Of a part of W: number of the part of B, of the same layer, that it follows.
    """

    name: str
    stream: int
    time: int
    after: int | None = None


@dataclass(frozen=True)
class Chunk:
    """``repeat`` equal layers; F and B are chains of parts, W parts follow their part of B."""

    name: str
    repeat: int
    F: tuple[Part, ...]
    B: tuple[Part, ...]
    W: tuple[Part, ...]

    def of_kind(self, kind: PartKind) -> tuple[Part, ...]:
        """One layer's parts of a kind."""
        return {"F": self.F, "B": self.B, "W": self.W}[kind]


@dataclass(frozen=True)
class Parts:
    """Chunks, and which stage is which.

    Attributes
    ----------
    stages
        Per stage, the number of its chunk.
    devices
        Per stage, its device.
    source
        The file, for messages.
    """

    time_unit: str
    streams: tuple[str, ...]
    chunks: tuple[Chunk, ...]
    stages: tuple[int, ...]
    devices: tuple[int, ...]
    source: str = "parts"
