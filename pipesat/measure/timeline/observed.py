"""What a run tells of its ops: what they cost, how long devices rested, and delays of links."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from pipesat.core.grouping import grouped
from pipesat.problem.ops import Event, Item, Kind, Op, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import inputs_of
from pipesat.runtimes.timeline import DeviceRun, Ran, Timeline, TrainingStep

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
            sources, since = sources_of(problem, ran.item), ran.turned_to
            copied = any(since < copy.end <= ran.start for copy in step.devices[device].copies)
            for op, event in sources if len(sources) == 1 and not copied else ():
                end = place[
                    event
                ].end  # had it been there for longer, another reason held the op up
                if ran.waited > max(_WAITED, since - end):
                    yield op, event[0], ran.start - end


def measured_delays(problem: Problem, timeline: Timeline) -> dict[LinkKey, list[float]]:
    """Return the delays that were seen, by link."""
    seen = delays_seen(problem, timeline)
    return grouped(((sender, op.stage), delay) for op, sender, delay in seen)


def places_of(step: TrainingStep) -> dict[Event, Ran]:
    """Return what completes each event in a step."""
    return {op.event: ran for _, ran in step for op in members(ran.item)}


def sources_of(problem: Problem, item: Item) -> list[tuple[Op, Event]]:
    """Return what the ops of an item need from other devices: each op with what sends to it."""
    needs = [(op, need.event) for op in members(item) for need in inputs_of(problem, op)]
    return [
        (op, event)
        for op, event in needs
        if problem.stages[event[0]].device != problem.stages[op.stage].device
    ]
