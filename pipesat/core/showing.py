"""How answers show themselves: a few lines in a terminal, a table and a picture in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pipesat.core.attached import attached

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Facts: TypeAlias = Sequence[tuple[str, str]]
"""What a few lines say: a label and a text each."""


class Displayed:
    """An answer: ``print`` or ``plot`` it, make a table of it, or end a notebook's cell with it."""

    __slots__ = ()

    def facts(self) -> Facts:
        """Return what is to be known of it, a label and a text each."""
        raise NotImplementedError

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of its table, each a dictionary with the same keys."""
        raise NotImplementedError

    def told(self) -> list[dict[str, Any]]:
        """Return the rows that a notebook shows: all, unless some say nothing."""
        return self.records()

    def to_frame(self) -> Any:
        """Return its table as a pandas ``DataFrame``, if pandas is installed.

        Raises
        ------
        BadInput
            If it is not.
        """
        return attached("frame_of")(self.records())

    def plot(self) -> Figure | None:
        """Draw it; return a matplotlib figure, ``None`` where there is nothing to draw.

        Write it with ``savefig``; a notebook shows it at the end of a cell. No window is opened.
        """
        return None

    def __repr__(self) -> str:
        facts = [(label, text) for label, text in self.facts() if text]
        widest = max((len(label) for label, _ in facts), default=0)
        lines = [f"  {label:<{widest}}  {' '.join(text.split())}" for label, text in facts]
        return "\n".join([type(self).__name__, *lines])

    def _repr_html_(self) -> str:
        return str(attached("html_of")(self))

    def _repr_png_(self) -> bytes | None:
        png = attached("png_of")(self)
        return None if png is None else bytes(png)


def ranges(numbers: Sequence[int]) -> str:
    """Show ascending numbers: ``0–3, 5``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in runs)
