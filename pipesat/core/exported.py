"""A schedule in another format: files, and what their user has to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, repr=False)
class Exported:
    """A file's content, what belongs beside it (by suffix), and what its user has to know."""

    data: bytes
    beside: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def _repr_png_(self) -> bytes | None:
        return self.data if self.data.startswith(b"\x89PNG") else None

    def __repr__(self) -> str:
        sizes = [f"{len(self.data)} bytes", *(f"{s} {len(d)}" for s, d in self.beside.items())]
        return "\n".join([f"<Exported: {', '.join(sizes)}>", *self.notes])
