"""A schedule in another format: files, and what their user has to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, repr=False)
class Exported:
    """A file's content, what belongs beside it (by suffix), and what its user has to know.

    ``changed`` says if the runtime's order takes another time than the schedule; ``path`` is the
    file that was written, ``None`` if none was.
    """

    data: bytes
    beside: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    changed: str = ""
    path: Path | None = None

    def _repr_png_(self) -> bytes | None:
        return self.data if self.data.startswith(b"\x89PNG") else None

    def __repr__(self) -> str:
        name = "not written" if self.path is None else str(self.path)
        lines = [f"  file    {name}, {len(self.data)} bytes"]
        for suffix in self.beside:
            what = ": read it before you run this" if suffix.endswith(".txt") else ""
            beside = suffix if self.path is None else self.path.with_suffix(suffix)
            lines.append(f"  beside  {beside}{what}")
        lines += [f"  note    {note}" for note in self.notes]
        return "\n".join(["Exported", *lines])
