"""The answer as users get it: a table and labelled lines, files and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pipesat.choose.answer import Answer
from pipesat.choose.lines import details_of, lines_of
from pipesat.choose.rows import Row, rank
from pipesat.choose.table import megatron_flags, shown_rows, table_of
from pipesat.core.attached import attached
from pipesat.core.showing import Column, Displayed, Facts, Table, table_document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT: Final = "pipesat.advice/1"


@dataclass(frozen=True, repr=False, slots=True)
class Advice(Answer, Displayed):
    """An answer: ``print`` it, ``save(folder)`` it, ``to_frame()`` has its table.

    ``facts()`` are the advice, ``chosen`` is its row, ``standing`` what is proven of it.
    """

    @property
    def shown(self) -> list[Row]:
        """The table: 1F1B and ours on every split, of all other schedules the best one."""
        return shown_rows(self.rows)

    def facts(self) -> Facts:
        """Return the advice: what to take, what that needs and gains, what is proven."""
        return lines_of(self)

    def details(self) -> Facts:
        """Return what else is known."""
        return [*details_of(self)]

    def tables(self) -> Iterator[Table]:
        """Yield the table of schedules, and what Megatron-LM is started with."""
        yield table_of(self.question, self.shown)
        if not self.question.any_order and self.chosen is not None:
            flags = megatron_flags(self.question, self.chosen).rstrip().split("\n")
            yield Table([Column("flags for Megatron-LM", number=False)], flags)

    def records(self) -> list[dict[str, Any]]:
        """Return the table's rows."""
        return [row.document(self.question) for row in self.shown]

    def plot(self) -> Figure | None:
        """Draw our plan's stages, as ``plan.plot()``; ``None`` without a plan."""
        if self.plan is None:
            return None
        return cast("Figure | None", attached("figure_of_plan")(self.plan))

    def save(self, folder: str | Path) -> None:
        """Write what ``pipesat advise -o`` writes.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        """
        attached("save_advice")(self, folder)

    @property
    def files(self) -> dict[str, Row]:
        """What the files of the table's rows are called, without their endings."""
        return {f"rows/{n}-{x.name}-{x.split}": x for n, x in enumerate(self.shown, start=1)}

    def document(self) -> dict[str, Any]:
        """Return ``pipesat.advice/1``, ready for JSON."""
        question, standing, layers = self.question, self.standing, self.question.layers
        files = {id(row): name for name, row in self.files.items()}
        return {
            "format": FORMAT,
            "name": layers.name,
            "for": question.runtime,
            "devices": question.devices,
            "microbatches": question.microbatches,
            "memory": question.memory,
            "reserve": question.reserve,
            "time_unit": layers.time_unit,
            "memory_unit": layers.memory_unit,
            "estimate": layers.estimate or None,
            "estimate_range": layers.estimate_range,
            "at_the_ends": [end.document() for end in self.ends],
            "parts": None if question.parts is None else question.parts.source,
            "advice": {label: text for label, text in self.facts() if text},
            "table": table_document(table_of(question, self.shown)),
            "status": standing.status,
            "lower_bound": standing.bound,
            "gap": standing.gap,
            "searched": self.shapes,
            "chosen": None if self.chosen is None else self.chosen.document(question),
            "rows": [
                row.document(question) | {"files": files.get(id(row))}
                for row in sorted(self.rows, key=rank)
            ],
            "not_tried": self.untried,
            "left_out": [{"name": name, "why_not": why} for name, why in self.left_out],
            "wall_s": round(self.seconds, 3),
        }
