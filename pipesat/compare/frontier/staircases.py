"""Value against capacity: what is reached, what is proven impossible, and hand-written schedules.

Both are staircases that fall with the capacity. A value holds to the right of its step, a bound
up to the next amount of memory that a device can hold.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from operator import itemgetter
from string import ascii_letters
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

from pipesat.compare.frontier.capacities import attainable, rounded_down
from pipesat.core.amounts import significant
from pipesat.draw.style import FAINT_INK, GRID, HELD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipesat.compare.frontier.by_mode import Curves
    from pipesat.compare.frontier.capacities import Scale1F1B
    from pipesat.problem.problem import Problem
    from pipesat.schedule.schedule import Objective

_STYLES: Final = (("#1b6ca8", "o"), ("#c1440e", "s"), ("#187f5e", "D"), ("#6a3d9a", "^"))
_FEW_TICKS: Final = 4  # times the least value: up to here ticks at equal distances
_TICKS: Final = {30: (1, 1.5, 2, 3, 4, 5, 7), 300: (1, 2, 5), math.inf: (1,)}
"""Which multiples of powers of ten have a tick, by the largest value over the least."""
_FAR: Final = 2.5  # times the table's largest capacity: marks further right are only named
_MARK: Final = 9.0  # points across
_WIDE: Final = 1.5  # times the best value: from here on the values' axis is logarithmic


@dataclass(frozen=True)
class Staircase:
    """One curve.

    ``values[i]`` holds from ``caps[i]`` on, ``bounds[i + 1]`` from there to the next of them, the
    last one with unlimited memory, the first one up to ``caps[0]``. ``marks`` are the caps of the
    table, ``published`` has name, peak and value of hand-written schedules.
    """

    name: str
    caps: Sequence[float]
    values: Sequence[float | None]
    bounds: Sequence[float | None]
    marks: Sequence[float]
    published: Sequence[tuple[str, float, float]]

    def bound(self, cap: float) -> float:
        """The bound just above a cap; 0 if there is none."""
        return self.bounds[bisect_right(self.caps, cap)] or 0

    def scaled(self, memory: float, time: float) -> Staircase:
        """Return the curve in the units that are shown; what is unknown is not drawn."""

        def times(values: Sequence[float | None]) -> list[float]:
            return [math.nan if value is None else time * value for value in values]

        return Staircase(
            self.name,
            [memory * cap for cap in self.caps],
            times(self.values),
            times(self.bounds),
            [memory * cap for cap in self.marks],
            [(name, memory * peak, time * value) for name, peak, value in self.published],
        )


def staircases(curves: Curves) -> list[Staircase]:
    """Return what the picture shows of each curve."""
    found = []
    for name, frontier in curves.items():
        curve, marks = frontier.curve, [row.cap for row in frontier.rows if row.cap is not None]
        proven = [cap for cap, _ in curve.bounds if cap is not None]
        peaks = [known.peak for known in curve.schedules]
        amounts = attainable(curve.problem, max([*marks, *peaks, *proven]))
        above = (amounts[n] for n in (bisect_right(amounts, c) for c in proven) if n < len(amounts))
        caps = sorted(cap for cap in {*marks, *peaks, *above} if cap >= min(marks))
        values = [curve.value(cap) for cap in caps]
        # what holds for an amount holds up to the next one that any device can hold
        held = (rounded_down(amounts, cap) for cap in caps[:-1])
        bounds = map(curve.bound, [caps[0], *held, None])
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
    from pipesat.draw.figures import figure_of

    return figure_of(lambda: _drawn(problem, objective, curves, scale, title))


def _drawn(
    problem: Problem,
    objective: Objective,
    given: Sequence[Staircase],
    scale: Scale1F1B | None,
    title: str,
) -> Figure:
    """Draw the one filled area, then every curve as lines and points, in units that suit them."""
    from pipesat.draw.figures import blank_figure, in_brackets, unit_of_memory, unit_of_time

    peaks = [peak for one in given for _, peak, _ in one.published]
    peaks += [cap for one in given for cap in one.caps]
    far = _FAR * max(cap for one in given for cap in one.marks)
    right = max([1, *(peak for peak in peaks if peak <= far)])
    best = min((value for one in given for value in one.values if value), default=1)
    memory, memory_unit = unit_of_memory(problem.memory_unit, right)
    time, time_unit = unit_of_time(problem.time_unit, best)
    curves = [one.scaled(float(memory), time) for one in given]
    right, best = float(memory) * right, time * best
    known = {cap for one in given for cap in one.caps}
    caps = [float(memory) * cap for cap in sorted(known)]
    lowest = [time * min(one.bound(cap) for one in given) for cap in sorted(known)]
    top = max([best, *(value for one in curves for value in one.values if value and value > 0)])

    figure = blank_figure(10, 6, title)
    axes = figure.subplots()
    axes.set_yscale("log" if top > _WIDE * best else "linear")
    axes.set_ylim(0.97 * min([best, *filter(None, lowest)]), 1.05 * top)
    margin = 0.04 * max(float(memory), right - caps[0])
    axes.set_xlim(caps[0] - margin, right + 2 * margin)
    what = "proven impossible" + (" in all curves" if len(curves) > 1 else "")
    area: dict[str, Any] = {"step": "post", "color": HELD, "linewidth": 0, "label": what}
    axes.fill_between([*caps, 2 * right], 0, [*lowest, lowest[-1]], **area)
    marks = {(peak, value) for one in curves for _, peak, value in one.published if peak <= right}
    letters = _letters(axes, marks)
    for curve, style in zip(curves, cycle(_STYLES), strict=False):
        _draw(axes, curve, letters, 2 * right, *style, alone=len(curves) == 1)
    axes.set_xlabel(
        in_brackets("memory of every device", memory_unit), fontsize=8, parse_math=False
    )
    scaled = f"{in_brackets(objective, time_unit)}{', log scale' * (axes.get_yscale() == 'log')}"
    axes.set_ylabel(scaled, fontsize=8, parse_math=False)
    _frame(axes, best, scale, float(memory))
    _explain(figure, curves, letters, memory_unit)
    return figure


def _letters(axes: Axes, points: Iterable[tuple[float, float]]) -> dict[tuple[float, float], str]:
    """Return a letter for every point; those whose marks would overlap share one."""
    from math import dist

    found: dict[tuple[float, float], str] = {}
    letters, size = iter(ascii_letters), _MARK * axes.figure.dpi / 72
    for point in sorted(points):
        places = axes.transData.transform([*found, point])
        near = [
            x for x, at in zip(found.values(), places, strict=False) if dist(at, places[-1]) < size
        ]
        found[point] = near[0] if near else next(letters, "+")
    return found


def _draw(
    axes: Axes,
    curve: Staircase,
    letters: Mapping[tuple[float, float], str],
    end: float,
    colour: str,
    marker: str,
    *,
    alone: bool,
) -> None:
    """Draw a curve's steps, its caps, and its hand-written schedules as open marks."""
    name = f"{curve.name}: " if curve.name else ""
    xs, style = [*curve.caps, end], {"color": colour, "where": "post"}
    values, bounds = [*curve.values, curve.values[-1]], [*curve.bounds[1:], curve.bounds[-1]]
    axes.step(xs, values, linewidth=1.8, label=f"{name}best schedule found", **style)  # type: ignore[arg-type]
    if not alone:
        dashed = {"linewidth": 0.8, "linestyle": "--", "label": f"{name}bound"} | style
        axes.step(xs, bounds, **dashed)  # type: ignore[arg-type]
    marks = [place for place, cap in enumerate(curve.caps) if cap in curve.marks]
    axes.plot(xs, values, marker, color=colour, markersize=4.5, markevery=marks)  # type: ignore[arg-type]
    own = ((peak, value) for _, peak, value in curve.published)
    for letter, at in {letters[at]: at for at in own if at in letters}.items():
        axes.plot(
            *at, marker, markersize=_MARK, markerfacecolor="white", markeredgecolor=colour, zorder=3
        )
        text = f"$\\mathrm{{{letter}}}$"
        axes.plot(*at, marker=text, markersize=5, color=colour, markeredgewidth=0.3, zorder=4)


