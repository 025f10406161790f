"""The devices' rows: names, ops, memory tracks and the figures beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipesat.picture.axis import tick_times
from pipesat.picture.paint import paint_copies, paint_memory, paint_ops
from pipesat.picture.style import CAPACITY, FAINT_INK, GRID, INK, rgb

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipesat.core.problem import Problem
    from pipesat.picture.canvas import Canvas
    from pipesat.picture.contents import Contents
    from pipesat.picture.layout import Layout


def draw_rows(canvas: Canvas, shown: Contents, *, vector: bool) -> None:
    """Draw all rows, the plot as pixels or as paths."""
    if vector:
        from pipesat.picture.vector import draw_plot

        draw_plot(canvas, shown)
    else:
        _paint_plot(canvas, shown)
    _draw_names(canvas, shown.layout)
    if shown.layout.track:
        _draw_capacities(canvas, shown.problem, shown.layout)
        _draw_peaks(canvas, shown)


def _paint_plot(canvas: Canvas, shown: Contents) -> None:
    problem, layout, makespan = shown.problem, shown.layout, shown.makespan
    top = layout.memory_top
    width = layout.right - layout.left
    plot = np.full((layout.bottom - layout.top, width, 3), 255, dtype=np.uint8)
    for time in tick_times(layout, makespan)[1:]:
        column = min(round(layout.x(time, makespan)) - layout.left, width - 1)
        plot[:, column] = np.round(255 * np.array(rgb(GRID)))
    for device, row in enumerate(shown.boxes):
        lane = layout.lane_top(device) - layout.top
        shade = _shade(problem, device, layout.stages)
        paint_ops(plot[lane : lane + layout.lane], row, shown.scale, shade)
        if shown.copies:
            begin = layout.copies_top(device) - layout.top
            bar = plot[begin : begin + 2 * layout.copy_height]
            paint_copies(bar, shown.copies[device], shown.scale)
        if layout.track:
            track = layout.track_top(device) - layout.top
            capacity = problem.devices[device].memory
            limits = (problem.devices[device].static, 2 * top if capacity is None else capacity)
            row_of_memory = plot[track : track + layout.track]
            paint_memory(row_of_memory, shown.profiles[device], makespan, (*limits, top))
    canvas.image(plot, (layout.left, layout.top))


def _shade(problem: Problem, device: int, most: int) -> NDArray[np.float64] | None:
    """Brightness of each stage's strip: white for the device's first stage, darker on."""
    if most == 1:
        return None
    shade = np.ones(len(problem.stages))
    for place, stage in enumerate(problem.stages_on[device]):
        shade[stage] = 1 - place / (most - 1)
    return shade


def _draw_names(canvas: Canvas, layout: Layout) -> None:
    x = layout.left - 0.6 * layout.font
    for device, name in layout.names.items():
        y = layout.lane_top(device) + layout.lane / 2
        canvas.text((x, y), name, layout.name_size, align="right")


def _draw_capacities(canvas: Canvas, problem: Problem, layout: Layout) -> None:
    lines = []
    for number, device in enumerate(problem.devices):
        if device.memory is not None and device.memory <= layout.memory_top:
            y = round(_level(layout, number, device.memory)) + 0.5
            lines.append(((layout.left, y), (layout.right, y)))
    canvas.lines(lines, CAPACITY, 1.4, (5, 3))


def _draw_peaks(canvas: Canvas, shown: Contents) -> None:
    """Mark where each device first holds most, and write how much beside its track."""
    layout = shown.layout
    size = 0.85 * layout.font
    x = layout.right + 0.6 * layout.font
    heading, *figures = layout.figures
    canvas.text((x, layout.top - 0.8 * layout.font), heading, size, colour=FAINT_INK)
    places = []
    for number, (device, profile) in enumerate(
        zip(shown.problem.devices, shown.profiles, strict=True)
    ):
        first = int(profile.held.argmax())
        peak = int(profile.held[first])
        at = layout.x(int(profile.times[first]), shown.makespan)
        if peak:
            places.append((at, _level(layout, number, peak)))
        excessive = device.memory is not None and peak > device.memory
        y = layout.track_top(number) + layout.track / 2
        colour = CAPACITY if excessive else INK
        canvas.text((x, y), figures[number], size, colour=colour)
    canvas.dots(places, min(max(5.0, 0.2 * layout.track), 10.0))


def _level(layout: Layout, device: int, amount: int) -> float:
    """Height on the canvas of an amount of memory in a device's track."""
    return layout.track_top(device) + layout.track * (1 - amount / layout.memory_top)
