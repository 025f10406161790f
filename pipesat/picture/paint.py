"""The plot area as pixels: ops as coloured lanes, memory as filled steps.

Every pixel shows the exact share of its time that each colour takes, so boxes narrower than a
pixel blend into their true mixture instead of hiding each other, and 100,000 ops cost no more than
a few hundred array operations. Boxes wide enough get an outline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipesat.core.ops import KINDS
from pipesat.picture.boxes import LOWER, UPPER, WHOLE, Boxes, CopyBars
from pipesat.picture.classes import TINTS, fill
from pipesat.picture.style import COPY_BACK, COPY_OUT, EXCESS, HELD, OUTLINE, STATIC, rgb

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipesat.core.arrays import Floats
    from pipesat.core.memory import Profile

_DARK = 0.45  # mean of the three colours below which a hatching is bright
_HATCH = 9  # pixels between two lines of a hatching
_OUTLINED = 6  # pixels from which a box gets an outline
_FILLS = np.array([[fill(kind, tint) for kind in KINDS] for tint in range(TINTS)])


class Smear(NamedTuple):
    """Per column of pixels: the mean colour (0 where nothing is) and the share that is covered."""

    colour: Floats
    cover: Floats


def smear(start: Floats, end: Floats, colours: Floats, width: int) -> Smear:
    """Average disjoint, sorted intervals (in pixels) of given colours over ``width`` columns."""
    knots = np.column_stack([start, end]).ravel()
    lengths = end - start

    def per_column(values: Floats) -> Floats:
        sums = np.concatenate([[0.0], np.cumsum(values * lengths)])
        integral = np.column_stack([sums[:-1], sums[1:]]).ravel()
        return np.diff(np.interp(np.arange(width + 1), knots, integral))

    if not len(start):
        return Smear(np.zeros((width, 3)), np.zeros(width))
    colour = np.column_stack([per_column(colours[:, channel]) for channel in range(3)])
    return Smear(colour, np.clip(per_column(np.ones(len(start))), 0, 1))


def paint_ops(
    lane: NDArray[np.uint8], boxes: Boxes, pixels_per_time: float, shade: Floats | None
) -> None:
    """Paint one device's ops into ``lane`` (rows x columns x 3).

    ``shade[stage]``, from 0 to 1, is the brightness of the strip at the foot of a stage's boxes;
    ``None``: no strips.
    """
    height, width = lane.shape[:2]
    picture: Floats = np.ones((height, width, 3))
    half = (height + 1) // 2
    for part, rows in (
        (WHOLE, slice(0, height)),
        (UPPER, slice(0, half)),
        (LOWER, slice(half, height)),
    ):
        chosen = boxes.only(boxes.part == part)
        if len(chosen):
            _paint_part(picture[rows], chosen, pixels_per_time, shade)
    start, end, colours = _ends(boxes.only(boxes.part != LOWER), pixels_per_time)
    busy = smear(start, end, colours, width).cover
    if height >= 6:  # frame the lane, so that idle time is seen as part of it
        picture[[0, -1]] *= (0.88 - 0.4 * busy)[:, None]
    lane[:] = np.round(255 * picture.clip(0, 1))


def _ends(boxes: Boxes, pixels_per_time: float) -> tuple[Floats, Floats, Floats]:
    start, end = (times.astype(np.float64) * pixels_per_time for times in (boxes.start, boxes.end))
    return start, end, _FILLS[boxes.tint, boxes.kind]


def strip_height(lane: int) -> int:
    """Height of the strip at a box's foot that tells the stages of a device apart."""
    return min(max(2, round(0.16 * lane)), 9) if lane >= 8 else 0


def _paint_part(
    picture: Floats, boxes: Boxes, pixels_per_time: float, shade: Floats | None
) -> None:
    height, width = picture.shape[:2]
    start, end, colours = _ends(boxes, pixels_per_time)
    body = smear(start, end, colours, width)
    foot = 0 if shade is None else strip_height(height)
    _lay_over(picture[: height - foot], body)
    if shade is not None and foot:
        greys = np.repeat(shade[boxes.stage][:, None], 3, axis=1)
        _lay_over(picture[height - foot :], smear(start, end, greys, width))
        picture[height - foot - 1] *= (1 - 0.6 * body.cover)[:, None]
    _hatch(picture, boxes, start, end)
    wide = (end - start >= _OUTLINED) | (end == start)
    lines = np.round(np.concatenate([start[wide], end[wide]])).astype(int).clip(0, width - 1)
    picture[:, np.unique(lines)] *= 0.35
    if boxes.part[0] == LOWER and height >= 6:  # the line between the halves of a pair
        picture[0] *= (1 - 0.65 * body.cover)[:, None]


