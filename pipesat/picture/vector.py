"""The plot area as paths, for SVG: one path per colour, so that many ops stay one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from pipesat.core.ops import KINDS
from pipesat.picture.axis import tick_times
from pipesat.picture.boxes import LOWER, WHOLE
from pipesat.picture.classes import class_tints, fill_text, named
from pipesat.picture.paint import strip_height
from pipesat.picture.style import COPY_BACK, COPY_OUT, EXCESS, GRID, HELD, MEANING, OUTLINE, STATIC

if TYPE_CHECKING:
    from pipesat.core.arrays import Floats
    from pipesat.picture.boxes import Boxes
    from pipesat.picture.canvas import Canvas
    from pipesat.picture.contents import Contents
    from pipesat.picture.layout import Layout


_BOX = np.array([Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY], np.uint8)


def draw_plot(canvas: Canvas, shown: Contents) -> None:
    """Draw all ops, copies and memory tracks of a chart as paths."""
    boxes, layout, makespan = shown.boxes, shown.layout, shown.makespan
    ticks = [
        (layout.x(time, makespan) - 0.5, float(layout.top), 1.0, float(layout.bottom - layout.top))
        for time in tick_times(layout, makespan)[1:]
    ]
    _fill(canvas, _outline(np.array(ticks).reshape(-1, 4)), GRID, 0.0)
    fields = np.concatenate(
        [_fields(row, layout, device, shown.scale) for device, row in enumerate(boxes)]
    )
    kinds = np.concatenate([row.kind for row in boxes])
    edge = min(0.8, 0.15 * float(np.median(fields[:, 2]))) if len(fields) else 0.0
    tints = np.concatenate([row.tint for row in boxes])
    names = class_tints(shown.problem)
    for tint, number in sorted({*zip(tints.tolist(), kinds.tolist(), strict=True)}):
        kind = KINDS[number]
        chosen = (kinds == number) & (tints == tint)
        title = "" if names is None else f"{MEANING[kind]}, {named(names.names[tint])}"
        _fill(canvas, _outline(fields[chosen]), fill_text(kind, tint), edge, title)
    modes = np.concatenate([row.mode for row in boxes])
    for mode in np.unique(modes[modes > 0]).tolist():
        _hatch(
            canvas,
            _outline(fields[modes == mode]),
            "/" if mode == 1 else "\\" if mode == 2 else "x",
        )
    for device in range(len(shown.copies)):
        _draw_copies(canvas, shown, device)
    if layout.stages > 1:
        _draw_feet(canvas, shown, fields)
    if layout.track:
        for device in range(len(shown.profiles)):
            _draw_track(canvas, shown, device)


def _fields(boxes: Boxes, layout: Layout, device: int, scale: float) -> Floats:
    """Left, top, width and height of each box, in pixels."""
    half = layout.lane / 2
    top = layout.lane_top(device) + np.where(boxes.part == LOWER, half, 0.0)
    height = np.where(boxes.part == WHOLE, float(layout.lane), half)
    left = layout.left + boxes.start * scale
    return np.column_stack([left, top, (boxes.end - boxes.start) * scale, height])


def _outline(fields: Floats) -> Path:
    """All rectangles of (left, top, width, height) as one path."""
    left, top, width, height = fields.T
    xs = np.stack([left, left + width, left + width, left, left], axis=1)
    ys = np.stack([top, top, top + height, top + height, top], axis=1)
    points = np.stack([xs, ys], axis=2).reshape(-1, 2)
    return Path(points, np.tile(_BOX, len(fields)))


def _fill(canvas: Canvas, path: Path, colour: str, edge: float, title: str = "") -> None:
    """Draw a path; an SVG viewer shows ``title`` where the mouse points at it."""
    if np.size(path.vertices):
        patch = PathPatch(path, facecolor=colour, edgecolor=OUTLINE, linewidth=edge, snap=False)
        canvas.axes.add_patch(patch)
        if title:
            canvas.entitle(patch, title)


def _hatch(canvas: Canvas, path: Path, hatch: str) -> None:
    canvas.axes.add_patch(
        PathPatch(path, facecolor="none", edgecolor=OUTLINE, linewidth=0.0, hatch=2 * hatch)
    )


def _draw_copies(canvas: Canvas, shown: Contents, device: int) -> None:
    """Draw one device's copies, those out above those back."""
    bars, layout, scale = shown.copies[device], shown.layout, shown.scale
    height = layout.copy_height
    for out, colour in ((True, COPY_OUT), (False, COPY_BACK)):
        chosen = bars.out == out
        start, end = bars.start[chosen] * scale, bars.end[chosen] * scale
        top = np.full(len(start), float(layout.copies_top(device) + height * (not out)))
        fields = np.column_stack(
            [layout.left + start, top, end - start, np.full(len(start), float(height))]
        )
        _fill(canvas, _outline(fields), colour, 0.3)


