"""Value against capacity: what is reached, what is proven impossible, and hand-written schedules.

Both are staircases that fall with the capacity. A value holds to the right of its step, a bound to
the left of it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
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
    from pipesat.frontier.levers import Curves

_STYLES: Final = (("#1b6ca8", "o"), ("#c1440e", "s"), ("#187f5e", "D"), ("#6a3d9a", "^"))
_WIDE: Final = 1.5  # times the best value: from here on the values' axis is logarithmic


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

    def bound(self, cap: int) -> int:
        """The bound just above a cap; 0 if there is none."""
        return self.bounds[bisect_right(self.caps, cap)] or 0


def staircases(curves: Curves) -> list[Staircase]:
    """Return what the picture shows of each curve."""
    found = []
    for name, frontier in curves.items():
        curve, marks = frontier.curve, [row.cap for row in frontier.rows if row.cap is not None]
        steps = {*marks, *(known.peak for known in curve.schedules), *(c for c, _ in curve.bounds)}
        caps = sorted(cap for cap in steps if cap is not None and cap >= min(marks))
        values, bounds = [curve.value(cap) for cap in caps], map(curve.bound, [*caps, None])
        published = [(name, known.peak, known.value) for name, known in frontier.published.items()]
        least = [None if bound is None else bound.value for bound in bounds]
        found.append(Staircase(name or "", caps, values, least, marks, published))
    return found


def frontier_figure(
    problem: Problem,
    objective: Objective,
    curves: Sequence[Staircase],
    scale: Scale1F1B | None,
    title: str,
) -> Figure:
    """Draw the curves into one figure. The problem gives the units."""
    from pipesat.picture.figures import figure_of

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
        self.caps = sorted({cap for curve in curves for cap in curve.caps})
        peaks = [peak for curve in curves for _, peak, _ in curve.published]
        self.right = max([1, *self.caps, *peaks])
        memory, unit = unit_of_memory(problem.memory_unit, self.right)
        self.memory, self.x_name = float(memory), in_brackets("memory of every device", unit)
        self.time, unit = unit_of_time(problem.time_unit, self.best)
        self.y_name = in_brackets(objective, unit)
        points = sorted({(peak, v) for curve in curves for _, peak, v in curve.published})
        self.letters = dict(zip(points, ascii_letters, strict=False))

    def drawn(self, title: str) -> Figure:
        """Draw the one filled area, then every curve as lines and points."""
        from pipesat.picture.figures import blank_figure

        figure = blank_figure(10, 6, title)
        axes = figure.subplots()
        lowest = [min(curve.bound(cap) for curve in self.curves) for cap in self.caps]
        floor, top = min([self.best, *filter(None, lowest)]), max([self.best, *self.values])
        axes.set_yscale("log" if top > _WIDE * self.best else "linear")
        axes.set_ylim(0.97 * self.time * floor, 1.05 * self.time * top)
        margin = 0.04 * max(1, self.right - self.caps[0])
        axes.set_xlim(*self._x([self.caps[0] - margin, self.right + 2 * margin]))
        what = "proven impossible" + (" in all curves" if len(self.curves) > 1 else "")
        xs, ys = self._x([*self.caps, 2 * self.right]), self._y([*lowest, lowest[-1]])
        axes.fill_between(xs, 0, ys, step="post", color=HELD, linewidth=0, label=what)
        for curve, style in zip(self.curves, cycle(_STYLES), strict=False):
            self._draw(axes, curve, *style)
        self._frame(axes)
        self._explain(figure)
        return figure

    def _x(self, caps: Sequence[float]) -> list[float]:
        return [self.memory * cap for cap in caps]

    def _y(self, values: Sequence[int | None]) -> list[float]:
        return [math.nan if value is None else self.time * value for value in values]

    def _draw(self, axes: Axes, curve: Staircase, colour: str, marker: str) -> None:
        """Draw a curve's steps, its caps, and its hand-written schedules as open marks."""
        name = f"{curve.name}: " if curve.name else ""
        xs = self._x([*curve.caps, 2 * self.right])
        value, bound = self._y([*curve.values, curve.values[-1]]), self._y(curve.bounds[1:])
        style: dict[str, Any] = {"color": colour, "where": "post"}
        axes.step(xs, value, linewidth=1.8, label=f"{name}best schedule found", **style)
        if len(self.curves) > 1:
            low = [*bound, bound[-1]]
            axes.step(xs, low, linewidth=0.8, linestyle="--", label=f"{name}bound", **style)
        marks = [place for place, cap in enumerate(curve.caps) if cap in curve.marks]
        axes.plot(xs, value, marker, color=colour, markersize=4.5, markevery=marks)
        for peak, time in {(peak, time): name for name, peak, time in curve.published}:
            at = self._x([peak]), self._y([time])
            axes.plot(*at, marker, markersize=9, markerfacecolor="white", markeredgecolor=colour)
            letter = f"$\\mathrm{{{self.letters.get((peak, time), '+')}}}$"
            axes.plot(*at, marker=letter, markersize=5, color=colour, markeredgewidth=0.3, zorder=4)

    def _frame(self, axes: Axes) -> None:
        """Name the axes; above, the share of 1F1B's memory; right, what is lost to the best."""
        from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

        axes.set_xlabel(self.x_name, fontsize=8, parse_math=False)
        axes.set_ylabel(self.y_name, fontsize=8, parse_math=False)
        axes.grid(color=GRID, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        right = axes.secondary_yaxis("right", functions=_line(0, self.time * self.best))
        right.set_ylabel("times the best", color=FAINT_INK, fontsize=8)
        faint = [right]
        if self.scale is not None:
            zero, one = self._x([self.scale.static, self.scale.activations])
            above = axes.secondary_xaxis("top", functions=_line(zero, one))
            above.set_xlabel("activation memory / 1F1B's", color=FAINT_INK, fontsize=8)
            above.xaxis.set_major_locator(MaxNLocator(10))
            faint.append(above)
        for secondary in faint:
            secondary.tick_params(colors=FAINT_INK, labelsize=8)
        for axis in (axes.xaxis, axes.yaxis, right.yaxis):
            axis.set_major_formatter("{x:,g}")
            axis.set_minor_formatter(NullFormatter())
        if axes.get_yscale() == "log":
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 5, 7)))
            right.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 5, 7)))

    def _explain(self, figure: Figure) -> None:
        """Draw the legend, and which letter is which hand-written schedule."""
        names: dict[str, dict[str, None]] = {}
        for curve in self.curves:
            for name, peak, value in curve.published:
                names.setdefault(self.letters.get((peak, value), "+"), {})[name] = None
        said = ",  ".join(f"{letter}\u00a0{' = '.join(names[letter])}" for letter in sorted(names))
        figure.legend(
            loc="outside lower left",
            ncols=max(2, min(4, 1 + len(self.curves))),
            frameon=False,
            fontsize=8,
            title=fill(f"Open marks, hand-written: {said}", 150) if names else None,
            title_fontsize=8,
            alignment="left",
        )


def _line(zero: float, one: float) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the functions of an axis whose 0 and 1 are at these places, and back."""
    import numpy as np

    return (lambda x: (np.asarray(x) - zero) / one), (lambda x: zero + np.asarray(x) * one)
