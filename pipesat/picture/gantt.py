"""A schedule as a Gantt chart: true time scale, one row per device, memory below its ops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pipesat.core.memory import memory_profiles
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.picture.boxes import boxes_of, copy_bars_of
from pipesat.picture.contents import Contents

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipesat.picture.canvas import Canvas


def gantt_png(problem: Problem, schedule: Schedule, *, title: str) -> bytes:
    """Draw a schedule; return the PNG file's bytes.

    The picture is at most 4000 x 6000 pixels. Below each device's ops stands its memory over time,
    on one scale for all devices, with the capacities as dashed lines; a capacity of more than twice
    the largest peak is only given as a number. With more than some 200 devices the rows are too low
    for memory, and it is left out.

    Parameters
    ----------
    title
        Its first line is set bold, at most two more follow. Too long lines lose their middle.

    Raises
    ------
    ValueError
        If an item of the schedule is unreadable.
    """
    return drawn(problem, schedule, title).png()


def gantt_figure(problem: Problem, schedule: Schedule, *, title: str) -> Figure:
    """Draw a schedule as :func:`gantt_png` does; return the matplotlib figure.

    Raises
    ------
    ValueError
        As :func:`gantt_png`.
    """
    return drawn(problem, schedule, title, vector=True).figure


def gantt_svg(problem: Problem, schedule: Schedule, *, title: str) -> bytes:
    """Draw a schedule as :func:`gantt_png` does; return the SVG file's bytes, ops as shapes.

    Raises
    ------
    ValueError
        As :func:`gantt_png`.
    """
    return drawn(problem, schedule, title, vector=True).svg()


def drawn(
    problem: Problem,
    schedule: Schedule,
    title: str,
    *,
    vector: bool = False,
    unit: str | None = None,
    stages: int | None = None,
) -> Canvas:
    """Draw a schedule, ops as pixels or as shapes.

    Parameters
    ----------
    unit
        Of the axis; the problem's if not given.
    stages
        Ops are labelled with their stage modulo this.

    Raises
    ------
    ValueError
        As :func:`gantt_png`.
    """
    # matplotlib is slow to import, and importing pipesat stays fast
    from pipesat.picture.axis import draw_axis
    from pipesat.picture.canvas import Canvas
    from pipesat.picture.labels import choose_labels, draw_labels
    from pipesat.picture.layout import lay_out
    from pipesat.picture.legend import draw_header, entries_of, header_height, place_entries
    from pipesat.picture.rows import draw_rows

    makespan = schedule.makespan
    boxes = boxes_of(problem, schedule)
    named = [replace(row, stage=row.stage % stages) for row in boxes] if stages else boxes
    profiles = memory_profiles(problem, schedule)
    layout = lay_out(problem, schedule, profiles)
    labels = choose_labels(named, layout, makespan, strips=layout.stages > 1)
    copies = copy_bars_of(schedule) if any(schedule.copies) else []
    entries = entries_of(problem, boxes, layout, labels, copies=bool(copies))
    legend = place_entries(list(entries), layout)
    layout = replace(layout, top=header_height(title, legend, layout.font))

    canvas = Canvas(layout.width, layout.height)
    draw_header(canvas, title, legend, layout)
    draw_axis(canvas, layout, makespan, problem.time_unit if unit is None else unit)
    shown = Contents(problem, boxes, profiles, copies, layout, makespan)
    draw_rows(canvas, shown, vector=vector)
    if labels is not None:
        draw_labels(canvas, labels, (layout.left, layout.top))
    return canvas
