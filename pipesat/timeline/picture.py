"""The picture of a comparison: each device's typical step below what was predicted of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipesat.core.claims import percent
from pipesat.core.ops import Copy, Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule, Timed, TimedCopy
from pipesat.core.timing import time_order
from pipesat.picture.gantt import gantt_figure
from pipesat.timeline.compare import AgainstPrediction
from pipesat.timeline.timeline import Timeline


def comparison_png(problem: Problem, timeline: Timeline, comparison: AgainstPrediction) -> bytes:
    """Draw prediction and measurement of a timeline's typical step, both in us."""
    from pipesat.picture.figures import file_of

    step = timeline.typical
    # a file may state any unit, and pictures hold whole numbers
    unit, us = ("us", 1.0) if comparison.predicted + comparison.measured < 1e12 else ("s", 1e6)
    scale = timeline.us_per_unit / us
    schedule = time_order(problem, step.order)
    predicted = Schedule(
        tuple(
            _timed(
                Timed, ((item, t.start, t.end) for item, t in zip(items, row, strict=True)), scale
            )
            for items, row in zip(step.order, schedule.devices, strict=True)
        ),
        copies=tuple(_timed(TimedCopy, row, scale) for row in schedule.copies),
    )
    measured = Schedule(
        tuple(
            _timed(Timed, ((ran.item, ran.start, ran.end) for ran in row.ops), 1 / us)
            for row in step.devices
        ),
        copies=tuple(_timed(TimedCopy, row.copies, 1 / us) for row in step.devices),
    )
    error = percent(comparison.error, 1, sign=True)
    title = (
        f"{problem.name or 'timeline'}: predicted {comparison.predicted / 1000:,.2f} ms, "
        f"measured {comparison.measured / 1000:,.2f} ms ({error})\n"
        f"largest part of the difference: {comparison.largest.assumption} "
        f"({comparison.largest.makes / 1000:+,.2f} ms)"
    )
    both = {"predicted": predicted, "measured": measured}
    figure = gantt_figure(problem, both, title=title, by_device=True, memory=False, time_unit=unit)
    return file_of(figure, "png")


def _timed(
    kind: Any, entries: Iterable[tuple[Item | Copy | Any, float, float]], scale: float
) -> tuple[Any, ...]:
    """Return items or copies with whole times of 0 or more."""
    return tuple(
        kind(what, max(0, round(start * scale)), max(0, round(end * scale)))
        for what, start, end in entries
    )
