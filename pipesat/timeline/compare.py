"""Predicted against measured, the assumption that the difference comes from, and the picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any, TypeAlias

from pipesat.core.claims import difference, percent
from pipesat.core.ops import KINDS, Copy, Item, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule, Timed, TimedCopy
from pipesat.core.timing import time_order
from pipesat.picture.gantt import gantt_figure
from pipesat.timeline.replay import gaps_of, measured_delays, predicted_length, replay_of
from pipesat.timeline.timeline import TOY_SOURCE, Timeline


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
class Part:
    """One assumption and by how much it moves the makespan, in us, after those before it."""

    assumption: str
    makes: float


@dataclass(frozen=True)
class AgainstPrediction:
    """Predicted against measured.

    ``parts`` lead from the predicted makespan to the measured one: the order that ran is timed
    again and again, each time with one more of its measured times. Their sum is the difference.
    Of a ``toy_model``, all that is predicted is scaled to its compute: only shapes are compared.
    """

    predicted: float
    measured: float
    shortest: float
    longest: float
    steps: int
    kinds: tuple[KindRow, ...]
    devices: tuple[DeviceRow, ...]
    links: tuple[LinkRow, ...]
    parts: tuple[Part, ...]
    toy_model: bool = False

    @property
    def error(self) -> float:
        """``(predicted - measured) / measured``: negative where the run was slower."""
        return difference(self.predicted, self.measured) or 0.0

    @property
    def largest(self) -> Part:
        """The assumption that moves the makespan most."""
        return max(self.parts, key=lambda part: abs(part.makes))

    def document(self) -> dict[str, Any]:
        """Return everything for ``--json``, times in us."""
        return {
            "predicted": self.predicted,
            "measured": self.measured,
            "shortest": self.shortest,
            "longest": self.longest,
            "steps": self.steps,
            "error": self.error,
            "toy_model": self.toy_model,
            "failed_assumption": self.largest.assumption,
            "parts": {part.assumption: part.makes for part in self.parts},
            "kinds": [asdict(row) for row in self.kinds],
            "devices": [asdict(row) for row in self.devices],
            "links": [asdict(row) for row in self.links],
        }


COSTS = "op costs"
CORES = "cores shared with others"
SPREAD = "op times that vary"
COPIES = "copy times"
CALLS = "send and receive calls that block"
OVERHEAD = "overhead between ops"
DELAYS = "link delays"
REST = "not explained"


def compare(problem: Problem, timeline: Timeline) -> AgainstPrediction:
    """Compare the order that ran, timed with the problem's costs, with its typical step."""
    replay = replay_of(problem, timeline)
    calls = [gap.calls for gap in replay.gaps]
    gaps = [gap.calls + gap.other for gap in replay.gaps]
    seen = measured_delays(problem, timeline)
    measured = replay.measured_with_copies
    predicted = replay.makespan(replay.predicted_lengths)
    ladder = [
        ("", predicted),
        (COSTS, replay.makespan(replay.core_lengths)),
        (CORES, replay.makespan(replay.typical_lengths)),
        (SPREAD, replay.makespan(replay.measured_lengths)),
        *([(COPIES, replay.makespan(measured))] if replay.linear.copies else []),
        (CALLS, replay.makespan(measured, calls)),
        (OVERHEAD, replay.makespan(measured, gaps)),
        (DELAYS, replay.makespan(measured, gaps, delays_as_seen=True)),
        (REST, replay.step.makespan),
    ]
    return AgainstPrediction(
        predicted,
        replay.step.makespan,
        min(timeline.makespans),
        max(timeline.makespans),
        len(timeline.steps),
        _kinds(problem, timeline),
        _devices(problem, timeline, predicted),
        _links(problem, timeline, seen),
        tuple(Part(name, after - before) for (_, before), (name, after) in pairwise(ladder)),
        timeline.source == TOY_SOURCE,
    )


def _kinds(problem: Problem, timeline: Timeline) -> tuple[KindRow, ...]:
    times: dict[tuple[int, Kinds], list[tuple[float, float]]] = defaultdict(list)
    cores: dict[tuple[int, Kinds], list[float]] = defaultdict(list)
    for step in timeline.steps:
        for device, ran in step:
            kinds = _kinds_of(ran.item)
            expected = predicted_length(problem, timeline, ran.item)
            times[device, kinds].append((expected, ran.end - ran.start))
            if ran.cpu is not None:
                cores[device, kinds].append(ran.cpu)
    rows = []
    for (device, kinds), both in sorted(times.items()):
        predicted, measured = zip(*both, strict=True)
        ordered = sorted(measured)
        count = len(ordered)
        low, high = (ordered[round(share * (count - 1))] for share in (0.05, 0.95))
        mean = sum(predicted) / count, sum(measured) / count
        known = cores[device, kinds]
        cpu = sum(known) / len(known) if known else None
        text = "+".join(KINDS[kind] for kind in kinds)
        rows.append(KindRow(device, text, count, *mean, low, high, cpu))
    return tuple(rows)


Kinds: TypeAlias = tuple[int, ...]
"""Kind of an op, kinds of a pair, ascending: numbers in :data:`KINDS`."""


def _kinds_of(item: Item) -> Kinds:
    return tuple(sorted(KINDS.index(op.kind) for op in members(item)))


def _devices(problem: Problem, timeline: Timeline, predicted: float) -> tuple[DeviceRow, ...]:
    step = timeline.typical
    rows = []
    for device, row in enumerate(step.devices):
        expected = sum(predicted_length(problem, timeline, ran.item) for ran in row.ops)
        busy = sum(ran.end - ran.start for ran in row.ops)
        gaps = gaps_of(row)
        calls, overhead = sum(gap.calls for gap in gaps), sum(gap.other for gap in gaps)
        idle = max(0.0, step.makespan - busy - calls - overhead)
        rows.append(DeviceRow(device, expected, predicted - expected, busy, calls, overhead, idle))
    return tuple(rows)


def _links(
    problem: Problem, timeline: Timeline, seen: dict[tuple[int, int], list[float]]
) -> tuple[LinkRow, ...]:
    rows = []
    for (a, b), link in problem.links.items():
        for source, target, delay in ((a, b, link.F), (b, a, link.B)):
            values = seen.get((source, target), [])
            rows.append(
                LinkRow(
                    source,
                    target,
                    timeline.us_per_unit * delay,
                    median(values) if values else None,
                    len(values),
                )
            )
    return tuple(rows)


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
