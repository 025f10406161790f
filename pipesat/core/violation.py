"""What the checker returns: one broken rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    ``rule`` is a short word (``missing``, ``doubled``, ``text``, ``name``, ``device``, ``time``,
    ``length``, ``kind``, ``mode``, ``overlap``, ``order``, ``input``, ``memory``), ``device`` the
    device's number, ``time`` where on the time axis, in time units; ``None`` where that has no
    meaning.
    """

    rule: str
    message: str
    device: int | None = None
    time: int | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"
