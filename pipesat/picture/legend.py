"""The legend of a Gantt chart: a sample and a text per thing that occurs in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from pipesat.core.ops import KINDS
from pipesat.picture.classes import class_tints, named
from pipesat.picture.figures import amount_text, in_brackets, short, swatch, unit_of_memory
from pipesat.picture.rows import UPPER
from pipesat.picture.style import CAPACITY, COPY_BACK, COPY_OUT, HELD, MEANING, STATIC, fill

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipesat.core.problem import Problem
    from pipesat.picture.rows import Rows

_HATCHES: Final = ("////", "\\\\\\\\", "xxxx")


def draw_legend(figure: Figure, problem: Problem, rows: Rows, memory: int | None) -> None:
    """Draw the legend; ``memory`` is the largest amount shown, ``None`` where none is drawn."""
    entries = [*_of_ops(problem, rows)]
    if memory is not None:
        entries += _of_memory(problem, rows, memory)
    figure.legend(
        [sample for sample, _ in entries],
        [text for _, text in entries],
        loc="outside lower left",
        ncols=min(5, max(1, len(entries))),
        frameon=False,
        fontsize=8,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
    )


def modes_of(rows: Rows) -> list[tuple[int, str]]:
    """Return the memory modes that are not to keep, each with its hatching."""
    modes = sorted({*rows.ops["mode"].tolist()} - {0})
    return [(mode, _HATCHES[min(mode, 3) - 1]) for mode in modes]


def _of_ops(problem: Problem, rows: Rows) -> Iterator[tuple[Any, str]]:
    chunks = min(4, max(map(len, problem.stages_on)))
    places = np.linspace(0, 1, chunks).tolist()
    for number, kind in enumerate(KINDS):
        if (rows.ops["kind"] == number).any():
            yield tuple(swatch(fill(kind, at)) for at in places), MEANING[kind]
    if chunks > 1:
        greys = tuple(swatch(f"{0.95 - 0.6 * at:.2f}") for at in places)
        yield greys, "shades: first to last chunk of a device"
    tints = class_tints(problem)
    for tint, names in ({} if tints is None else tints.names).items():
        yield tuple(swatch(fill(kind, 0, tint)) for kind in ("F", "BW")), short(named(names), 60)
    if (rows.ops["part"] == UPPER).any():
        yield (swatch(fill("F")), swatch(fill("BW"))), "two halves: ops that overlap"
    for mode, hatch in modes_of(rows):
        names = [s.modes[mode - 1].name for s in problem.stages if mode <= len(s.modes)]
        yield swatch("white", hatch=hatch), short(f"mode {' or '.join(dict.fromkeys(names))}", 60)
    if len(rows.copies):
        yield swatch(COPY_OUT), "O copy out"
        yield swatch(COPY_BACK), "L copy back"


def _of_memory(problem: Problem, rows: Rows, largest: int) -> Iterator[tuple[Any, str]]:
    _, unit = unit_of_memory(problem.memory_unit, largest)
    yield swatch(HELD), in_brackets("memory in use", unit)
    if any(row.static for row in rows.rows):
        yield swatch(STATIC), "static memory"
    limits = {row.capacity for row in rows.rows if row.capacity is not None}
    if limits:
        text = amount_text(max(limits), problem.memory_unit, largest) if len(limits) == 1 else ""
        line = Line2D([], [], color=CAPACITY, linestyle="--", linewidth=1)
        yield line, f"capacity {text}".rstrip()
