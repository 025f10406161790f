"""A Gantt chart: true time scale, one row per device, memory below its ops.

Across are time units, down are rows. Ops of one colour are one shape, so that many stay fast.
"""

from __future__ import annotations

from math import ceil
from typing import Any, Final

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipesat.core.arrays import Floats
from pipesat.draw.device_rows import LOWER, WHOLE, Boxes, Fold, Rows, fold_of
from pipesat.draw.figures import (
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
from pipesat.draw.style import (
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
from pipesat.problem.ops import KINDS
from pipesat.problem.problem import Problem

_NARROWEST, _WIDEST = 10.0, 24.0  # inches
_TALLEST: Final = 30.0
_ROW: Final = 0.56  # inches of a device's row if there are at most eight
_LEAST_ROW_WITH_MEMORY: Final = 0.2
_NAME: Final = 0.14  # inches that the name of a row takes
_FAR_CAPACITY: Final = 2  # times the largest peak: beyond it, capacities are only given as numbers


def chart(problem: Problem, rows: Rows, title: str, unit: str, *, whole: bool = False) -> Figure:
    """Draw rows whose times have a unit, ``whole`` also where a middle repeats."""
    return figure_of(lambda: _Chart(problem, rows, unit, whole=whole).drawn(title))


def _inches_wanted(ops: Boxes, length: float) -> float:
    """Width at which nine of ten ops have space for their number, turned if need be."""
    lengths = ops["end"] - ops["start"]
    if not lengths.any():
        return 0.0
    return 1.0 + 0.9 * LEAST / 72 * length / float(np.quantile(lengths[lengths > 0], 0.1))


def _fold(rows: Rows, length: int) -> Fold | None:
    """Return what repeats, if most numbers would not fit else, and it leaves out a third."""
    if not rows.alone or _inches_wanted(rows.of(), length) <= 1.3 * _NARROWEST:
        return None
    found = fold_of(rows.boxes)
    return found if found is not None and 3 * found.hidden > length else None


class _Chart:
    """A chart while it is drawn: across in the unit that is shown, down in rows."""

    def __init__(self, problem: Problem, rows: Rows, unit: str, *, whole: bool) -> None:
        self.problem, self.rows = problem, rows
        self.ends = max([0, *rows.boxes["end"].tolist()])
        self.fold = None if whole else _fold(rows, self.ends)
        self.length = max(1, self.ends - (self.fold.hidden if self.fold else 0))
        self.scale, self.unit = unit_of_time(unit, self.ends)
        self.tints = class_tints(problem)
        self.chunks = max(map(len, problem.stages_on))
        self.height = max(1.0, rows.height)
        self.pitch = min(_ROW * min(1.0, 8 / self.height) ** 0.45, (_TALLEST - 2) / self.height)
        peak = max([0, *(row.peak for row in rows.rows)])
        limits = [row.capacity for row in rows.rows if row.capacity is not None]
        self.top = max([1, peak, *(c for c in limits if c <= _FAR_CAPACITY * peak)])
        self.memory = rows.alone and bool(peak or limits) and self.pitch >= _LEAST_ROW_WITH_MEMORY
        self.copy = 0.07 if len(rows.of("O", "L")) else 0.0
        self.lane = (0.56 if self.memory else 0.8) - 2 * self.copy

    def drawn(self, title: str) -> Figure:
        """Draw everything; return the figure."""
        wanted = _inches_wanted(self.rows.of(), self.length)
        width = max(_NARROWEST, wanted if wanted <= _WIDEST else 1.6 * _NARROWEST)
        figure = blank_figure(width, 1.5 + self.pitch * self.height, title)
        self.axes = figure.subplots()
        self._frame()
        if self.memory:
            self._name_peaks()
        draw_legend(figure, self.problem, self.rows, self.top if self.memory else None)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # what was laid out stays as the numbers found it
        self._draw_ops()
        self._draw_copies()
        if self.memory:
            self._draw_memory()
        if self.fold is not None:
            self._draw_fold(self.fold)
        return figure

    def _x(self, times: Any) -> Any:
        """Where times are drawn."""
        return self.scale * (times if self.fold is None else self.fold.moved(times))

    def _time(self, x: float, _: object = None) -> str:
        """What a place on the axis is called."""
        after = self.fold is not None and x >= self.scale * self.fold.seam
        hidden = self.scale * self.fold.hidden if self.fold is not None and after else 0
        return f"{x + hidden:,.6g}"

    def _frame(self) -> None:
        """Name the rows, and the times below them."""
        axes, rows = self.axes, self.rows.rows
        axes.set_xlim(0, self.scale * self.length)
        axes.set_ylim(self.height, -0.15)
        some = rows[:: ceil(_NAME / self.pitch)]
        names = [short(row.name, 22) for row in some]
        places = [row.top + self.lane / 2 for row in some]
        axes.set_yticks(places, names, fontsize=9 if self.pitch > _NAME else 7)
        for text in axes.get_yticklabels():
            text.set_parse_math(False)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(9))
        axes.xaxis.set_major_formatter(self._time)
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(axis="x", labelsize=8)
        axes.set_xlabel(in_brackets("time", self.unit), fontsize=8, parse_math=False)

    def _name_peaks(self) -> None:
        """Write each device's peak, and its capacity where these differ, beside its row."""
        rows, unit = self.rows.rows, self.problem.memory_unit
        differ = len({row.capacity for row in rows}) > 1
        amounts = [[row.peak, *([row.capacity] if differ and row.capacity else [])] for row in rows]
        texts = [
            " / ".join(amount_text(x, unit, self.top, row.capacity) for x in each)
            for row, each in zip(rows, amounts, strict=True)
        ]
        right = self.axes.secondary_yaxis("right")
        right.spines["right"].set_visible(False)
        right.set_yticks([row.top + 0.8 for row in rows], texts, fontsize=8)
        right.tick_params(length=0)
        heading = "peak / capacity" if differ else "peak"
        at = self.axes.transAxes
        self.axes.text(1.005, 1.0, heading, fontsize=8, color=FAINT_INK, transform=at)

    def _fields(self, boxes: Boxes, top: float, height: float) -> tuple[Boxes, Floats]:
        """Boxes that are drawn, and their left, upper, right and lower ends."""
        if self.fold is not None:
            boxes = boxes[self.fold.shown(boxes["start"])]
        each = np.where(boxes["part"] == WHOLE, height, height / 2)  # a pair's are half as high
        upper = np.array([row.top for row in self.rows.rows])[boxes["row"]] + top
        upper = upper + np.where(boxes["part"] == LOWER, each, 0.0)
        left = self._x(boxes["start"])
        right = left + self.scale * (boxes["end"] - boxes["start"])
        return boxes, np.column_stack([left, upper, right, upper + each])

    def _fill(self, fields: Floats, colour: str, name: str, **style: Any) -> None:
        """Draw rectangles of one colour as one collection, which an SVG names."""
        corners = fields[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        style = {"linewidth": 0.0, "gid": short(name, 80)} | style
        shapes = PolyCollection(corners, facecolor=colour, **style)  # type: ignore[arg-type]
        self.axes.add_collection(shapes, autolim=False)

    def _draw_ops(self) -> None:
        """Draw ops by colour, each with its number where that has space."""
        tops = np.array([row.top for row in self.rows.rows])
        ends = self.scale * self.length
        idle = np.column_stack([0 * tops, tops, 0 * tops + ends, tops + self.lane])
        self._fill(idle, IDLE, "idle", zorder=0.6)
        boxes, fields = self._fields(self.rows.of(), 0.0, self.lane)
        if not len(boxes):
            return
        extent = self.axes.get_window_extent()
        points = 72 / self.axes.figure.dpi
        space = np.column_stack([fields[:, 2] - fields[:, 0], fields[:, 3] - fields[:, 1]])
        space *= (points * extent.width / ends, points * extent.height / (self.height + 0.15))
        edge = min(0.5, 0.1 * float(np.median(space[:, 0])))
        outlined = {"edgecolor": OUTLINE, "linewidth": edge, "zorder": 2}
        last = max(1, self.chunks - 1)
        for kind, chunk, tint in np.unique(boxes[["kind", "chunk", "tint"]]).tolist():
            alike = (boxes["kind"] == kind) & (boxes["chunk"] == chunk) & (boxes["tint"] == tint)
            colour = fill(KINDS[kind], chunk / last, tint)
            said = "" if self.tints is None else f", {named(self.tints.names[tint])}"
            said += f", chunk {chunk}" if self.chunks > 1 else ""
            own = fields[alike]
            self._fill(own, colour, f"{MEANING[KINDS[kind]]}{said}", **outlined)
            centres = (own[:, :2] + own[:, 2:]) / 2
            label(self.axes, boxes["microbatch"][alike], colour, centres, space[alike])
        for mode, hatch in modes_of(self.rows):
            chosen = fields[boxes["mode"] == mode]
            self._fill(chosen, "none", f"mode {mode}", edgecolor=OUTLINE, hatch=hatch, zorder=3)

    def _draw_copies(self) -> None:
        """Draw copies between ops and memory, those out above those back."""
        kinds = (("O", "copy out", COPY_OUT), ("L", "copy back", COPY_BACK))
        for number, (kind, name, colour) in enumerate(kinds):
            top = self.lane + 0.03 + number * self.copy
            _, fields = self._fields(self.rows.of(kind), top, self.copy)
            if len(fields):
                self._fill(fields, colour, name, edgecolor=OUTLINE, linewidth=0.3, zorder=2)

    def _draw_memory(self) -> None:
        """Draw each device's memory over time: static, in use, and what exceeds the capacity."""
        for row in self.rows.rows:
            base, unit = row.top + 0.94, 0.3 / self.top
            times = np.append(row.memory.times, max(self.ends, int(row.memory.times[-1])))
            held = np.append(row.memory.held, row.memory.held[-1]).astype(float)
            if self.fold is not None:
                shown = self.fold.shown(times)
                times, held = times[shown], held[shown]
            xs, limit = self._x(times), self.top if row.capacity is None else row.capacity
            static = min(row.static, limit)
            steps = ((0, static, STATIC), (static, limit, HELD), (limit, 2 * self.top, EXCESS))
            for low, high, colour in steps:
                level = base - unit * np.clip(held, low, max(low, high))
                at = {"step": "post", "color": colour, "linewidth": 0}
                self.axes.fill_between(xs, base - unit * low, level, **at)  # type: ignore[arg-type]
            self.axes.step(xs, base - unit * held, where="post", color=OUTLINE, linewidth=0.5)
            if row.capacity is not None and row.capacity <= self.top:
                cap = base - unit * row.capacity
                ends, style = self.scale * self.length, {"color": CAPACITY, "linewidth": 0.8}
                self.axes.hlines(cap, 0, ends, linestyle="--", **style)  # type: ignore[arg-type]

    def _draw_fold(self, fold: Fold) -> None:
        """Mark the period that stands for many."""
        begin, seam = self.scale * fold.begin, self.scale * fold.seam
        self.axes.axvspan(begin, seam, color="#fff3c4", linewidth=0, zorder=0.5)
        self.axes.axvline(seam, color=INK, linewidth=1.2, linestyle=(0, (2, 1.5)), zorder=5)
        where = self.axes.get_xaxis_transform()
        style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 9, "weight": "bold"}
        self.axes.text((begin + seam) / 2, 1, f"× {fold.times:,}", transform=where, **style)
