"""What memory buys, and how little is enough, as Python and the command line show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipesat.core.claims import as_given, at_most
from pipesat.core.showing import Displayed, Facts
from pipesat.frontier.compared import Compared, answers, compared
from pipesat.frontier.files import (
    document,
    staircases,
    table_rows,
    write_frontier,
    write_sufficient,
)
from pipesat.frontier.min_memory import Sufficient, sufficient_document
from pipesat.frontier.trace import Frontier

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False, slots=True)
class Frontiers(Displayed):
    """Curves of value against memory, by placement; ``None`` for the problem as it is.

    ``about`` has what the document says besides: seed, workers, versions, the layers stated.
    ``compared_at`` has the capacities at which levers are held beside each other.
    """

    curves: Mapping[str | None, Frontier]
    about: Mapping[str, Any] = field(default_factory=dict)
    compared_at: Sequence[int] = ()

    def __getitem__(self, placement: str | None) -> Frontier:
        return self.curves[placement]

    def facts(self) -> Facts:
        """Return what is known of each curve."""
        each = [
            (placement or frontier.curve.objective, _fact(frontier))
            for placement, frontier in self.curves.items()
        ]
        return each + [("levers", text) for text in self.answers()]

    def records(self) -> list[dict[str, Any]]:
        """Return a row per cap, then one per hand-written schedule."""
        return list(table_rows(self.curves))

    def plot(self) -> Figure | None:
        """Draw the curves; return a matplotlib figure."""
        from pipesat.frontier.picture import frontier_figure
        from pipesat.picture.both_formats import figure_of

        first = next(iter(self.curves.values()))
        curve, stairs = first.curve, staircases(self.curves)
        return figure_of(
            lambda: frontier_figure(curve.problem, curve.objective, stairs, first.scale)
        )

    def document(self, folder: Path | None = None) -> dict[str, Any]:
        """Return everything as one JSON document; paths are those within ``folder``."""
        return document(self.curves, folder, **self._about())

    def save(self, folder: str | Path) -> None:
        """Write what ``pipesat frontier -o`` writes.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        """
        write_frontier(Path(folder), self.curves, **self._about())

    def compared(self) -> list[Compared]:
        """Return what each lever reaches at the same few capacities."""
        return compared(self.curves, self.compared_at)

    def answers(self) -> list[str]:
        """Say what the levers buy, a sentence each; nothing where none are compared."""
        return list(answers(self.curves, self.compared()))

    def _about(self) -> dict[str, Any]:
        rows = [row.document() for row in self.compared()]
        return {**self.about, **({"compared": rows} if rows else {})}


def _fact(frontier: Frontier) -> str:
    known = [row for row in frontier.rows if row.known is not None]
    if not known:
        return "no schedule found in time"
    proven = sum(row.status == "optimal" for row in frontier.rows)
    gaps = [row.gap for row in frontier.rows if row.gap is not None]
    values = [row.known.value for row in known if row.known is not None]
    text = f"{max(values)} to {min(values)} at {len(frontier.rows)} caps, {proven} proven optimal"
    return text + (f", largest gap {at_most(max(gaps))}" if gaps else "")


@dataclass(frozen=True, repr=False, slots=True)
class LeastMemory(Displayed):
    """How little memory is enough, and the schedule that shows it; ``found`` has all of it."""

    found: Sufficient
    within: Fraction
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cap(self) -> int | None:
        """Smallest capacity of every device that was found to be enough."""
        return None if self.found.cap is None else self.found.cap.enough

    def facts(self) -> Facts:
        """Return the answers, each with what is proven of it."""
        return [*self._facts()]

    def _facts(self) -> Iterator[tuple[str, str]]:
        found = self.found
        best, cap, sums = found.best, found.cap, found.lightest
        yield f"best {found.curve.objective}", f"{best.value} ({best.standing.verdict})"
        if cap is not None:
            yield "target", f"{cap.target}, at most {as_given(self.within)} longer"
            proof = "proven" if cap.proven else "not proven"
            yield "smallest cap", f"{cap.enough} on every device ({proof} smallest)"
        if sums is not None:
            proof = "proven smallest" if sums.standing.proven else f"bound {sums.bound}"
            yield "sum of peaks", f"{sums.value} within that cap ({proof})"
        yield "time", f"{found.wall_s:.1f} s"

    def records(self) -> list[dict[str, Any]]:
        """Return a row per device: its peak, and the least it can be."""
        sums, problem = self.found.lightest, self.found.curve.problem
        if sums is None:
            return []
        return [
            {"device": problem.device_name(device), "peak": peak, "at_least": least}
            for device, (peak, least) in enumerate(zip(sums.known.peaks, sums.least, strict=True))
        ]

    def document(self, folder: Path | None = None) -> dict[str, Any]:
        """Return the answer as one JSON document; its schedule's path is that in ``folder``."""
        return sufficient_document(self.found, self.within, folder, **self.about)

    def save(self, folder: str | Path) -> None:
        """Write what ``pipesat min-memory -o`` writes.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        """
        write_sufficient(Path(folder), self.found, self.within, **self.about)
