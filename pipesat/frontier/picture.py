"""Value against capacity: what is reached, what is proven impossible, and hand-written schedules.

Both are staircases that fall with the capacity. A value holds to the right of its step, a bound to
the left of it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_letters
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

from pipesat.picture.style import FAINT_INK, GRID, HELD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Objective
    from pipesat.frontier.caps import Scale1F1B

_COLOURS: Final = ("#1b6ca8", "#c1440e", "#187f5e", "#6a3d9a")
_MARKERS: Final = ("o", "s", "D", "^")
_ZOOM: Final = 1.45  # times the best value: as far up as the second panel shows


@dataclass(frozen=True)
class Staircase:
    """One curve.

    ``values[i]`` holds from ``caps[i]`` on, ``bounds[i]`` up to ``caps[i]``; one more bound than
    there are caps holds with unlimited memory. ``marks`` are the caps of the table,
    ``published`` has name, peak and value of hand-written schedules.
    """

    name: str
    caps: Sequence[int]
    values: Sequence[int | None]
    bounds: Sequence[int | None]
    marks: Sequence[int]
    published: Sequence[tuple[str, int, int]]

    def value(self, cap: int) -> int | None:
        """The best value at a cap."""
        fitting = [v for c, v in zip(self.caps, self.values, strict=True) if c <= cap]
        return fitting[-1] if fitting else None

    def bound(self, cap: int) -> int:
        """The bound just above a cap; 0 if there is none."""
        return self.bounds[bisect_right(self.caps, cap)] or 0


def frontier_pictures(
    problem: Problem,
    objective: Objective,
    curves: Sequence[Staircase],
    scale: Scale1F1B | None,
    *,
    title: str | None = None,
) -> dict[str, bytes]:
    """Draw the curves into one picture; return its files: ``png``, and ``svg`` with drawn texts.

    The problem gives units, and its name if there is no title.
    """
    from pipesat.picture.figures import png_and_svg

    return png_and_svg(frontier_figure(problem, objective, curves, scale, title=title))


def frontier_figure(
    problem: Problem,
    objective: Objective,
    curves: Sequence[Staircase],
    scale: Scale1F1B | None,
    *,
    title: str | None = None,
) -> Figure:
    """Draw the curves into one figure; see :func:`frontier_pictures`."""
    from pipesat.picture.figures import figure_of

    title = title or f"{problem.name or 'problem'}: what memory buys"
    return figure_of(lambda: _Frontier(problem, objective, curves, scale).drawn(title))


class _Frontier:
    """A picture while it is drawn. All amounts are shown in units that suit the largest."""

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        curves: Sequence[Staircase],
        scale: Scale1F1B | None,
    ) -> None:
        from pipesat.picture.figures import in_brackets, unit_of_memory, unit_of_time

        self.curves, self.scale = curves, scale
        self.values = [v for curve in curves for v in curve.values if v is not None]
        self.best = min([v for v in self.values if v], default=1)
        self.lefts = [curve.caps[0] for curve in curves if curve.caps] or [0]
        peaks = [peak for curve in curves for _, peak, _ in curve.published]
        self.right = max([1, *(cap for curve in curves for cap in curve.caps), *peaks])
        memory, unit = unit_of_memory(problem.memory_unit, self.right)
        self.memory, self.x_name = float(memory), in_brackets("memory of every device", unit)
        self.time, unit = unit_of_time(problem.time_unit, self.best)
        self.y_name = in_brackets(objective, unit)
        points = sorted({(peak, v) for curve in curves for _, peak, v in curve.published})
        self.letters = dict(zip(points, ascii_letters, strict=False))

    def drawn(self, title: str) -> Figure:
        """Draw all curves, and those of much longer values once more near the best."""
        from pipesat.picture.figures import blank_figure

        figure = blank_figure(10, 6, title)
        zoomed = bool(self.values) and max(self.values) > 1.15 * _ZOOM * self.best
        panels = figure.subplots(1, 2, width_ratios=(1, 2.6)) if zoomed else [figure.subplots()]
        for axes in panels:
            self._draw(axes, lettered=axes is panels[-1])
        margin = 0.04 * max(1, self.right - min(self.lefts))
        panels[0].set_xlim(*self._x(min(self.lefts) - margin, self.right + 2 * margin))
        if zoomed:
            near = [left for curve in self.curves for left in _below(curve, _ZOOM * self.best)]
            left = min(near, default=min(self.lefts))
            margin = 0.04 * max(1, self.right - left)
            panels[1].set_xlim(*self._x(left - margin, self.right + 2 * margin))
            least = min([self.best, *(c.bound(left) for c in self.curves)])
            panels[1].set_ylim(*(self.time * y for y in (0.985 * least, _ZOOM * self.best)))
            panels[1].set_ylabel("")
            panels[0].locator_params("x", nbins=4)
        self._explain(figure, panels[-1])
        return figure

    def _x(self, *caps: float) -> list[float]:
        return [self.memory * cap for cap in caps]

    def _draw(self, axes: Axes, *, lettered: bool) -> None:
        """Draw the one filled area, then every curve as lines and points."""
        ends = sorted({min(self.lefts), *(cap for curve in self.curves for cap in curve.caps)})
        lowest = [min([curve.bound(cap) for curve in self.curves], default=0) for cap in ends]
        xs = self._x(*ends, 2 * self.right)
        axes.fill_between(
            xs,
            0,
            [self.time * y for y in [*lowest, *lowest[-1:]]],
            step="post",
            color=HELD,
            linewidth=0,
            label="proven impossible in all curves"
            if len(self.curves) > 1
            else "proven impossible",
        )
        tops = [self.time * v for v in self.values]
        axes.set_ylim(
            0.95 * self.time * min(y for y in lowest if y) if any(lowest) else 0,
            1.05 * max(tops, default=1),
        )
        for position, curve in enumerate(self.curves):
            self._draw_curve(axes, curve, position, lettered=lettered)
        self._frame(axes, lettered=lettered)

    def _draw_curve(self, axes: Axes, curve: Staircase, position: int, *, lettered: bool) -> None:
        colour, marker = _COLOURS[position % len(_COLOURS)], _MARKERS[position % len(_MARKERS)]
        name = f"{curve.name}: " if curve.name else ""
        xs = self._x(*curve.caps, 2 * self.right)
        top = [
            math.nan if v is None else self.time * v for v in [*curve.values, *curve.values[-1:]]
        ]
        low = [
            math.nan if v is None else self.time * v
            for v in [*curve.bounds[1:], *curve.bounds[-1:]]
        ]
        style: dict[str, Any] = {"color": colour, "where": "post"}
        axes.step(xs, top, linewidth=1.8, label=f"{name}best schedule found", **style)
        if len(self.curves) > 1:
            axes.step(xs, low, linewidth=0.8, linestyle="--", label=f"{name}bound", **style)
        marks = [(cap, v) for cap in curve.marks if (v := curve.value(cap)) is not None]
        self._points(axes, marks, marker=marker, color=colour, markersize=4.5)
        open_marks: dict[str, Any] = {
            "markerfacecolor": "white",
            "markeredgecolor": colour,
            "zorder": 3,
        }
        published = [(peak, value) for _, peak, value in curve.published]
        size = 9 if lettered else 5
        self._points(axes, published, marker=marker, markersize=size, **open_marks)
        for point in dict.fromkeys(published) if lettered else []:
            letter = f"$\\mathrm{{{self.letters.get(point, '+')}}}$"
            self._points(
                axes,
                [point],
                marker=letter,
                markersize=5,
                color=colour,
                markeredgewidth=0.3,
                zorder=4,
            )

    def _points(self, axes: Axes, points: Sequence[tuple[int, int]], **style: Any) -> None:
        ys = [self.time * value for _, value in points]
        axes.plot(self._x(*(cap for cap, _ in points)), ys, linestyle="none", **style)

    def _frame(self, axes: Axes, *, lettered: bool) -> None:
        """Name the axes; above, the share of 1F1B's memory; right, the loss to the best."""
        import numpy as np
        from matplotlib.ticker import MaxNLocator

        axes.set_xlabel(self.x_name, fontsize=8, parse_math=False)
        axes.set_ylabel(self.y_name, fontsize=8, parse_math=False)
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(color=GRID, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        if self.scale is not None:
            zero, one = self._x(self.scale.static, self.scale.activations)
            above = axes.secondary_xaxis(
                "top",
                functions=(
                    lambda x: (np.asarray(x) - zero) / one,
                    lambda x: zero + np.asarray(x) * one,
                ),
            )
            _faint(above, above.set_xlabel, "activation memory / 1F1B's")
            above.xaxis.set_major_locator(MaxNLocator(10 if lettered else 3))
        if lettered:
            best = self.time * self.best
            beside = axes.secondary_yaxis(
                "right",
                functions=(
                    lambda y: 100 * (np.asarray(y) / best - 1),
                    lambda y: best * (1 + np.asarray(y) / 100),
                ),
            )
            _faint(beside, beside.set_ylabel, "above the best (%)")

    def _explain(self, figure: Figure, axes: Axes) -> None:
        """Draw the legend, and which letter is which hand-written schedule."""
        names: dict[str, dict[str, None]] = {}
        for curve in self.curves:
            for name, peak, value in curve.published:
                names.setdefault(self.letters.get((peak, value), "+"), {})[name] = None
        said = ",  ".join(f"{letter}\u00a0{' = '.join(names[letter])}" for letter in sorted(names))
        figure.legend(
            *axes.get_legend_handles_labels(),
            loc="outside lower left",
            ncols=max(2, min(4, 1 + len(self.curves))),
            frameon=False,
            fontsize=8,
            title=fill(f"Open marks, hand-written: {said}", 150) if names else None,
            title_fontsize=8,
            alignment="left",
        )


def _faint(axis: Any, name: Any, text: str) -> None:
    """Name a second axis."""
    name(text, color=FAINT_INK, fontsize=8)
    axis.tick_params(colors=FAINT_INK, labelsize=8)


def _below(curve: Staircase, limit: float) -> Iterator[int]:
    """The first cap whose value is at most a limit."""
    for cap, value in zip(curve.caps, curve.values, strict=True):
        if value is not None and value <= limit:
            yield cap
            return
