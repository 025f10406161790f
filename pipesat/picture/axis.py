"""Ticks of the time axis: whole numbers of time units at round distances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pipesat.picture.lettering import fitted, text_width
from pipesat.picture.style import FAINT_INK, INK

if TYPE_CHECKING:
    from pipesat.picture.canvas import Canvas, Point
    from pipesat.picture.layout import Layout


def round_step(makespan: int, most: int) -> int:
    """Smallest of 1, 2, 5, 10, 20, 50, ... with at most ``most`` steps in ``[0, makespan]``."""
    step = 1
    while makespan > most * step:
        leading = int(str(step)[0])
        step = step * 5 // 2 if leading == 2 else step * 2
    return step


def tick_times(layout: Layout, makespan: int) -> range:
    """Times of the ticks: so far apart, and from the makespan, that numbers stay clear."""
    size = 0.9 * layout.font
    last = text_width(f"{makespan:,}", size, bold=True)
    plot = layout.right - layout.left
    step = round_step(makespan, max(1, int(plot / max(1.8 * last, 6 * layout.font))))
    # the last number is set bold and centred on the end; another at most as wide stays beside it
    return range(0, math.ceil(makespan * (1 - (last + size) / plot)), step)


def draw_axis(canvas: Canvas, layout: Layout, makespan: int, unit: str) -> None:
    """Draw the ticks with their numbers, the makespan's own number and the unit."""
    size = 0.9 * layout.font
    tick_end = layout.bottom + 0.5 * layout.font
    number_y = tick_end + 0.75 * layout.font
    marks: list[tuple[Point, Point]] = [
        ((layout.left, layout.bottom), (layout.right, layout.bottom))
    ]
    for time in (*tick_times(layout, makespan), makespan):
        x, last = layout.x(time, makespan), time == makespan
        marks.append(((x, layout.bottom), (x, tick_end)))
        colour = INK if last else FAINT_INK
        canvas.text((x, number_y), f"{time:,}", size, align="center", bold=last, colour=colour)
    canvas.lines(marks, FAINT_INK, 1)
    name = fitted(f"time ({unit})" if unit else "time", layout.width / 3, layout.font)
    middle = (layout.left + layout.right) / 2
    canvas.text((middle, number_y + 1.5 * layout.font), name, layout.font, align="center")
