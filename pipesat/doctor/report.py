"""What the doctor says: one line per question."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from pipesat.core.machine import Cores, Memory

Finding: TypeAlias = Literal["ok", "missing", "FAILED"]
Part: TypeAlias = Literal["versions", "extras", "machine", "self-check"]


@dataclass(frozen=True)
class Line:
    """One answer: ``missing`` is an extra that pipesat works without, ``FAILED`` is a fault.

    ``command`` is what to type to mend it, ``None`` where there is nothing to mend or no command
    that does it.
    """

    part: Part
    name: str
    status: Finding
    detail: str
    command: str | None = None


@dataclass(frozen=True)
class Report:
    """All lines, and the machine's figures."""

    lines: tuple[Line, ...]
    cores: Cores
    memory: Memory

    @property
    def ok(self) -> bool:
        """Whether nothing failed; an extra may be missing."""
        return all(line.status != "FAILED" for line in self.lines)

    def document(self) -> dict[str, Any]:
        """Return the report ready for JSON; unknown figures are ``None``."""
        return {"ok": self.ok, **asdict(self)}
