"""Cuts of a schedule, and the parts of it that lie between two cuts of the same state.

A *cut* is a moment: what starts before it against what does not. Its *state* says which forwards
and backwards are pending, of microbatches that have started; each microbatch is named by how many
of its route have started since. Pending weight gradients are noted beside the state, for they may
differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from pipesat.core.ops import Event, Op, Phase, Unreadable, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule

Name: TypeAlias = tuple[int, Phase, int]
"""Stage, phase, and how many microbatches of its route have started since the op's own."""


class Cut(NamedTuple):
    """What starts before ``time``: ``started[r]`` microbatches of route r, less what is pending."""

    time: int
    started: tuple[int, ...]
    state: frozenset[Name]
    weights: frozenset[Name]


@dataclass(frozen=True)
class Repeat:
    """What starts between two cuts of the same state: at the first one or later, before ``end``."""

    begin: Cut
    end: Cut

    @property
    def microbatches(self) -> tuple[int, ...]:
        """Microbatches of each route that one repetition adds."""
        return tuple(b - a for a, b in zip(self.begin.started, self.end.started, strict=True))

    @property
    def rate(self) -> float:
        """Time units per microbatch of the first route, the first time."""
        return (self.end.time - self.begin.time) / self.microbatches[0]


def repeats(problem: Problem, schedule: Schedule) -> Iterator[Repeat]:
    """Yield every part between two cuts of the same state that serves all routes evenly.

    Cuts are where an F of the first route's first stage starts. Only what precedes the first
    microbatch that starts out of its turn is looked at.
    """
    m = [route.microbatches for route in problem.routes]
    seen: dict[frozenset[Name], list[Cut]] = {}
    for cut in _cuts(problem, schedule):
        earlier = seen.setdefault(cut.state, [])
        for part in (Repeat(begin, cut) for begin in earlier):
            first, *_ = counts = part.microbatches
            if all(count * m[0] == first * own for count, own in zip(counts, m, strict=True)):
                yield part
        earlier.append(cut)


def _cuts(problem: Problem, schedule: Schedule) -> Iterator[Cut]:
    """Yield the cuts in the order of time."""
    progress = _Progress(problem)
    first = problem.routes[0].stages[0]
    timed = sorted((timed for _, timed in schedule), key=attrgetter("start"))
    for time, group in groupby(timed, key=attrgetter("start")):
        items = [timed.item for timed in group if not isinstance(timed.item, Unreadable)]
        ops = [op for item in items for op in members(item)]
        if any(op.stage == first and op.kind == "F" for op in ops):
            yield progress.cut(time)
        if not progress.enter(ops):
            return
        progress.start(ops)


class _Progress:
    """What has started so far. Phase B stands for the backward, be it split or fused."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.enters = {route.stages[0]: number for number, route in enumerate(problem.routes)}
        self.started = [0] * len(problem.routes)
        self.pending: set[Event] = set()

    def cut(self, time: int) -> Cut:
        """The cut at this time."""
        since = [self.started[route] for route in self.problem.route_of]
        named = frozenset((s, phase, since[s] - number) for s, phase, number in self.pending)
        weights = frozenset(name for name in named if name[1] == "W")
        return Cut(time, tuple(self.started), named - weights, weights)

    def enter(self, ops: Sequence[Op]) -> bool:
        """Begin the microbatches whose first F is among ``ops``; say whether it is their turn.

        All of them, before any op counts as started: ops of length zero may share the moment.
        """
        for op in ops:
            if op.kind == "F" and (route := self.enters.get(op.stage)) is not None:
                if op.microbatch != self.started[route]:
                    return False
                self.started[route] += 1
                for stage in self.problem.routes[route].stages:
                    self.pending |= {(stage, "F", op.microbatch), (stage, "B", op.microbatch)}
                    self.pending.add((stage, "W", op.microbatch))
        return True

    def start(self, ops: Sequence[Op]) -> None:
        """Start ops."""
        for op in ops:
            self.pending.discard(op.event)
            if op.kind == "BW":
                self.pending.discard((op.stage, "W", op.microbatch))
