"""The picture of a comparison: the typical step below what was predicted of it."""

from __future__ import annotations

from pipesat.core.claims import percent
from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.timing import time_order
from pipesat.timeline.compare import Comparison
from pipesat.timeline.timeline import Timeline
from pipesat.timeline.two_rows import two_timelines_png


def comparison_png(problem: Problem, timeline: Timeline, comparison: Comparison) -> bytes:
    """Draw prediction and measurement of a timeline's typical step."""
    step = timeline.typical
    scale = timeline.us_per_unit
    scheduled = time_order(problem, step.order)
    predicted = tuple(
        tuple(
            (timed.item, timed.start * scale, timed.end * scale)
            for timed in row
            if isinstance(timed.item, Op)
        )
        for row in scheduled.devices
    )
    measured = tuple(tuple((r.op, r.start, r.end) for r in row.ops) for row in step.devices)
    error = percent(comparison.error, 1, sign=True)
    title = "\n".join(
        (
            f"{problem.name or 'timeline'}: predicted {comparison.predicted / 1000:,.2f} ms, "
            f"measured {comparison.measured / 1000:,.2f} ms ({error})",
            f"largest part of the difference: {comparison.largest.assumption} "
            f"({comparison.largest.makes / 1000:+,.2f} ms)",
        )
    )
    return two_timelines_png(problem, predicted, measured, title=title)
