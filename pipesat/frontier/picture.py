"""Value against capacity: what is reached, what is proven impossible, and hand-written schedules.

Both are staircases that fall with the cap. A value holds to the right of its step, a bound to the
left of it; the truth lies in the shaded area between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pipesat.picture.both_formats import DPI, blank_figure, png_and_svg
from pipesat.picture.lettering import fitted, text_width
from pipesat.picture.style import FAINT_INK, GRID, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Objective
    from pipesat.frontier.caps import Scale1F1B

_COLOURS: Final = ("#1b6ca8", "#c1440e", "#187f5e", "#6a3d9a")
_MARKERS: Final = ("o", "s", "D", "^")
_SHARES: Final = (1, 2, 0.5, 4, 0.25, 8, 0.125, 16)  # of 1F1B's memory, the most telling first
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
    return png_and_svg(lambda: frontier_figure(problem, objective, curves, scale, title=title))


def frontier_figure(
    problem: Problem,
    objective: Objective,
    curves: Sequence[Staircase],
    scale: Scale1F1B | None,
    *,
    title: str | None = None,
) -> Figure:
    """Draw the curves into one figure; see :func:`frontier_pictures`."""
    figure = _figure(problem, objective, curves, scale)
    _entitle(figure, title or f"{problem.name or 'problem'}: what memory buys")
    _label(figure, curves, scale)
    return figure


def _figure(
    problem: Problem, objective: Objective, curves: Sequence[Staircase], scale: Scale1F1B | None
) -> Figure:
    figure = blank_figure(13, 7)
    values = [v for curve in curves for v in curve.values if v is not None]
    best = min([v for v in values if v], default=1)
    least = min([v for curve in curves for v in [*curve.bounds, best] if v], default=1)
    zoomed = bool(values) and max(values) > 1.15 * _ZOOM * best
    panels = figure.subplots(1, 2, width_ratios=(1, 2.4)) if zoomed else [figure.subplots()]
    right = max([c for curve in curves for c in _places(curve)], default=1)
    for number, axes in enumerate(panels):
        for position, curve in enumerate(curves):
            _draw(axes, curve, position, right)
        detail = number == len(panels) - 1
        left = min([curve.caps[0] for curve in curves if curve.caps], default=0)
        if zoomed and detail:
            left = min((c for curve in curves for c in _below(curve, _ZOOM * best)), default=left)
            axes.set_ylim(least * 0.985, best * _ZOOM)
        elif zoomed:
            _set_logarithmic_y(axes, best, max(values))
        _set_x(axes, left, right, logarithmic=zoomed and not detail)
        _name_axes(axes, problem, objective, scale, best if detail else None)
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _entitle(figure: Figure, title: str) -> None:
    figure.suptitle(fitted(title, 1100, 17), x=0.01, ha="left", weight="bold", parse_math=False)


def _label(figure: Figure, curves: Sequence[Staircase], scale: Scale1F1B | None) -> None:
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what was laid out stays where the labels find it
    for axes in figure.axes:
        if axes.get_xscale() == "log":
            _set_memory_ticks(axes, scale)
    _label_points(figure, figure.axes[-1], curves)


def _places(curve: Staircase) -> list[int]:
    return [*curve.caps, *(peak for _, peak, _ in curve.published)]


def _below(curve: Staircase, limit: float) -> list[int]:
    pairs = zip(curve.caps, curve.values, strict=True)
    return [cap for cap, value in pairs if value is not None and value <= limit][:1]


def _set_logarithmic_y(axes: Axes, best: int, worst: int) -> None:
    """Ticks at multiples of the best value."""
    axes.set_yscale("log")
    multiples = [x for x in (1, 1.5, 2, 3, 5, 10, 20, 50, 100) if x * best <= 1.1 * worst]
    axes.set_yticks([x * best for x in multiples], [f"{x:g} x" for x in multiples])


def _set_x(axes: Axes, left: int, right: int, *, logarithmic: bool) -> None:
    if logarithmic and left > 0:
        axes.set_xscale("log")
        axes.set_xlim(left / 1.15, right * 1.15)
    else:
        margin = 0.04 * max(1, right - left)
        axes.set_xlim(left - margin, right + 2 * margin)


def _set_memory_ticks(axes: Axes, scale: Scale1F1B | None) -> None:
    """On a logarithmic axis: as many round amounts, and above it shares of 1F1B's, as have room."""
    amounts = [digit * 10**power for digit in (1, 5, 2, 3, 7) for power in range(19)]
    axes.set_xticks(_with_room(axes, {float(amount): f"{amount:,}" for amount in amounts}))
    if scale is not None:
        shares = {scale.static + x * scale.activations: f"{x:g}" for x in _SHARES}
        (above,) = axes.child_axes
        above.set_xticks([scale.share(cap) for cap in _with_room(axes, shares)])
        above.minorticks_off()


