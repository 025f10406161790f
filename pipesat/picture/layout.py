"""Where things stand in a Gantt chart: plain arithmetic in pixels, y counted downwards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipesat.core.memory import Profile
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.picture.lettering import fitted, text_width

WIDEST, TALLEST = 4000, 6000
_LEAST_PLOT = 1400
_ROW = 106  # height of a device's row if there are eight
_LEAST_ROW_WITH_MEMORY = 24
_FARTHEST_CAPACITY = 2  # times the largest peak: beyond it, capacities are only given as numbers
_DIGIT = 9.5  # width of a digit in a comfortable box label


@dataclass(frozen=True)
class Layout:
    """Sizes of a chart with one row per device.

    The plot spans ``left`` to ``right``, ``top`` to ``bottom``; of a device's row of height ``row``
    the upper ``lane`` pixels hold its ops and, after ``gap``, the next ``track`` its memory (0: no
    tracks), up to the amount ``memory_top``. ``stages`` is the largest number of stages on one
    device; ``names`` has the devices that are named, of every n-th where rows are lower than a line
    of text; ``figures`` are a heading and one text per device to the right of the tracks.
    """

    font: float
    left: int
    right: int
    top: int
    row: float
    lane: int
    track: int
    gap: int
    devices: int
    stages: int
    names: Mapping[int, str]
    name_size: float
    figures: tuple[str, ...]
    memory_top: int
    width: int

    @property
    def bottom(self) -> int:
        """Lower end of the plot."""
        return self.top + max(1, round(self.row * self.devices))

    @property
    def height(self) -> int:
        """Height of the whole picture: the plot, tick labels and the axis' name below it."""
        return self.bottom + round(4.2 * self.font)

    def lane_top(self, device: int) -> int:
        """Upper end of a device's ops."""
        return self.top + min(round(device * self.row), self.bottom - self.top - self.lane)

    def copies_top(self, device: int) -> int:
        """Upper end of a device's copies: a bar for each direction, between ops and memory."""
        return self.lane_top(device) + self.lane + max(1, self.gap // 2)

    @property
    def copy_height(self) -> int:
        """Height of one bar of copies."""
        return max(2, round(0.06 * self.row))

    def track_top(self, device: int) -> int:
        """Upper end of a device's memory track."""
        return self.lane_top(device) + self.lane + self.gap

    def x(self, time: float, makespan: int) -> float:
        """Pixel of a time."""
        return self.left + (self.right - self.left) * time / max(1, makespan)


def lay_out(problem: Problem, schedule: Schedule, profiles: Sequence[Profile]) -> Layout:
    """Choose sizes: wide enough for numbers in boxes if the largest width allows it.

    The header's height, and with it ``top``, is not known yet.
    """
    plot = _wanted_plot(problem, schedule)
    zoom = min(1.6, (plot / _LEAST_PLOT) ** 0.5)  # a wide picture is shown smaller: larger text
    font = 19 * zoom
    row = _row_height(len(problem.devices), zoom)
    name_size = min(font, max(0.75 * font, 0.8 * row))
    named = range(0, len(problem.devices), math.ceil(1.2 * name_size / row))
    names = {device: fitted(problem.device_name(device), 11 * font, font) for device in named}
    figures: tuple[str, ...] = ()
    if row >= _LEAST_ROW_WITH_MEMORY:
        figures = _peaks_of_capacities(problem, profiles)
    margin = 1.2 * font
    left = round(2 * margin + max(text_width(name, font) for name in names.values()))
    after = max((text_width(text, 0.85 * font) for text in figures), default=0)
    last = text_width(f"{schedule.makespan:,}", 0.9 * font, bold=True)  # centred on the end
    after = round(max(2 * margin + after, margin + last / 2))
    right = left + min(plot, WIDEST - left - after)
    lane, gap, track = row, 0.0, 0.0
    if figures:
        lane, gap, track = 0.44 * row, 0.05 * row, 0.36 * row
        if any(schedule.copies):
            lane, gap, track = 0.38 * row, 0.17 * row, 0.32 * row
    elif row >= 3:
        lane = 0.8 * row
        if any(schedule.copies):
            lane, gap = 0.6 * row, 0.2 * row
    return Layout(
        font=font,
        left=left,
        right=right,
        top=0,
        row=row,
        lane=max(1, round(lane)),
        track=round(track),
        gap=round(gap),
        devices=len(problem.devices),
        stages=max(map(len, problem.stages_on)),
        names=names,
        name_size=name_size,
        figures=figures,
        memory_top=_top_of_tracks(problem, profiles),
        width=right + after,
    )


def _wanted_plot(problem: Problem, schedule: Schedule) -> int:
    """Width at which nearly every op has room for its microbatch's number."""
    lengths = sorted(t.end - t.start for _, t in schedule if t.end > t.start)
    if not lengths:
        return _LEAST_PLOT
    digits = len(str(max(problem.microbatches) - 1))
    wanted = (_DIGIT * digits + 7) * schedule.makespan / lengths[len(lengths) // 10]
    return round(min(max(_LEAST_PLOT, wanted), WIDEST))


def _row_height(devices: int, zoom: float) -> float:
    """Height of a row: it shrinks with the number of devices, and must in the end."""
    ratio = 8 / devices
    wanted = _ROW * min(2.0, max(zoom * ratio ** (2 / 3), ratio ** (1 / 3)))
    row = min(wanted, (TALLEST - 600) / devices)
    return float(int(row)) if row >= 4 else row


def _top_of_tracks(problem: Problem, profiles: Sequence[Profile]) -> int:
    """Memory at the upper end of every track: the largest peak or near capacity, plus 8 %."""
    peak = max(1, *(int(profile.held.max()) for profile in profiles))
    capacities = (device.memory for device in problem.devices if device.memory is not None)
    highest = max((c for c in capacities if c <= _FARTHEST_CAPACITY * peak), default=peak)
    return math.ceil(1.08 * max(peak, highest))


def _peaks_of_capacities(problem: Problem, profiles: Sequence[Profile]) -> tuple[str, ...]:
    """Per device ``peak / capacity`` (or the peak alone); empty if nothing is known of memory."""
    limited = any(device.memory is not None for device in problem.devices)
    if not limited and not any(profile.held.any() for profile in profiles):
        return ()
    heading = "peak / capacity" if limited else "peak"
    return heading, *(
        f"{profile.held.max():,}" + (f" / {device.memory:,}" if device.memory is not None else "")
        for device, profile in zip(problem.devices, profiles, strict=True)
    )
