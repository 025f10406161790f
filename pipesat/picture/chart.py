"""A Gantt chart: true time scale, one row per device, memory below its ops.

Across are time units, down are rows. Ops of one colour are one shape, so that many stay fast.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from pipesat.core.ops import KINDS
from pipesat.picture.figures import (
    LEAST,
    amount_text,
    blank_figure,
    draw_legend,
    figure_of,
    in_brackets,
    label,
    modes_of,
    short,
    unit_of_time,
)
from pipesat.picture.rows import LOWER, UPPER, WHOLE, Fold, fold_of
from pipesat.picture.style import (
    CAPACITY,
    COPY_BACK,
    COPY_OUT,
    EXCESS,
    FAINT_INK,
    GRID,
    HELD,
    IDLE,
    INK,
    MEANING,
    OUTLINE,
    STATIC,
    class_tints,
    fill,
    named,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipesat.core.arrays import Floats
    from pipesat.core.problem import Problem
    from pipesat.picture.rows import Boxes, Rows

_NARROWEST, _WIDEST = 10.0, 24.0  # inches
_TALLEST: Final = 30.0
_ROW: Final = 0.56  # inches of a device's row if there are at most eight
_LEAST_ROW_WITH_MEMORY: Final = 0.2
_NAME: Final = 0.14  # inches that the name of a row takes
_FAR_CAPACITY: Final = 2  # times the largest peak: beyond it, capacities are only given as numbers
_BOX: Final = np.array([Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY], np.uint8)


def chart(problem: Problem, rows: Rows, title: str, unit: str) -> Figure:
    """Draw rows whose times have a unit."""
    return figure_of(lambda: _Chart(problem, rows, unit).drawn(title))


def _inches_wanted(ops: Boxes, length: float) -> float:
    """Width at which nine of ten ops have room for their number, turned if need be."""
    lengths = ops["end"] - ops["start"]
    if not lengths.any():
        return 0.0
    return 1.0 + 0.9 * LEAST / 72 * length / float(np.quantile(lengths[lengths > 0], 0.1))


def _fold(rows: Rows, length: int) -> Fold | None:
    """Return what repeats, if most numbers would not fit else, and it leaves out a third."""
    if rows.headings or _inches_wanted(rows.ops, length) <= 1.3 * _NARROWEST:
        return None
    copies = rows.copies.copy()
    copies["kind"] += len(KINDS)
    found = fold_of(np.concatenate([rows.ops, copies]))
    return found if found is not None and 3 * found.hidden > length else None


class _Chart:
    """A chart while it is drawn: its measures, in rows and time units, and its axes."""

    def __init__(self, problem: Problem, rows: Rows, unit: str) -> None:
        self.problem, self.rows = problem, rows
        self.ends = max([0, *rows.ops["end"].tolist(), *rows.copies["end"].tolist()])
        self.fold = _fold(rows, self.ends)
        self.length = max(1, self.ends - (self.fold.hidden if self.fold else 0))
        self.scale, self.unit = unit_of_time(unit, self.ends)
        self.tints = class_tints(problem)
        self.chunks = max(map(len, problem.stages_on))
        self.height = max(1.0, rows.height)
        self.pitch = min(_ROW * min(1.0, 8 / self.height) ** 0.45, (_TALLEST - 2) / self.height)
        peak = max([0, *(int(row.memory.held.max()) for row in rows.rows)])
        limits = [row.capacity for row in rows.rows if row.capacity is not None]
        self.top = max([1, peak, *(c for c in limits if c <= _FAR_CAPACITY * peak)])
        self.memory = bool(peak or limits) and self.pitch >= _LEAST_ROW_WITH_MEMORY
        self.copy = 0.07 if len(rows.copies) else 0.0
        self.lane = (0.56 if self.memory else 0.8) - 2 * self.copy

    def drawn(self, title: str) -> Figure:
        """Draw everything; return the figure."""
        wanted = _inches_wanted(self.rows.ops, self.length)
        width = max(_NARROWEST, wanted if wanted <= _WIDEST else 1.6 * _NARROWEST)
        figure = blank_figure(width, 1.5 + self.pitch * self.height, title)
        self.axes = figure.subplots()
        self._name_rows()
        self._ticks()
        draw_legend(figure, self.problem, self.rows, self.top if self.memory else None)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # what was laid out stays where the numbers find it
        self._draw_ops()
        self._draw_copies()
        if self.memory:
            self._draw_memory()
        if self.fold is not None:
            self._draw_fold(self.fold)
        return figure

    def _x(self, times: Any) -> Any:
        """Where times are drawn."""
        return times if self.fold is None else self.fold.moved(times)

    # what stands around the rows

    def _name_rows(self) -> None:
        rows = self.rows.rows
        self.axes.set_xlim(0, self.length)
        self.axes.set_ylim(self.height, -0.15)
        some = rows[:: ceil(_NAME / self.pitch)]
        places = [row.top + self.lane / 2 for row in some]
        names = [short(row.name, 22) for row in some]
        self.axes.set_yticks(places, names, fontsize=9 if self.pitch > _NAME else 7)
        for text in self.axes.get_yticklabels():
            text.set_parse_math(False)
        self.axes.tick_params(axis="y", length=0)
        self.axes.spines[["top", "right", "left"]].set_visible(False)
        for name, top in self.rows.headings.items():
            self.axes.text(
                0, top - 0.1, short(name, 80), fontsize=9, weight="bold", parse_math=False
            )
        if self.memory:
            self._name_peaks()

    def _ticks(self) -> None:
        """Ticks at round times, and one at the end."""
        axes, end = self.axes, self.ends * self.scale
        step = float(np.diff(MaxNLocator(9).tick_values(0, self.length * self.scale)[:2])[0])
        times = np.arange(0, max(end - 0.7 * step, step / 2), step) / self.scale
        if self.fold is not None:
            times = times[self.fold.shown(times)]
            after = times - self.fold.seam - self.fold.hidden
            times = times[(after < 0) | (after > 0.7 * step / self.scale)]
        axes.set_xticks(self._x(times), [f"{t:,.6g}" for t in np.round(times * self.scale, 9)])
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(axis="x", labelsize=8)
        axes.set_xlabel(in_brackets("time", self.unit), fontsize=8, parse_math=False)
        last = axes.secondary_xaxis("bottom")
        exact = f"{end:,.1f}".removesuffix(".0") if end >= 100 else f"{end:.6g}"
        last.set_xticks([self.length], [exact], fontsize=8, weight="bold")

    def _name_peaks(self) -> None:
        """Write each device's peak, and its capacity where these differ, beside its row."""
        rows = self.rows.rows
        differ = len({row.capacity for row in rows}) > 1
        texts = [
            self._amount(int(row.memory.held.max()))
            + (f" / {self._amount(row.capacity)}" if differ and row.capacity is not None else "")
            for row in rows
        ]
        right = self.axes.secondary_yaxis("right")
        right.spines["right"].set_visible(False)
        right.set_yticks([row.top + 0.8 for row in rows], texts, fontsize=8)
        right.tick_params(length=0)
        for row, text in zip(rows, right.get_yticklabels(), strict=True):
            over = row.capacity is not None and int(row.memory.held.max()) > row.capacity
            text.set_color(CAPACITY if over else INK)
        heading = "peak / capacity" if differ else "peak"
        self.axes.text(
            1.005, 1.0, heading, fontsize=8, color=FAINT_INK, transform=self.axes.transAxes
        )

    def _amount(self, value: int) -> str:
        return amount_text(value, self.problem.memory_unit, self.top)

    # what stands in the rows

    def _fields(self, boxes: Boxes, top: float, height: float) -> tuple[Boxes, Floats]:
        """Boxes that are drawn, and their left, upper, right and lower ends."""
        if self.fold is not None:
            boxes = boxes[self.fold.shown(boxes["start"])]
        tops = np.array([row.top for row in self.rows.rows])[boxes["row"]] + top
        left = self._x(boxes["start"])
        upper = tops + np.where(boxes["part"] == LOWER, height / 2, 0.0)
        lower = tops + np.where(boxes["part"] == UPPER, height / 2, height)
        return boxes, np.column_stack([left, upper, left + boxes["end"] - boxes["start"], lower])

    def _fill(self, fields: Floats, colour: str, name: str, **style: Any) -> None:
        """Draw rectangles of one colour as one shape, which an SVG names."""
        left, top, right, bottom = fields.T
        points = np.stack([left, top, right, top, right, bottom, left, bottom, left, top], axis=1)
        path = Path(points.reshape(-1, 2), np.tile(_BOX, len(fields)))
        shape = PathPatch(
            path, facecolor=colour, **{"linewidth": 0.0, "gid": short(name, 80)} | style
        )
        self.axes.add_patch(shape)

    def _draw_ops(self) -> None:
        """Draw ops by colour, then numbers by kind."""
        rows = self.rows.rows
        tops = np.array([row.top for row in rows])
        idle = np.column_stack([0 * tops, tops, 0 * tops + self.length, tops + self.lane])
        self._fill(idle, IDLE, "idle", zorder=0.6)
        boxes, fields = self._fields(self.rows.ops, 0.0, self.lane)
        if not len(boxes):
            return
        extent = self.axes.get_window_extent()
        points = 72 / self.axes.figure.dpi
        room = np.abs(np.column_stack([fields[:, 2] - fields[:, 0], fields[:, 3] - fields[:, 1]]))
        room *= (points * extent.width / self.length, points * extent.height / (self.height + 0.15))
        edge = min(0.5, 0.1 * float(np.median(room[:, 0])))
        last = max(1, self.chunks - 1)
        for kind, chunk, tint in np.unique(boxes[["kind", "chunk", "tint"]]).tolist():
            alike = (boxes["kind"] == kind) & (boxes["chunk"] == chunk) & (boxes["tint"] == tint)
            colour = fill(KINDS[kind], chunk / last, tint)
            said = "" if self.tints is None else f", {named(self.tints.names[tint])}"
            said += f", chunk {chunk}" if self.chunks > 1 else ""
            self._fill(
                fields[alike],
                colour,
                f"{MEANING[KINDS[kind]]}{said}",
                edgecolor=OUTLINE,
                linewidth=edge,
                zorder=2,
            )
            centres = np.column_stack(
                [fields[alike, ::2].mean(axis=1), fields[alike, 1::2].mean(axis=1)]
            )
            for part in (boxes["part"][alike] == WHOLE, boxes["part"][alike] != WHOLE):
                if part.any():
                    numbers = boxes["microbatch"][alike][part]
                    label(self.axes, numbers, colour, centres[part], room[alike][part])
        for mode, hatch in modes_of(self.rows):
            chosen = fields[boxes["mode"] == mode]
            self._fill(chosen, "none", f"mode {mode}", edgecolor=OUTLINE, hatch=hatch, zorder=3)

    def _draw_copies(self) -> None:
        """Draw copies between ops and memory, those out above those back."""
        for number, (name, colour) in enumerate((("copy out", COPY_OUT), ("copy back", COPY_BACK))):
            boxes = self.rows.copies[self.rows.copies["kind"] == number]
            _, fields = self._fields(boxes, self.lane + 0.03 + number * self.copy, self.copy)
            if len(fields):
                self._fill(fields, colour, name, edgecolor=OUTLINE, linewidth=0.3, zorder=2)

    def _draw_memory(self) -> None:
        """Draw each device's memory over time: static, in use, and what exceeds the capacity."""
        ends = []
        for row in self.rows.rows:
            base, unit = row.top + 0.94, 0.3 / self.top
            times = np.append(row.memory.times, max(self.ends, int(row.memory.times[-1])))
            held = np.append(row.memory.held, row.memory.held[-1]).astype(float)
            if self.fold is not None:
                shown = self.fold.shown(times)
                times, held = self.fold.moved(times[shown]), held[shown]
            limit = self.top if row.capacity is None else row.capacity
            static = min(row.static, limit)
            steps = ((0, static, STATIC), (static, limit, HELD), (limit, 2 * self.top, EXCESS))
            for low, high, colour in steps:
                if (held > low).any():
                    level = base - unit * np.clip(held, low, max(low, high))
                    self.axes.fill_between(
                        times, base - unit * low, level, step="post", color=colour, linewidth=0
                    )
            self.axes.step(times, base - unit * held, where="post", color=OUTLINE, linewidth=0.5)
            if row.capacity is not None and row.capacity <= self.top:
                ends.append(base - unit * row.capacity)
        self.axes.hlines(ends, 0, self.length, color=CAPACITY, linewidth=0.8, linestyle="--")

    def _draw_fold(self, fold: Fold) -> None:
        """Mark the period that stands for many."""
        self.axes.axvspan(fold.begin, fold.seam, color="#fff3c4", linewidth=0, zorder=0.5)
        self.axes.axvline(fold.seam, color=INK, linewidth=1.2, linestyle=(0, (2, 1.5)), zorder=5)
        self.axes.annotate(
            f"× {fold.times:,}",
            ((fold.begin + fold.seam) / 2, 1),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            fontsize=9,
            weight="bold",
        )