def _with_room(axes: Axes, texts: Mapping[float, str]) -> list[float]:
    """The amounts within the axis whose texts do not touch those named before them."""
    left, right = axes.get_xlim()
    points = 72 / DPI
    kept: dict[float, tuple[float, float]] = {}
    for amount, text in texts.items():
        if left <= amount <= right:
            middle = axes.transData.transform((amount, 1))[0] * points
            half = text_width(text, 10) / 2 + 4
            begin, end = middle - half, middle + half
            if all(end <= b or e <= begin for b, e in kept.values()):
                kept[amount] = begin, end
    return [*kept]


def _draw(axes: Axes, curve: Staircase, position: int, right: int) -> None:
    """The staircases, the area between them, and the points."""
    colour, marker = _COLOURS[position % len(_COLOURS)], _MARKERS[position % len(_MARKERS)]
    name = f"{curve.name}: " if curve.name else ""
    ends = [*curve.caps[1:], 2 * right]
    xs = [x for pair in zip(curve.caps, ends, strict=True) for x in pair]
    top = [_number(v) for v in curve.values for _ in (0, 1)]
    low = [_number(v) for v in curve.bounds[1:] for _ in (0, 1)]
    axes.fill_between(xs, low, top, color=colour, alpha=0.16, linewidth=0)
    axes.plot(xs, top, color=colour, linewidth=1.8, label=f"{name}best schedule found")
    axes.plot(xs, low, color=colour, linewidth=1, linestyle=(0, (3, 2)), label=f"{name}bound")
    marks = [(cap, value) for cap in curve.marks if (value := curve.value(cap)) is not None]
    axes.plot(*_columns(marks), marker, color=colour, markersize=5.5)
    published = [(peak, value) for _, peak, value in curve.published]
    if published:
        axes.plot(
            *_columns(published),
            marker,
            markersize=7,
            markerfacecolor="white",
            markeredgecolor=colour,
            markeredgewidth=1.5,
            linestyle="none",
            label=f"{name}hand-written",
        )


