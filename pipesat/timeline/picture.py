"""The picture of a comparison: the typical step below what was predicted of it.

Both on one time scale, two rows per device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pipesat.core.claims import percent
from pipesat.core.ops import Copy, Item, Pair, members
from pipesat.core.problem import Device, Mode, Offload, Problem, Route, Stage
from pipesat.core.schedule import Schedule, Timed, TimedCopy
from pipesat.core.timing import time_order
from pipesat.picture.gantt import drawn
from pipesat.timeline.compare import AgainstPrediction
from pipesat.timeline.timeline import Timeline

Lanes: TypeAlias = Sequence[Sequence[tuple[Item, float, float]]]
"""Per device, ops and pairs with start and end in us."""

CopyLanes: TypeAlias = Sequence[Sequence[tuple[Copy, float, float]]]
"""Per device, copies with start and end in us."""

_MILLISECONDS = 1_000_000  # us from which the axis counts in ms


def comparison_png(problem: Problem, timeline: Timeline, comparison: AgainstPrediction) -> bytes:
    """Draw prediction and measurement of a timeline's typical step."""
    step, scale = timeline.typical, timeline.us_per_unit
    schedule = time_order(problem, step.order)
    predicted = [
        [
            (item, start * scale, end * scale)
            for item, (_, start, end) in zip(items, row, strict=True)
        ]
        for items, row in zip(step.order, schedule.devices, strict=True)
    ]
    measured = [[(ran.item, ran.start, ran.end) for ran in row.ops] for row in step.devices]
    copies = [
        [
            (copy, start * scale, end * scale)
            for copy, start, end in schedule.copies_of(device)
            if isinstance(copy, Copy)
        ]
        for device in range(len(problem.devices))
    ]
    error = percent(comparison.error, 1, sign=True)
    title = (
        f"{problem.name or 'timeline'}: predicted {comparison.predicted / 1000:,.2f} ms, "
        f"measured {comparison.measured / 1000:,.2f} ms ({error})\n"
        f"largest part of the difference: {comparison.largest.assumption} "
        f"({comparison.largest.makes / 1000:+,.2f} ms)"
    )
    copied = (copies, [[*row.copies] for row in step.devices])
    return _drawn(problem, predicted, measured, copied, title)


def _drawn(
    problem: Problem,
    predicted: Lanes,
    measured: Lanes,
    copied: tuple[CopyLanes, CopyLanes],
    title: str,
) -> bytes:
    """Draw both timelines, each device's prediction above its measurement."""
    longest = max((end for lane in (*predicted, *measured) for *_, end in lane), default=0.0)
    unit, us = ("ms", 1000) if longest >= _MILLISECONDS else ("us", 1)
    doubled = _doubled(problem)
    schedule = _both(problem, predicted, measured, copied, us)
    return drawn(doubled, schedule, title, unit=unit, stages=len(problem.stages)).png()


def _doubled(problem: Problem) -> Problem:
    """Return a problem with every device and stage twice: predicted, then measured.

    Only places and names matter to a picture: costs and memory are left out.
    """
    stages = len(problem.stages)
    return Problem(
        name="",
        time_unit="",
        memory_unit="",
        devices=tuple(
            Device(f"{problem.device_name(device)} {word}")
            for device in range(len(problem.devices))
            for word in ("predicted", "measured")
        ),
        stages=tuple(
            _named(stage, 2 * stage.device + side) for side in (0, 1) for stage in problem.stages
        ),
        routes=tuple(
            Route(tuple(stage + side * stages for stage in route.stages), route.microbatches)
            for side in (0, 1)
            for route in problem.routes
        ),
        links={},
        overlap=None,
        document={},
    )


def _named(stage: Stage, device: int) -> Stage:
    """A stage with its modes by name, all of them free."""
    modes = (Mode(mode.name, offload=mode.offload and Offload(0, 0, 0)) for mode in stage.modes)
    return Stage(device, 0, 0, 0, modes=tuple(modes))


def _both(
    problem: Problem,
    predicted: Lanes,
    measured: Lanes,
    copied: tuple[CopyLanes, CopyLanes],
    us: int,
) -> Schedule:
    stages = len(problem.stages)

    def at(time: float) -> int:
        return max(0, round(time / us))

    rows = [
        tuple(Timed(_moved(item, side * stages), at(start), at(end)) for item, start, end in lane)
        for pair in zip(predicted, measured, strict=True)
        for side, lane in enumerate(pair)
    ]
    copies = [
        tuple(
            TimedCopy(copy._replace(stage=copy.stage + side * stages), at(start), at(end))
            for copy, start, end in lane
        )
        for pair in zip(*copied, strict=True)
        for side, lane in enumerate(pair)
    ]
    return Schedule(tuple(rows), "", tuple(copies) if any(copies) else ())


def _moved(item: Item, by: int) -> Item:
    ops = [op._replace(stage=op.stage + by) for op in members(item)]
    return ops[0] if len(ops) == 1 else Pair(*ops)
