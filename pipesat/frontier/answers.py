"""What memory buys, and how little is enough, as Python and the command line show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pipesat.core.showing import Displayed, Facts, Table
from pipesat.core.summary import statement_of
from pipesat.frontier.files import (
    document,
    staircases,
    table_rows,
    write_frontier,
    write_sufficient,
)
from pipesat.frontier.levers import Compared, answers, compared
from pipesat.frontier.min_memory import Sufficient, sufficient_document
from pipesat.frontier.tables import (
    curve_lines,
    fact,
    sufficient_lines,
    sufficient_table,
    tables_of,
)
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
    answer_first: ClassVar[bool] = True

    def __getitem__(self, placement: str | None) -> Frontier:
        return self.curves[placement]

    @property
    def contradictions(self) -> list[str]:
        """Proofs that checked schedules have refuted, and that were dropped."""
        return [text for one in self.curves.values() for text in one.curve.contradictions]

    def facts(self) -> Facts:
        """Return what each curve spans and what modes buy; of one curve, its best and least."""
        if len(self.curves) == 1:
            return [*curve_lines(next(iter(self.curves.values())))]
        lines = [*(self.answers() or self._each())]
        if "layers" in self.about:
            stated = statement_of(self.about["layers"])
            lines.append(("Basis", f"{stated}. A loop and a V cut each in two between layers"))
        return lines

    def details(self) -> Facts:
        """Return what each curve spans."""
        return self._each()

    def _each(self) -> Facts:
        return [
            (str(placement or "Curve"), fact(curve)) for placement, curve in self.curves.items()
        ]

    def tables(self) -> Iterator[Table]:
        """Yield what modes reach at the same capacities, then each curve."""
        yield from tables_of(self.curves, self.compared())

    def records(self) -> list[dict[str, Any]]:
        """Return a row per cap, then one per hand-written schedule."""
        return list(table_rows(self.curves))

    def plot(self) -> Figure | None:
        """Draw the curves; return a matplotlib figure."""
        from pipesat.frontier.picture import frontier_figure

        first = next(iter(self.curves.values()))
        curve, stairs = first.curve, staircases(self.curves)
        return frontier_figure(curve.problem, curve.objective, stairs, first.scale)

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

    def answers(self) -> Facts:
        """Say what the modes buy, a line each; nothing where none are compared."""
        return [*answers(self.curves, self.compared())]

    def _about(self) -> dict[str, Any]:
        rows = [row.document() for row in self.compared()]
        return {**self.about, **({"compared": rows} if rows else {})}


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
        """Return the least capacity, what it costs, and what is proven of each."""
        return [*sufficient_lines(self.found, self.within)]

    def tables(self) -> Iterator[Table]:
        """Yield the peaks of the devices."""
        yield from sufficient_table(self.found)

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
        """Write what ``pipesat frontier --within -o`` writes.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        """
        write_sufficient(Path(folder), self.found, self.within, **self.about)