def _hatch(picture: Floats, boxes: Boxes, start: Floats, end: Floats) -> None:
    """Draw slanted lines over boxes that are not kept: to the right, to the left, then both."""
    if not boxes.mode.any():
        return
    height, width = picture.shape[:2]
    row, column = np.arange(height)[:, None], np.arange(width)[None, :]
    for mode in np.unique(boxes.mode[boxes.mode > 0]):
        chosen = boxes.mode == mode
        colours = np.zeros((int(chosen.sum()), 3))
        cover = smear(start[chosen], end[chosen], colours, width).cover
        lines = np.zeros((height, width), dtype=bool)
        if mode != 2:
            lines |= (row + column) % _HATCH < 2
        if mode >= 2:
            lines |= (row - column) % _HATCH < 2
        lines &= cover > 0.5
        dark = lines & (picture.mean(axis=2) < _DARK)
        picture[lines & ~dark] *= 0.6
        picture[dark] = 1 - 0.6 * (1 - picture[dark])


def paint_copies(bar: NDArray[np.uint8], bars: CopyBars, pixels_per_time: float) -> None:
    """Paint one device's copies: those out in the upper half of ``bar``, those back below."""
    height, width = bar.shape[:2]
    half = height // 2
    for out, rows, colour in (
        (True, slice(0, half), COPY_OUT),
        (False, slice(half, None), COPY_BACK),
    ):
        chosen = bars.out == out
        start, end = (
            t[chosen].astype(np.float64) * pixels_per_time for t in (bars.start, bars.end)
        )
        colours = np.repeat([rgb(colour)], int(chosen.sum()), axis=0).reshape(-1, 3)
        layer = smear(start, end, colours, width)
        picture = bar[rows] / 255.0
        _lay_over(picture, layer)
        edges = np.round(end).astype(int).clip(0, width - 1)
        picture[:, np.unique(edges)] *= 0.6
        bar[rows] = np.round(255 * picture.clip(0, 1))


def _lay_over(picture: Floats, layer: Smear) -> None:
    picture *= (1 - layer.cover)[:, None]
    picture += layer.colour


def paint_memory(
    track: NDArray[np.uint8], profile: Profile, makespan: int, limits: tuple[int, int, int]
) -> None:
    """Paint one device's memory over time onto ``track``; per column its largest value.

    ``limits``: static memory, capacity and the value at the track's upper end, in memory units.
    """
    height, width = track.shape[:2]
    static, capacity, top = limits
    levels = highest_per_column(profile, makespan, width) * (height / top)
    above = height - np.arange(height)[:, None] - 0.5  # height of each row of pixels
    for floor, ceiling, colour in (
        (0.0, min(static, capacity), STATIC),
        (min(static, capacity), capacity, HELD),
        (capacity, 2 * top, EXCESS),
    ):
        low, high = floor * height / top, np.minimum(levels, ceiling * height / top)
        track[(above > low) & (above < high)] = np.round(255 * np.array(rgb(colour)))
    line = np.round(levels).astype(int).clip(1, height)
    before = np.concatenate([line[:1], line[:-1]])
    # the outline of the steps: their treads, and their risers on the higher side
    row = height - np.arange(height)[:, None]
    edge = (row == line) | ((row <= np.maximum(line, before)) & (row >= np.minimum(line, before)))
    edge[:, 0] = row[:, 0] == line[0]
    track[edge] = np.round(255 * np.array(rgb(OUTLINE)))


def highest_per_column(profile: Profile, makespan: int, width: int) -> NDArray[np.int64]:
    """Largest value of a step function in each of ``width`` equal parts of ``[0, makespan]``."""
    edges = np.arange(width + 1) * (max(1, makespan) / width)
    first = np.searchsorted(profile.times, edges[:-1], side="right") - 1
    last = np.maximum(np.searchsorted(profile.times, edges[1:], side="left"), first + 1)
    ranges = np.column_stack([first, last]).ravel()
    held = np.append(profile.held, profile.held[-1])
    return np.asarray(np.maximum.reduceat(held, ranges)[::2], dtype=np.int64)
