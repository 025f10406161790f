"""Depth-first orders on a loop of stages: microbatches in groups, chunk after chunk.

A group of microbatches passes all chunks of a rank before the next group begins: chunk 0 for every
microbatch of the group, then chunk 1, and so on; backwards go through the chunks from the last to
the first (Narayanan et al., SC 2021, section 2.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipesat.core.errors import BadInput, Deadlock, NotApplicable
from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.shared.alternate import Pass
from pipesat.heuristics.shared.rows import schedule_by_rank
from pipesat.placement.recognise import Ranks, loop_of


def groups_of(m: int, size: int) -> list[int]:
    """Sizes of the groups, ``size`` microbatches each, the last one possibly fewer.

    Raises
    ------
    BadInput
        If ``size`` is less than 1.
    """
    if size < 1:
        raise BadInput("expected at least 1 microbatch", where="group", value=size)
    return [min(size, m - first) for first in range(0, m, size)]


def full_groups(m: int, least: int) -> list[int]:
    """Sizes of the groups if each has ``least`` microbatches or more, as nearly equal as possible.

    A short last group would cost time, or deadlock; torch spreads the rest over the groups, as is
    done here (torch only if that makes them equal). Fewer than ``least`` microbatches are one
    group.
    """
    count = max(1, m // least)
    return [m // count + (number < m % count) for number in range(count)]


@dataclass(frozen=True)
class DepthFirst:
    """The passes of every rank of a loop with v >= 2 chunks per device."""

    ranks: Ranks
    groups: list[int]

    def forwards(self, rank: int) -> list[Pass]:
        """Forward passes of a rank in order."""
        return self._passes(self.ranks.stages[rank])

    def backwards(self, rank: int) -> list[Pass]:
        """Backward passes of a rank in order."""
        return self._passes(self.ranks.stages[rank][::-1])

    def warm_up(self, rank: int, per_hop: int, extra: int = 0) -> int:
        """Forwards before the steady state: ``(v - 1) g + per_hop (p - 1 - d) + extra``, or all.

        The first part lets a microbatch of the first group, of size g, reach the last chunk; the
        second covers the way to the last rank and back.
        """
        deep = (self.ranks.chunks - 1) * self.groups[0]
        wanted = deep + per_hop * (len(self.ranks) - 1 - rank) + extra
        return min(wanted, self.ranks.chunks * sum(self.groups))

    def _passes(self, chunks: tuple[int, ...]) -> list[Pass]:
        passes = []
        first = 0
        for size in self.groups:
            passes += [(s, j) for s in chunks for j in range(first, first + size)]
            first += size
        return passes


def chunked_loop_of(problem: Problem) -> Ranks:
    """A loop with at least two stages per device.

    Raises
    ------
    NotApplicable
        If it is not one, or if it is a plain chain, which has schedules of its own.
    """
    ranks = loop_of(problem)
    if ranks.chunks == 1:
        raise NotApplicable("needs at least two stages per device")
    return ranks


def depth_first(problem: Problem, group: int | None = None) -> DepthFirst:
    """Return the passes of a loop in groups of ``group`` microbatches; ``None``: full ones of p.

    Raises
    ------
    NotApplicable
        As :func:`chunked_loop_of`.
    BadInput
        As :func:`groups_of`.
    """
    ranks, m = chunked_loop_of(problem), problem.routes[0].microbatches
    return DepthFirst(ranks, full_groups(m, len(ranks)) if group is None else groups_of(m, group))


def schedule_in_groups(
    problem: Problem, order: DepthFirst, row: Callable[[int], list[Item]], source: str
) -> Schedule:
    """Time an order in groups.

    Raises
    ------
    NotApplicable
        If its groups are too small for the number of ranks: then the warm-up is too short for the
        last chunks, and ranks wait for each other.
    """
    try:
        return schedule_by_rank(problem, order.ranks, row, source)
    except Deadlock:
        smallest, p = min(order.groups), len(order.ranks)
        raise NotApplicable(f"a group of {smallest} is too small for {p} ranks: deadlock") from None