def _columns(points: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [x for x, _ in points], [y for _, y in points]


def _number(value: int | None) -> float:
    return math.nan if value is None else value


def _name_axes(
    axes: Axes, problem: Problem, objective: Objective, scale: Scale1F1B | None, best: int | None
) -> None:
    """Names, ticks and grid; above, the share of 1F1B's memory; right, the loss to the best."""
    import numpy as np

    memory = f" ({problem.memory_unit})" if problem.memory_unit else ""
    time = f" ({problem.time_unit})" if problem.time_unit else ""
    axes.set_xlabel(fitted(f"memory of every device{memory}", 400, 10), parse_math=False)
    name = f"{objective}{time}" if best else f"{objective}, times the best"
    axes.set_ylabel(fitted(name, 400, 10), parse_math=False)
    axes.grid(color=GRID, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    for axis in [axes.xaxis, *([axes.yaxis] if best else [])]:
        axis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter("")
    axes.yaxis.set_minor_formatter("")
    if scale is not None:
        static, activations = scale.static, scale.activations
        above = axes.secondary_xaxis(
            "top",
            functions=(
                lambda cap: (np.asarray(cap) - static) / activations,
                lambda share: static + np.asarray(share) * activations,
            ),
        )
        above.set_xlabel("activation memory, as multiples of 1F1B's", color=FAINT_INK)
        above.tick_params(colors=FAINT_INK)
        above.xaxis.set_major_formatter("{x:g}")
        above.xaxis.set_minor_formatter("")
    if best:
        beside = axes.secondary_yaxis(
            "right",
            functions=(
                lambda y: 100 * (np.asarray(y) / best - 1),
                lambda y: best * (1 + np.asarray(y) / 100),
            ),
        )
        beside.set_ylabel("above the best, %", color=FAINT_INK)
        beside.tick_params(colors=FAINT_INK)


def _label_points(figure: Figure, axes: Axes, curves: Sequence[Staircase]) -> None:
    """Name the hand-written schedules, each where its text hides least."""
    from matplotlib.transforms import Bbox

    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    transform = axes.transData.transform
    inside = axes.get_window_extent(renderer)
    taken: list[Bbox] = []
    named: dict[tuple[int, int, int], list[str]] = {}
    for position, curve in enumerate(curves):
        for name, peak, value in curve.published:
            named.setdefault((peak, value, position), []).append(name)
        for x, y in _along(curve, axes):
            taken.append(Bbox.from_bounds(x - 4, y - 4, 8, 8))
    points = [key for key in named if inside.contains(*transform(key[:2]))]
    for peak, value, _ in points:
        x, y = transform((peak, value))
        taken.append(Bbox.from_bounds(x - 5, y - 5, 10, 10))
    for peak, value, position in sorted(points):
        text = ", ".join(named[peak, value, position])
        colour = _COLOURS[position % len(_COLOURS)]
        label = axes.annotate(
            text,
            (peak, value),
            xytext=(0, 0),
            textcoords="offset pixels",
            fontsize=9,
            color=INK,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7},
        )
        label.set_parse_math(False)
        size = label.get_window_extent(renderer)
        x, y = transform((peak, value))
        places = _places_around(x, y, size.width, size.height)
        box = min(places, key=lambda place: _cost(place[1], taken, inside, place[0]))[1]
        label.set_position((box.x0 - x, box.y0 - y))
        taken.append(box)


def _along(curve: Staircase, axes: Axes) -> Iterator[tuple[float, float]]:
    """Points on what is shown of the staircase of values, in pixels, some ten apart."""
    transform = axes.transData.transform
    first, last = axes.get_xlim()
    for number, (cap, value) in enumerate(zip(curve.caps, curve.values, strict=True)):
        until = curve.caps[number + 1] if number + 1 < len(curve.caps) else last
        if value is None or until < first or cap > last:
            continue
        left, y = transform((max(cap, first), value))
        right, _ = transform((min(until, last), value))
        for step in range(1 + int((right - left) / 10)):
            yield left + 10 * step, y


def _places_around(x: float, y: float, width: float, height: float) -> list[tuple[float, Any]]:
    """Boxes for a text beside a point, with their distance from it."""
    from matplotlib.transforms import Bbox

    places = []
    for distance in (13.0, 32.0, 55.0, 90.0):
        for across, up in ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (1, -1), (0, -1), (-1, -1)):
            left = x + across * distance - (width if across < 0 else width / 2 if not across else 0)
            low = y + up * distance - (height if up < 0 else height / 2 if not up else 0)
            places.append((distance, Bbox.from_bounds(left, low, width, height)))
    return places


def _cost(box: Any, taken: Sequence[Any], inside: Any, distance: float) -> float:
    hidden = sum(box.overlaps(other) for other in taken)
    outside = not (inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1))
    return float(100 * hidden + 1000 * outside + distance)
