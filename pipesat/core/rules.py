"""The rules of a schedule, each said once: durations, what an op waits for, memory changes.

Timing, heuristics, the solver, metrics and exporters all call these functions. The checker alone
does not: it restates the rules from given times, so that a mistake here cannot hide.
"""

from __future__ import annotations

from typing import NamedTuple

from pipesat.core.ops import Item, Kind, Pair, Phase
from pipesat.core.problem import Problem, Stage


def duration(stage: Stage, kind: Kind) -> int:
    """Compute time of one op, in time units."""
    if kind == "F":
        return stage.F
    if kind == "B":
        return stage.B
    return stage.W if kind == "W" else stage.BW


def item_duration(problem: Problem, item: Item) -> int:
    """Time of an item: an op's duration, or ``max(F, BW, ceil((F + BW) * num / den))`` of a pair.

    Raises
    ------
    ValueError
        If the item is a pair and the problem has no ``overlap``.
    """
    if not isinstance(item, Pair):
        return duration(problem.stages[item.stage], item.kind)
    if problem.overlap is None:
        raise ValueError(f"{item}: this problem has no overlapped pairs")
    num, den = problem.overlap
    f = problem.stages[item.forward.stage].F
    bw = problem.stages[item.backward.stage].BW
    return max(f, bw, -(-(f + bw) * num // den))


class Awaited(NamedTuple):
    """What an op waits for: the end of ``phase`` of the same microbatch on ``stage``, + delay."""

    stage: int
    phase: Phase
    delay: int


def awaited(problem: Problem, stage: int, kind: Kind) -> Awaited | None:
    """Return the one thing an op waits for besides its device, or ``None`` for a route's first F.

    F waits for the previous stage's F; the last stage's backward for its own F; any other backward
    for the next stage's backward; W for its own B. Delays are 0 within a device.
    """
    if kind == "W":
        return Awaited(stage, "B", 0)
    if kind == "F":
        before = problem.previous[stage]
        return None if before is None else Awaited(before, "F", link_delay(problem, before, "F"))
    after = problem.next[stage]
    if after is None:
        return Awaited(stage, "F", 0)
    return Awaited(after, "B", link_delay(problem, stage, "B"))


def link_delay(problem: Problem, stage: int, direction: Phase) -> int:
    """Delay between a stage and the next one of its route: ``F`` forward, ``B`` backward."""
    after = problem.next[stage]
    if after is None:
        return 0
    link = problem.links.get((stage, after))
    if link is None:  # the two stages share a device
        return 0
    return link.F if direction == "F" else link.B


def round_trip(problem: Problem, stage: int) -> int:
    """Least time from the end of a stage's F to the start of its backward: out and back again."""
    time = 0
    here = stage
    while (after := problem.next[here]) is not None:
        time += link_delay(problem, here, "F") + link_delay(problem, here, "B")
        time += problem.stages[after].F + problem.stages[after].shortest_backward
        here = after
    return time


class MemoryChange(NamedTuple):
    """Memory that an op takes at its start and gives back at its end (both >= 0 or so signed)."""

    at_start: int
    at_end: int


def memory_change(stage: Stage, kind: Kind) -> MemoryChange:
    """Memory change of one op, in memory units.

    With a = held_after_F and w = held_after_B: F takes a; B holds max(a, w) while it runs and w
    after it; W frees w; BW frees a.
    """
    a, w = stage.held_after_F, stage.held_after_B
    if kind == "F":
        return MemoryChange(a, 0)
    if kind == "B":
        return MemoryChange(max(0, w - a), w - max(a, w))
    return MemoryChange(0, -w if kind == "W" else -a)


def item_memory(problem: Problem, item: Item) -> MemoryChange:
    """Memory change of an item; a pair takes its F's at the start, frees its BW's at the end."""
    if isinstance(item, Pair):
        taken = memory_change(problem.stages[item.forward.stage], "F").at_start
        freed = memory_change(problem.stages[item.backward.stage], "BW").at_end
        return MemoryChange(taken, freed)
    return memory_change(problem.stages[item.stage], item.kind)
