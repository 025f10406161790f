"""Runs of a greedy simulation in which all repeats: turns that are written out, not simulated.

What is decided from some moment on depends on what stands then (how many of each kind have started,
which inputs, ends and events are to come, what is due) and on nothing before. Where microbatches
are alike it depends on differences alone, of times and of microbatch numbers, until the last
microbatches are in sight. So where a microbatch enters and all stands as when an earlier one did,
what started in between starts again, that much later and of microbatches that much higher, as long
as more than a few are left. The run may go on with as many microbatches fewer, and its rows get
what was left out at their end: the order is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import eq
from typing import Any, NamedTuple

from pipesat.core.ops import Item, Op, with_ops


class Moment(NamedTuple):
    """When so many microbatches had entered, and the lengths of rows then.

    ``view`` has all that counts from then on, as differences from ``time`` and ``entered``: first
    of how many forwards of each stage had started, then of how many backwards.
    """

    time: int
    entered: int
    lengths: list[int]
    view: Iterable[list[Any]]

    def repeats(self, seen: Moment) -> bool:
        """Whether all stands as it did, and decisions since will be the same again."""
        forwards, *_ = seen.view
        return seen.two > self.entered + max(forwards) and all(map(eq, seen.view, self.view))

    @property
    def two(self) -> int:
        """Least sum of two numbers of microbatches whose backward is to come.

        Pairs are chosen by sums of numbers. So this has to be more than any one number: with all of
        them higher it still is.
        """
        _, backwards, *_ = self.view
        least: int = min(backwards)
        return 2 * (self.entered + least)


class LeftOut(NamedTuple):
    """What is left out of a run: what started between two moments, ``turns`` times."""

    turns: int
    begin: Moment
    end: Moment

    @property
    def microbatches(self) -> int:
        """How many are left out of every route."""
        return self.turns * (self.end.entered - self.begin.entered)

    @property
    def time(self) -> int:
        """How much later what follows starts."""
        return self.turns * (self.end.time - self.begin.time)

    def whole(self, device: int, row: list[Item]) -> Iterator[Item]:
        """Yield a row of the run with what is left out of it."""
        begin, end = self.begin.lengths[device], self.end.lengths[device]
        yield from row[:end]
        for turn in range(1, self.turns + 1):
            yield from self._later(row[begin:end], turn)
        yield from self._later(row[end:], self.turns)

    def _later(self, items: list[Item], turns: int) -> Iterator[Item]:
        more = turns * (self.end.entered - self.begin.entered)
        for item in items:
            yield with_ops(item, lambda op: Op(op.stage, op.kind, op.microbatch + more))