def _frame(axes: Axes, best: float, scale: Scale1F1B | None, memory: float) -> None:
    """Name the axes; above, the share of 1F1B's memory; right, what is lost to the best."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    axes.grid(color=GRID, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    right = axes.secondary_yaxis("right", functions=_line(0, best))
    right.set_ylabel("times the best", color=FAINT_INK, fontsize=8)
    right.tick_params(colors=FAINT_INK, labelsize=8)
    if scale is not None:
        shares = _line(memory * scale.static, memory * scale.activations)
        above = axes.secondary_xaxis("top", functions=shares)
        above.set_xlabel("activation memory / 1F1B's", color=FAINT_INK, fontsize=8)
        above.xaxis.set_major_locator(MaxNLocator(10))
        above.tick_params(colors=FAINT_INK, labelsize=8)
    low, high = axes.get_ylim()
    few = high / low < _FEW_TICKS
    subs = next(subs for most, subs in _TICKS.items() if high / low < most)
    for axis in (axes.xaxis, axes.yaxis, right.yaxis):
        axis.set_major_formatter("{x:,g}")
        axis.set_minor_formatter(NullFormatter())
        if axis is not axes.xaxis and axes.get_yscale() == "log":
            axis.set_major_locator(MaxNLocator(6) if few else LogLocator(subs=subs, numticks=99))
            axis.set_minor_locator(NullLocator())


def _explain(
    figure: Figure,
    curves: Sequence[Staircase],
    letters: Mapping[tuple[float, float], str],
    unit: str,
) -> None:
    """Draw the legend, and which letter is which hand-written schedule."""
    names: dict[str, dict[float, dict[str, None]]] = {}
    for name, *at in sorted(chain(*(curve.published for curve in curves)), key=itemgetter(1, 2)):
        key = letters.get((at[0], at[1])) or f"at {significant(at[0], 3)} {unit}:"
        names.setdefault(key, {}).setdefault(at[1], {})[name] = None
    said = [f"{key}\u00a0{' ≈ '.join(map(' = '.join, of.values()))}" for key, of in names.items()]
    marks = ". Open marks, hand-written: " * bool(said) + ",  ".join(said)
    figure.legend(
        loc="outside lower left",
        ncols=max(2, min(4, 1 + len(curves))),
        frameon=False,
        fontsize=8,
        title=fill(f"Dots: rows of the table{marks}", 150),
        title_fontsize=8,
        alignment="left",
    )


def _line(zero: float, one: float) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the functions of an axis whose 0 and 1 are at these places, and back."""
    import numpy as np

    return (lambda x: (np.asarray(x) - zero) / one), (lambda x: zero + np.asarray(x) * one)
