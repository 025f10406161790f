"""Replays of the order that ran, with some of its measured times in place of predicted ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple, TypeAlias

from pipesat.core.ops import Copy, Event, Item, Kind, Op, members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited
from pipesat.core.timing import with_all_copies
from pipesat.timeline.timeline import DeviceRun, Ran, RanCopy, Timeline, TrainingStep

CostKey: TypeAlias = tuple[tuple[int, Kind, int, int], ...]
"""Stage, kind, class and mode of an op, or of both ops of a pair, sorted."""

LinkKey: TypeAlias = tuple[int, int]
"""Stage whose result is sent, stage that needs it: (0, 1) an activation, (1, 0) a gradient."""

_WAITED = 50.0
"""us of waiting from which an op's start is taken for the arrival of its input: a receive that is
complete already takes some of them too."""


class Gap(NamedTuple):
    """Time between two ops of a device in which it did not wait for input, in us.

    ``calls`` of it went into starting sends and receives, ``other`` into anything else.
    """

    calls: float = 0.0
    other: float = 0.0


def gaps_of(row: DeviceRun) -> list[Gap]:
    """Return the gap before every op of a device; none before its first."""
    gaps = [Gap()] if row.ops else []
    for before, after in pairwise(row.ops):
        length = max(0.0, after.turned_to - before.end)
        between = (t for t in row.transfers if before.end <= t.start < after.turned_to)
        calls = min(sum(t.end - t.start for t in between), length)
        gaps.append(Gap(calls, length - calls))
    return gaps


def cost_key(problem: Problem, item: Item) -> CostKey:
    """What items share that are taken to cost the same."""
    return tuple(
        sorted(
            (op.stage, op.kind, problem.class_of(op.stage, op.microbatch), op.mode)
            for op in members(item)
        )
    )


def delays_seen(problem: Problem, timeline: Timeline) -> Iterator[tuple[Op, int, float]]:
    """Yield delays between devices that were seen: which op waited, for which stage, how many us.

    Only of transfers that an op waited for: from the end of the op that sends to the start of the
    one that waited. Other transfers took at most as long as they could. Which input a pair waited
    for that needs two from other devices is not known: such a pair counts for neither. Nor does an
    op during whose wait a copy of its device ended.
    """
    for step in timeline.steps:
        place = places_of(step)
        for device, ran in step:
            sources = sources_of(problem, ran.item)
            if len(sources) != 1 or _copied_meanwhile(step, device, ran):
                continue
            op, event = sources[0]
            if waited_for(ran, source := place[event]):
                yield op, event[0], ran.start - source.end


def measured_delays(problem: Problem, timeline: Timeline) -> dict[LinkKey, list[float]]:
    """Return the delays that were seen, by link."""
    delays: dict[LinkKey, list[float]] = defaultdict(list)
    for op, sender, delay in delays_seen(problem, timeline):
        delays[sender, op.stage].append(delay)
    return dict(delays)


def places_of(step: TrainingStep) -> dict[Event, Ran]:
    """Return what completes each event in a step."""
    return {op.event: ran for _, ran in step for op in members(ran.item)}


def waited_for(ran: Ran, source: Ran) -> bool:
    """Whether an op's start is the arrival of what ``source`` sent.

    It is not where the result had been under way for longer than the op waited: then it was there,
    and the receive took its time for another reason (a busy core).
    """
    return ran.waited > max(_WAITED, ran.turned_to - source.end)


def _copied_meanwhile(step: TrainingStep, device: int, ran: Ran) -> bool:
    """Whether a copy of its device ended while an op waited, which may be what it waited for."""
    return any(ran.turned_to < copy.end <= ran.start for copy in step.devices[device].copies)


def sources_of(problem: Problem, item: Item) -> list[tuple[Op, Event]]:
    """Return what the ops of an item need from other devices: each op with what sends to it."""
    needs = [(op, need.event) for op in members(item) if (need := awaited(problem, op))]
    return [
        (op, event)
        for op, event in needs
        if problem.stages[event[0]].device != problem.stages[op.stage].device
    ]


class Replay:
    """The typical step of a timeline, ready to be timed with any mixture of times, in us.

    Copies of what is offloaded are part of the sequence, where timing its order puts them. By item
    or copy, ``ran`` has what is known of it, ``None`` if it was not measured, ``stated`` the
    problem's time and ``gaps`` the gap before it.
    """

    def __init__(self, problem: Problem, timeline: Timeline) -> None:
        self.problem, self.timeline, self.step = problem, timeline, timeline.typical
        self.linear = with_all_copies(problem, self.step.order)
        known: dict[Item | Copy, tuple[Ran | RanCopy | None, Gap]] = {}
        for row in self.step.devices:
            known |= {ran.item: (ran, gap) for ran, gap in zip(row.ops, gaps_of(row), strict=True)}
            known |= {ran.copy: (ran, Gap()) for ran in row.copies}
        whats = (self.linear.copies.get(n, item) for n, item in enumerate(self.linear.item))
        found = [known.get(what, (None, Gap())) for what in whats]
        self.ran, self.gaps = [ran for ran, _ in found], [gap for _, gap in found]
        self.stated = [timeline.us_per_unit * length for length in self.linear.duration]

    def makespan(
        self,
        lengths: Sequence[float],
        gaps: Sequence[float] | None = None,
        *,
        delays_as_seen: bool = False,
    ) -> float:
        """Time the order as early as possible.

        ``start = max(end of the op before + gap, end of the input's op + delay)``; with
        ``delays_as_seen``, a delay is what it was in this step instead of the problem's: from the
        end of the input's op to the start of one that waited for it, at most that for another.
        """
        import numpy as np  # importing pipesat stays fast

        from pipesat.kernels.timing import last_ends

        linear, scale = self.linear, self.timeline.us_per_unit
        delays: list[float] = []
        for number, inputs in enumerate(linear.inputs):
            seen = self._seen_delays(number) if delays_as_seen else {}
            delays += [  # below 0 where a copy waits for the start of an op, not for its end
                -lengths[source] if delay < 0 else seen.get(source, delay * scale)
                for source, delay in inputs
            ]
        rests = np.array(gaps or [0.0] * len(lengths), float)
        times, devices = np.array([lengths], float), len(self.problem.devices)
        ends = last_ends(linear.arrays, times, np.array(delays, float), rests, devices, False)
        return float(ends.max(initial=0.0))

    def _seen_delays(self, number: int) -> dict[int, float]:
        """By item that sends to this one from another device: what its delay was in this step."""
        linear, ran = self.linear, self.ran[number]
        if not isinstance(ran, Ran):
            return {}
        sent = {
            source: (delay * self.timeline.us_per_unit, own)
            for source, delay in linear.inputs[number]
            if linear.device[source] != linear.device[number]
            and isinstance(own := self.ran[source], Ran)
        }
        last = max(sent, key=lambda s: sent[s][1].end + sent[s][0], default=None)
        unsure = _copied_meanwhile(self.step, linear.device[number], ran)
        found = {}
        for source, (stated, own) in sent.items():
            seen = ran.start - own.end
            # of two, a pair is taken to have waited for the one that was to come last
            waited = source == last and not unsure and waited_for(ran, own)
            found[source] = seen if waited else min(stated, seen)
        return found

    def medians(self, of: Callable[[Ran], float]) -> list[float]:
        """Times of ops as the median over all steps of those that are alike; copies as stated."""
        costs: dict[CostKey, list[float]] = defaultdict(list)
        for step in self.timeline.steps:
            for _, ran in step:
                costs[cost_key(self.problem, ran.item)].append(of(ran))
        middle = {key: median(values) for key, values in costs.items()}
        return [
            middle[cost_key(self.problem, ran.item)] if isinstance(ran, Ran) else stated
            for ran, stated in zip(self.ran, self.stated, strict=True)
        ]

    def measured(self, *, copies: bool = False) -> list[float]:
        """Times of ops in this step, and those of copies or what is stated of them."""
        return [
            ran.end - ran.start if ran and (copies or isinstance(ran, Ran)) else stated
            for ran, stated in zip(self.ran, self.stated, strict=True)
        ]
