"""Predicted against measured: makespans, ops, devices, links, and the picture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any

from pipesat.core.claims import difference, percent
from pipesat.core.grouping import grouped
from pipesat.draw.gantt import gantt_figure
from pipesat.measure.timeline.observed import gaps_of, measured_delays
from pipesat.problem.ops import KINDS, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration
from pipesat.runtimes.timeline import FITTED, TOY_SOURCE, Timeline
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order


@dataclass(frozen=True)
class KindRow:
    """All ops of one kind, or pairs of two kinds, on one device over all steps; times in us.

    ``kind`` is ``F``, or ``F+BW`` of pairs.
    ``predicted`` and ``measured`` are means, ``low`` and ``high`` the 5th and 95th percentile of
    what was measured, ``cpu`` the mean time on a core (``None`` if that is not known).
    """

    device: int
    kind: str
    count: int
    predicted: float
    measured: float
    low: float
    high: float
    cpu: float | None


@dataclass(frozen=True)
class DeviceRow:
    """Where one device's time went in the typical step, in us.

    ``calls`` starting sends and receives, ``overhead`` between ops without waiting; what is left of
    the makespan, ``idle``, it waited for input or had nothing to do.
    """

    device: int
    predicted_busy: float
    predicted_idle: float
    busy: float
    calls: float
    overhead: float
    idle: float


@dataclass(frozen=True)
class LinkRow:
    """The delay from one stage to another; ``measured`` is the median of ``count`` seen, in us."""

    source: int
    target: int
    predicted: float
    measured: float | None
    count: int


@dataclass(frozen=True)
class AgainstPrediction:
    """Predicted against measured makespan, in us, and what ops, devices and links did.

    Of a ``toy_model``, all that is predicted is scaled to its compute: only shapes are compared.
    ``fitted``: the problem's link delay makes the prediction of these steps right.
    """

    predicted: float
    measured: float
    shortest: float
    longest: float
    steps: int
    kinds: tuple[KindRow, ...]
    devices: tuple[DeviceRow, ...]
    links: tuple[LinkRow, ...]
    toy_model: bool = False
    fitted: bool = False

    @property
    def error(self) -> float:
        """``(predicted - measured) / measured``: negative where the run was slower."""
        return difference(self.predicted, self.measured) or 0.0

    @property
    def on_core(self) -> float | None:
        """Share of the ops' time in which their rank was on a core; ``None`` if not known."""
        known = [(row.count * row.cpu, row.count * row.measured) for row in self.kinds if row.cpu]
        return sum(cpu for cpu, _ in known) / sum(took for _, took in known) if known else None

    def document(self) -> dict[str, Any]:
        """Return everything for ``--json``, times in us."""
        return asdict(self) | {"error": self.error}


def compare(problem: Problem, timeline: Timeline) -> AgainstPrediction:
    """Compare the order that ran, timed with the problem's costs, with its typical step."""
    step = timeline.typical
    predicted = timeline.us_per_unit * time_order(problem, step.order).makespan
    delays = {str(delay) for link in problem.links.values() for delay in (link.F, link.B)}
    return AgainstPrediction(
        predicted,
        step.makespan,
        min(timeline.makespans),
        max(timeline.makespans),
        len(timeline.steps),
        _kinds(problem, timeline),
        _devices(problem, timeline, predicted),
        _links(problem, timeline),
        timeline.source == TOY_SOURCE,
        delays == {timeline.environment.get(FITTED)},
    )


def _kinds(problem: Problem, timeline: Timeline) -> tuple[KindRow, ...]:
    alike = grouped(
        ((device, tuple(sorted(KINDS.index(op.kind) for op in members(ran.item)))), ran)
        for step in timeline.steps
        for device, ran in step
    )
    rows = []
    for (device, kinds), own in sorted(alike.items(), key=lambda entry: entry[0]):
        took = sorted(ran.end - ran.start for ran in own)
        low, high = (took[round(share * (len(own) - 1))] for share in (0.05, 0.95))
        predicted = fmean(timeline.us_per_unit * duration(problem, ran.item) for ran in own)
        cores = [ran.cpu for ran in own if ran.cpu is not None]
        cpu = fmean(cores) if cores else None
        text = "+".join(KINDS[kind] for kind in kinds)
        rows.append(KindRow(device, text, len(own), predicted, fmean(took), low, high, cpu))
    return tuple(rows)


def _devices(problem: Problem, timeline: Timeline, predicted: float) -> tuple[DeviceRow, ...]:
    step = timeline.typical
    rows = []
    for device, row in enumerate(step.devices):
        expected = timeline.us_per_unit * sum(duration(problem, ran.item) for ran in row.ops)
        busy = sum(ran.end - ran.start for ran in row.ops)
        gaps = gaps_of(row)
        calls, overhead = sum(gap.calls for gap in gaps), sum(gap.other for gap in gaps)
        idle = max(0.0, step.makespan - busy - calls - overhead)
        rows.append(DeviceRow(device, expected, predicted - expected, busy, calls, overhead, idle))
    return tuple(rows)


def _links(problem: Problem, timeline: Timeline) -> tuple[LinkRow, ...]:
    seen = measured_delays(problem, timeline)
    rows = []
    for (a, b), link in problem.links.items():
        for hop, delay in (((a, b), link.F), ((b, a), link.B)):
            values = seen.get(hop)
            measured, count = (median(values), len(values)) if values else (None, 0)
            rows.append(LinkRow(*hop, timeline.us_per_unit * delay, measured, count))
    return tuple(rows)


def comparison_picture(
    problem: Problem, timeline: Timeline, comparison: AgainstPrediction, kind: str = "png"
) -> bytes:
    """Draw prediction and measurement of a timeline's typical step, both in us."""
    from pipesat.draw.figures import file_of

    step = timeline.typical
    # a file may state any unit, and pictures hold whole numbers
    unit, us = ("us", 1.0) if comparison.predicted + comparison.measured < 1e12 else ("s", 1e6)
    scale = timeline.us_per_unit / us
    both = {
        "predicted": _scaled(time_order(problem, step.order), scale),
        "measured": step.schedule(1 / us),
    }
    error = percent(comparison.error, 1, sign=True)
    title = (
        f"{problem.name or 'timeline'}: predicted {comparison.predicted / 1000:,.2f} ms, "
        f"measured {comparison.measured / 1000:,.2f} ms ({error})"
    )
    figure = gantt_figure(problem, both, title=title, time_unit=unit)
    return file_of(figure, kind)


def _scaled(schedule: Schedule, scale: float) -> Schedule:
    def times(row: Iterable[Any]) -> Any:
        return tuple(
            t._replace(start=round(t.start * scale), end=round(t.end * scale)) for t in row
        )

    return replace(
        schedule,
        devices=tuple(map(times, schedule.devices)),
        copies=tuple(map(times, schedule.copies)),
    )