def _draw_feet(canvas: Canvas, shown: Contents, fields: Floats) -> None:
    """Draw the strips that tell the stages of a device apart, white to black."""
    layout = shown.layout
    foot = np.array([strip_height(int(height)) for height in fields[:, 3]])
    strips = fields.copy()
    strips[:, 1] += fields[:, 3] - foot
    strips[:, 3] = foot
    places = {s: place for row in shown.problem.stages_on for place, s in enumerate(row)}
    place_of = np.array([places[s] for row in shown.boxes for s in row.stage.tolist()])
    for place in range(layout.stages):
        grey = round(255 * (1 - place / (layout.stages - 1)))
        chosen = strips[(place_of == place) & (foot > 0)]
        _fill(canvas, _outline(chosen), f"#{grey:02x}{grey:02x}{grey:02x}", 0.3)


def _draw_track(canvas: Canvas, shown: Contents, device: int) -> None:
    """Draw one device's memory over time: static part, held, and what exceeds the capacity."""
    layout, profile, scale = shown.layout, shown.profiles[device], shown.scale
    top, bottom = layout.track_top(device), layout.track_top(device) + layout.track
    times = np.append(profile.times, max(shown.makespan, int(profile.times[-1])))
    static, capacity = shown.problem.devices[device].static, shown.problem.devices[device].memory
    limit = layout.memory_top if capacity is None else capacity
    for floor, ceiling, colour in (
        (0, min(static, limit), STATIC),
        (min(static, limit), limit, HELD),
        (limit, layout.memory_top, EXCESS),
    ):
        held = np.clip(profile.held, floor, max(floor, ceiling))
        solid = held > floor
        if not solid.any():
            continue
        level = bottom - (bottom - top) / layout.memory_top * np.stack(
            [np.full(len(held), float(floor)), held.astype(float)]
        )
        left, right = layout.left + times[:-1] * scale, layout.left + times[1:] * scale
        fields = np.column_stack([left, level[1], right - left, level[0] - level[1]])
        _fill(canvas, _steps(fields[solid]), colour, 0.0)


def _steps(fields: Floats) -> Path:
    """Rectangles side by side, as one path without seams between neighbours."""
    left, top, width, height = fields.T
    breaks = np.flatnonzero(left[1:] > (left + width)[:-1] + 1e-9) + 1
    points, codes = [], []
    for run in np.split(np.arange(len(fields)), breaks):
        tread = np.column_stack([left[run], top[run], (left + width)[run], top[run]])
        base = (top + height)[run[0]]
        shape = np.concatenate(
            [
                [[left[run[0]], base]],
                tread.reshape(-1, 2),
                [[(left + width)[run[-1]], base], [left[run[0]], base]],
            ]
        )
        points.append(shape)
        codes.append([Path.MOVETO, *[Path.LINETO] * (len(shape) - 2), Path.CLOSEPOLY])
    return Path(np.concatenate(points), np.concatenate(codes))
