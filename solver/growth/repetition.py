"""Parts of a schedule between two cuts of the same state, repeated until there are enough.

A *cut* is a moment: what starts before it against what does not. Its *state* says which forwards
and backwards are pending, of microbatches that have started, and in which modes these run; each
microbatch is named by how many of its route have started since. Pending weight gradients are noted
beside the state, for they may differ.

Why every rule still holds, device by device in the order given here:

- *Every op once.* Each repetition finds the state it needs, of microbatches that are later by as
  many as one repetition adds, and leaves the same one; what comes after the part finds it, too.
  So every F and every backward is there once. For weight gradients see below.
- *No deadlock.* What an op waits for starts before it: before the part, and then the state says
  that it has, or earlier within the same repetition. So there is one sequence of all ops,
  repetition after repetition, in which everything stands after what it waits for.
- *Memory.* What a device holds when an op starts depends on what stands before it on that device
  alone. F's and backwards there are the same as the first time, with other numbers. Of the weight
  gradients that are pending at the second cut, those that were not at the first cut come first in
  every repetition; and what has been done is left out. So those that are pending are always among
  those of the first time, and the device holds no more. Coming first is safe, as a W only frees;
  also where a B takes more than its F, since the B's stand where they stood.
- *Too many microbatches.* The last ones of every route are left out with all their ops. No other op
  waits for them, and what a microbatch holds is never negative.
- *Pairs* are repeated as such. Where one member is left out the other runs alone, in its place, and
  takes what time it takes then: what comes of it is timed and checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from pipesat.problem.ops import Event, Item, Op, Pair, Phase, Unreadable, members
from pipesat.problem.problem import Problem, Route
from pipesat.schedule.schedule import Order, Schedule

Name: TypeAlias = tuple[int, Phase, int, int]
"""Stage, phase, how many microbatches of its route have started since the op's own, and its mode.

The mode is 0 before the microbatch's F on that stage.
"""


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

    Where microbatches differ, those of its repetitions are as the first time.

    Cuts are where an F of the first route's first stage starts. Only what precedes the first
    microbatch that starts out of its turn is looked at.
    """
    m = [route.microbatches for route in problem.routes]
    seen: dict[frozenset[Name], list[Cut]] = {}
    for cut in _cuts(problem, schedule):
        earlier = seen.setdefault(cut.state, [])
        for part in (Repeat(begin, cut) for begin in earlier):
            first, *_ = counts = part.microbatches
            evenly = all(count * m[0] == first * own for count, own in zip(counts, m, strict=True))
            if evenly and all(map(_come_again, problem.routes, counts)):
                yield part
        earlier.append(cut)


def _come_again(route: Route, after: int) -> bool:
    """Whether so many microbatches later, each is of the same class."""
    classes = route.classes or ()
    return classes[after:] == classes[: len(classes) - after]


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
        self.mode: dict[tuple[int, int], int] = {}  # by stage and microbatch, once F has started

    def cut(self, time: int) -> Cut:
        """The cut at this time."""
        since = [self.started[route] for route in self.problem.route_of]
        named = frozenset(
            (s, phase, since[s] - number, self.mode.get((s, number), 0))
            for s, phase, number in self.pending
        )
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
            if op.mode:
                self.mode[op[::2]] = op.mode
            if op.kind == "BW":
                self.pending.discard((op.stage, "W", op.microbatch))


def grown(few: Problem, schedule: Schedule, part: Repeat, problem: Problem) -> Order:
    """Return an order for ``problem``: a part is repeated until there are enough microbatches."""
    missing = problem.routes[0].microbatches - few.routes[0].microbatches
    return repeated(few, schedule, part, problem, -(-missing // part.microbatches[0]))


def in_a_row(few: Problem, order: Order, problem: Problem) -> Order:
    """Return an order for ``problem``: an order for ``few``, again and again, without overlap.

    It takes no more memory, and no longer than the order as often as it is repeated.
    """
    times = max(
        -(-many // n) for many, n in zip(problem.microbatches, few.microbatches, strict=True) if n
    )
    return tuple(
        tuple(
            chain.from_iterable(
                _later(problem, row, few.microbatches, turn) for turn in range(times)
            )
        )
        for row in order
    )


def with_other_end(few: Problem, schedule: Schedule, part: Repeat) -> Order:
    """Return an order of as many microbatches in which repetitions replace what follows the part.

    Only microbatches that have started are completed as they were.
    """
    missing = few.routes[0].microbatches - part.end.started[0]
    return repeated(few, schedule, part, few, -(-missing // part.microbatches[0]))


def repeated(few: Problem, schedule: Schedule, part: Repeat, problem: Problem, times: int) -> Order:
    """Return an order for ``problem`` with ``times`` more repetitions of a part of a schedule.

    Both problems differ in their numbers of microbatches only. Microbatches beyond those of
    ``problem`` are left out.

    Raises
    ------
    ValueError
        If these are too few repetitions.
    """
    routes = zip(few.routes, part.microbatches, problem.routes, strict=True)
    if times < 0 or any(a.microbatches + times * k < b.microbatches for a, k, b in routes):
        raise ValueError(f"{times} repetitions do not make enough microbatches")
    return tuple(
        tuple(_without_repetition(_row(few, schedule, part, problem, times, device)))
        for device in range(len(schedule.devices))
    )


def _row(
    few: Problem, schedule: Schedule, part: Repeat, problem: Problem, times: int, device: int
) -> Iterator[Item]:
    """Yield a device's items; a W may be there a second time."""
    begin, end = part.begin, part.end
    timed = [
        (t.start, t.item) for t in schedule.devices[device] if not isinstance(t.item, Unreadable)
    ]
    owed = [_op(few, name, begin) for name in sorted(end.weights - begin.weights)]
    again: list[Item] = [op for op in owed if few.stages[op.stage].device == device]
    again += [item for start, item in timed if begin.time <= start < end.time]

    step = [part.microbatches[route] for route in few.route_of]
    yield from _later(problem, (item for start, item in timed if start < end.time), step, 0)
    for turn in range(1, times + 1):
        yield from _later(problem, again, step, turn)
    yield from _later(problem, (item for start, item in timed if start >= end.time), step, times)


def _later(
    problem: Problem, items: Iterable[Item], step: Sequence[int], turn: int
) -> Iterator[Item]:
    """Yield items of microbatches later by some turns of so many per stage, as far as there are."""
    for item in items:
        ops = []
        for op in members(item):
            number = op.microbatch + turn * step[op.stage]
            if number < problem.microbatches[op.stage]:
                ops.append(op._replace(microbatch=number))
        yield from _together(ops)


def _together(ops: Sequence[Op]) -> Iterator[Item]:
    """Yield what is left of an item: a pair as long as both members are there."""
    if len(ops) == 2:
        yield Pair(*ops)
    else:
        yield from ops


def _without_repetition(row: Iterable[Item]) -> Iterator[Item]:
    """Leave out every W that has been done."""
    done: set[tuple[int, int]] = set()
    for item in row:
        left = []
        for op in members(item):
            if op.kind in ("W", "BW"):
                if (op.stage, op.microbatch) in done:
                    continue
                done.add((op.stage, op.microbatch))
            left.append(op)
        yield from _together(left)


def _op(problem: Problem, name: Name, cut: Cut) -> Op:
    stage, phase, ago, mode = name
    return Op(stage, phase, cut.started[problem.route_of[stage]] - ago, mode)
