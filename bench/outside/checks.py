"""What a check is: figures of somebody else's, ours for the same question, and how far apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipesat.core.claims import at_most


class Check(NamedTuple):
    """Their figures and ours; ``within`` is the largest share of theirs that may lie between."""

    what: str
    source: str
    said: Sequence[float]
    ours: Sequence[float]
    within: float = 0.0

    @property
    def apart(self) -> float:
        """The largest difference, as a share of theirs."""
        pairs = zip(self.said, self.ours, strict=True)
        return max(abs(ours - said) / said for said, ours in pairs)

    @property
    def holds(self) -> bool:
        return self.apart <= self.within

    @property
    def row(self) -> tuple[str, ...]:
        """A row of the page's table."""
        apart = "equal" if not self.apart else at_most(self.apart)
        return self.what, self.source, shown(self.said), shown(self.ours), apart


HEADS = ("figure", "source", "theirs", "pipesat", "apart")


def shown(figures: Sequence[float]) -> str:
    """All figures, or how many there are and their range."""
    if len(figures) > 4:
        return f"{len(figures)} of {min(figures):g} to {max(figures):g}"
    return ", ".join(f"{figure:.4g}" if figure < 1000 else f"{figure:,.0f}" for figure in figures)


def link(text: str, address: str) -> str:
    return f"[{text}](https://{address})"
