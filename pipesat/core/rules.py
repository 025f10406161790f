"""The rules of a schedule, each said once: durations, what an op waits for, memory changes.

Timing, heuristics, the solver, metrics and exporters all ask these functions, per op or per item
(two ops run together). The checker alone does not: it restates the rules from given times, so that
a mistake here cannot hide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipesat.core.ops import PHASE_OF, Event, Item, Op, Pair, Phase
from pipesat.core.problem import Problem


def duration(problem: Problem, item: Item) -> int:
    """Time of an op, or ``max(F, BW, ceil((F + BW) * num / den))`` of a pair, in time units.

    Raises
    ------
    ValueError
        If the item is a pair and the problem has no ``overlap``.
    """
    if not isinstance(item, Pair):
        return _answers(problem, item).duration
    if problem.overlap is None:
        raise ValueError(f"{item}: this problem has no overlapped pairs")
    num, den = problem.overlap
    f, bw = duration(problem, item.forward), duration(problem, item.backward)
    return max(f, bw, -(-(f + bw) * num // den))


class Awaited(NamedTuple):
    """What an op waits for: the end of an event, and ``delay`` after it."""

    event: Event
    delay: int


def awaited(problem: Problem, op: Op) -> Awaited | None:
    """Return the one thing an op waits for besides its device, or ``None`` for a route's first F.

    F waits for the previous stage's F; the last stage's backward for its own F; any other backward
    for the next stage's backward; W for its own B; all of the same microbatch. Delays are 0 within
    a device.
    """
    answers = _answers(problem, op)
    if answers.source is None:
        return None
    stage, phase = answers.source
    return Awaited((stage, phase, op.microbatch), answers.delay)


class MemoryChange(NamedTuple):
    """Memory that an op takes at its start and gives back at its end (both >= 0 or so signed)."""

    at_start: int
    at_end: int

    @property
    def net(self) -> int:
        """What is held more when the op has ended than before it started."""
        return self.at_start + self.at_end


def memory_change(problem: Problem, item: Item) -> MemoryChange:
    """Memory change of an item, in memory units.

    With a = held_after_F and w = held_after_B: F takes a; B holds max(a, w) while it runs and w
    after it; W frees w; BW frees a. A pair takes at its start what its members take at theirs, and
    frees at its end what they free.
    """
    if not isinstance(item, Pair):
        return _answers(problem, item).memory
    one, other = (memory_change(problem, op) for op in item)
    return MemoryChange(one.at_start + other.at_start, one.at_end + other.at_end)


def one_of_each(problem: Problem) -> Iterator[Op]:
    """Yield one op of every stage and kind: what holds of these ops holds of all."""
    for stage in range(len(problem.stages)):
        for kind in PHASE_OF:
            yield Op(stage, kind, 0)


class _Answers(NamedTuple):
    """All that the rules say of an op on its own."""

    duration: int
    memory: MemoryChange
    source: tuple[int, Phase] | None
    delay: int


def _answers(problem: Problem, op: Op) -> _Answers:
    """Look an op up; those of a stage and kind are alike."""
    key = op[:2]
    known: _Answers | None = problem.answers.get(key)
    if known is None:
        known = problem.answers[key] = _work_out(problem, op)
    return known


def _work_out(problem: Problem, op: Op) -> _Answers:
    data = problem.stages[op.stage]
    a, w = data.held_after_F, data.held_after_B
    if op.kind == "F":
        before = problem.previous[op.stage]
        source: tuple[int, Phase] | None = None if before is None else (before, "F")
        delay = 0 if before is None else link_delay(problem, before, "F")
        return _Answers(data.F, MemoryChange(a, 0), source, delay)
    if op.kind == "W":
        return _Answers(data.W, MemoryChange(0, -w), (op.stage, "B"), 0)
    after = problem.next[op.stage]
    source = (op.stage, "F") if after is None else (after, "B")
    delay = link_delay(problem, op.stage, "B")
    if op.kind == "BW":
        return _Answers(data.BW, MemoryChange(0, -a), source, delay)
    return _Answers(data.B, MemoryChange(max(0, w - a), w - max(a, w)), source, delay)


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
