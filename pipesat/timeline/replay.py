"""Replays of the order that ran, with some of its measured times in place of predicted ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TypeAlias

from pipesat.core.linear_order import LinearOrder
from pipesat.core.ops import Event, Item, Op, OpKind, members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, duration
from pipesat.core.timing import linearize
from pipesat.timeline.timeline import DeviceRun, Ran, Timeline, TrainingStep

CostKey: TypeAlias = tuple[OpKind, ...]
"""Stage and kind of an op, or of both ops of a pair, sorted."""

_Alike: TypeAlias = tuple[CostKey, tuple[int, ...]]

LinkKey: TypeAlias = tuple[int, int]
"""Stage whose result is sent, stage that needs it: (0, 1) an activation, (1, 0) a gradient."""

_WAITED = 50.0
"""us of waiting from which an op's start is taken for the arrival of its input: a receive that is
complete already takes some of them too."""


@dataclass(frozen=True)
class Gap:
    """Time between two ops of a device in which it did not wait for input, in us.

    ``calls`` of it went into starting sends and receives, ``other`` into anything else.
    """

    calls: float = 0.0
    other: float = 0.0


def gaps_of(row: DeviceRun) -> list[Gap]:
    """Return the gap before every op of a device; none before its first."""
    gaps = [Gap()] if row.ops else []
    transfers = iter(row.transfers)
    transfer = next(transfers, None)
    for before, after in pairwise(row.ops):
        length = max(0.0, after.turned_to - before.end)
        calls = 0.0
        while transfer is not None and transfer.start < after.turned_to:
            if transfer.start >= before.end:
                calls += transfer.end - transfer.start
            transfer = next(transfers, None)
        calls = min(calls, length)
        gaps.append(Gap(calls, length - calls))
    return gaps


def cost_key(item: Item) -> CostKey:
    """What is taken to cost the same: ops of one stage and kind, pairs of two such."""
    return tuple(sorted((op.stage, op.kind) for op in members(item)))


def _alike(item: Item) -> _Alike:
    """What items share that take equally long: the modes of their ops, too."""
    return cost_key(item), tuple(op.mode for op in members(item))


def _measured(timeline: Timeline) -> dict[_Alike, list[float]]:
    """Return how long items that are alike took, in us, over all steps."""
    costs: dict[_Alike, list[float]] = defaultdict(list)
    for step in timeline.steps:
        for _, ran in step:
            costs[_alike(ran.item)].append(ran.end - ran.start)
    return dict(costs)


def measured_delays(problem: Problem, timeline: Timeline) -> dict[LinkKey, list[float]]:
    """Return what was seen of the delays between devices, in us, over all steps.

    Only of transfers that an op waited for: from the end of the op that sends to the start of the
    one that waited. Other transfers took at most as long as they could. Which input a pair waited
    for that needs two from other devices is not known: such a pair counts for neither.
    """
    delays: dict[LinkKey, list[float]] = defaultdict(list)
    for step in timeline.steps:
        place = places_of(step)
        for _, ran in step:
            sources = sources_of(problem, ran.item)
            if len(sources) == 1 and waited_for(ran, source := place[sources[0][1]]):
                op, event = sources[0]
                delays[event[0], op.stage].append(ran.start - source.end)
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


def sources_of(problem: Problem, item: Item) -> list[tuple[Op, Event]]:
    """Return what the ops of an item need from other devices: each op with what sends to it."""
    needs = [(op, need.event) for op in members(item) if (need := awaited(problem, op))]
    return [
        (op, event)
        for op, event in needs
        if problem.stages[event[0]].device != problem.stages[op.stage].device
    ]


@dataclass(frozen=True)
class Replay:
    """The typical step of a timeline, ready to be timed with any mixture of times, in us."""

    problem: Problem
    timeline: Timeline
    step: TrainingStep
    linear: LinearOrder
    ran: tuple[Ran, ...]
    gaps: tuple[Gap, ...]

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
        scale, ends = self.timeline.us_per_unit, list[float]()
        linear = self.linear
        for number, (before, inputs) in enumerate(zip(linear.before, linear.inputs, strict=True)):
            start = 0.0
            if before >= 0:
                start = ends[before] + (gaps[number] if gaps else 0.0)
            sent = {s: d for s, d in inputs if linear.device[s] != linear.device[number]}
            last = max(sent, key=lambda s: self.ran[s].end + sent[s] * scale, default=None)
            for source, delay in inputs:
                after = delay * scale
                if delays_as_seen and source in sent:
                    seen = self.ran[number].start - self.ran[source].end
                    # of two, a pair is taken to have waited for the one that was to come last
                    waited = source == last and waited_for(self.ran[number], self.ran[source])
                    after = seen if waited else min(after, seen)
                start = max(start, ends[source] + after)
            ends.append(start + lengths[number])
        return max(ends, default=0.0)

    @property
    def predicted_lengths(self) -> list[float]:
        """The problem's time of every op."""
        return [self.timeline.us_per_unit * length for length in self.linear.duration]

    @property
    def typical_lengths(self) -> list[float]:
        """The median time of every op's stage and kind."""
        costs = {key: median(values) for key, values in _measured(self.timeline).items()}
        return [costs[_alike(ran.item)] for ran in self.ran]

    @property
    def core_lengths(self) -> list[float]:
        """The median time on a core of every op's stage and kind; whole times if not known."""
        costs: dict[_Alike, list[float]] = defaultdict(list)
        for step in self.timeline.steps:
            for _, ran in step:
                whole = ran.end - ran.start
                costs[_alike(ran.item)].append(whole if ran.cpu is None else ran.cpu)
        middle = {key: median(values) for key, values in costs.items()}
        return [middle[_alike(ran.item)] for ran in self.ran]

    @property
    def measured_lengths(self) -> list[float]:
        """The time of every op in this step."""
        return [ran.end - ran.start for ran in self.ran]


def replay_of(problem: Problem, timeline: Timeline) -> Replay:
    """Prepare the replay of a timeline's typical step."""
    step = timeline.typical
    linear = linearize(problem, step.order)
    known: dict[Item, tuple[Ran, Gap]] = {}
    for row in step.devices:
        known |= {ran.item: (ran, gap) for ran, gap in zip(row.ops, gaps_of(row), strict=True)}
    return Replay(
        problem,
        timeline,
        step,
        linear,
        tuple(known[item][0] for item in linear.item),
        tuple(known[item][1] for item in linear.item),
    )


def predicted_length(problem: Problem, timeline: Timeline, item: Item) -> float:
    """The problem's time of an op or pair, in us of the run."""
    return timeline.us_per_unit * duration(problem, item)
