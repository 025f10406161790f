"""Schedules on a loop of stages: interleaved 1F1B in groups, its variants, and breadth first.

A group of microbatches passes all chunks of a rank before the next group begins: chunk 0 for every
microbatch of the group, then chunk 1, and so on; backwards go through the chunks from the last to
the first (Narayanan et al., SC 2021, section 2.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipesat.core.errors import BadInput, Deadlock, NotApplicable
from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.rows import (
    Pass,
    alternate,
    alternate_in_pairs,
    full_backward,
    schedule_by_rank,
    whole,
    with_late_weights,
)
from pipesat.placement.geometry import Ranks, loop_of


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


NAME = "interleaved-1f1b"


def interleaved(
    problem: Problem, group: int | None = None, per_hop: int = 2, source: str = NAME
) -> Schedule:
    """Interleaved 1F1B with groups of ``group`` microbatches, the last one possibly smaller.

    Rank d warms up with ``(v - 1) g + per_hop (p - 1 - d)`` forwards, then F and BW alternate.

    Parameters
    ----------
    problem
        A loop of v >= 2 stages per device.
    group
        Megatron's ``microbatch_group_size_per_vp_stage``; ``None``: groups of p microbatches, or
        slightly more where p does not divide their number (as torch).
    per_hop
        Further warm-up forwards per rank that follows: 2 in Megatron and torch, 1 in GIS.
    source
        What the schedule calls itself.

    Raises
    ------
    NotApplicable
        If stages do not lie so, or groups so small make ranks wait for each other: groups below
        p - 1 (``per_hop`` 2) or (p - 1) / 2 (``per_hop`` 1) do where there are many microbatches.
    BadInput
        If ``group`` is less than 1.
    """
    order = depth_first(problem, group)

    def row(rank: int) -> list[Item]:
        backwards = whole(problem, order.backwards(rank))
        return alternate(order.forwards(rank), backwards, order.warm_up(rank, per_hop))

    return schedule_in_groups(problem, order, row, source)


@published(
    NAME,
    placement="loop",
    source="Narayanan et al., SC 2021",
)
def interleaved_1f1b(problem: Problem) -> Schedule:
    """Depth-first 1F1B over v chunks per device, p microbatches at a time.

    With p dividing m: rank 0 holds at most ``(v + 1) p - 1`` chunk activations, and the bubble is
    ``(p - 1)(F + BW) / v`` on a uniform loop without delays (F, BW: of all v chunks).

    Raises
    ------
    NotApplicable
        Unless the stages of one route go round the devices twice or more.
    """
    return interleaved(problem)


_PIPE_OFFLOAD = "Wan et al., PipeOffload, 2025"


@published("gis", placement="loop", source=_PIPE_OFFLOAD)
def gis(problem: Problem) -> Schedule:
    """Interleaved 1F1B with a warm-up as short as 1F1B's: ``(v - 1) p + p - 1 - d`` forwards.

    With p dividing m, rank 0 holds ``p v`` chunk activations, 1F1B's memory, and without delays the
    bubble is that of interleaved 1F1B, whose longer warm-up hides delays.

    Raises
    ------
    NotApplicable
        Unless the stages of one route go round the devices twice or more.
    """
    return interleaved(problem, len(problem.devices), per_hop=1, source="gis")


@published("gis-h", placement="loop", source=_PIPE_OFFLOAD)
def gis_h(problem: Problem) -> Schedule:
    """GIS in groups of ``g = ceil(p / 2)``, its smallest: rank 0 holds ``g (v - 1) + p`` chunks.

    With g dividing m and no delays, the bubble is ``(p - g)(v - 1)`` chunk times (F + BW) longer
    than interleaved 1F1B's where ``(p - g) max(F, BW) <= g min(F, BW)``: where F and BW take the
    same time, if ``g = p / 2`` exactly.

    Raises
    ------
    NotApplicable
        Unless the stages of one route go round the devices twice or more; or if the last group is
        so small that the ranks wait for each other.
    """
    half = (len(problem.devices) + 1) // 2
    return interleaved(problem, half, per_hop=1, source="gis-h")


OVERLAPPED = "interleaved-overlapped"


def in_overlapped_groups(
    problem: Problem, group: int | None = None, source: str = OVERLAPPED
) -> Schedule:
    """Interleaved 1F1B in pairs, with groups of ``group`` microbatches, the last possibly smaller.

    Rank d warms up with ``(v - 1) g + 2 (p - 1 - d) + 1`` forwards (megatron-core,
    ``get_pp_rank_microbatches``). ``None``: groups of p, or slightly more where p does not divide
    the number of microbatches.

    Raises
    ------
    NotApplicable
        If stages do not lie so, or groups so small make ranks wait for each other.
    BadInput
        If ``group`` is less than 1.
    """
    order = depth_first(problem, group)

    def row(rank: int) -> list[Item]:
        warm_up = order.warm_up(rank, per_hop=2, extra=1)
        return alternate_in_pairs(problem, order.forwards(rank), order.backwards(rank), warm_up)

    return schedule_in_groups(problem, order, row, source)


@published(OVERLAPPED, placement="loop", pairs=True, source="Megatron-Core, 2025")
def interleaved_overlapped(problem: Problem) -> Schedule:
    """Interleaved 1F1B with one more warm-up forward; then each F and the BW after it are a pair.

    Without that forward the last rank would pair a microbatch's F and BW on the last stage. With p
    dividing m, the makespan is ``p v (F + BW) + (m v - (v - 1) p - 1) P`` on a uniform loop without
    delays (F, BW, P: times of a chunk's ops and of a pair). Where the problem or the stage knows no
    pairs, their members run one after the other.

    Raises
    ------
    NotApplicable
        Unless the stages of one route go round the devices twice or more.
    """
    return in_overlapped_groups(problem)


ZERO_BUBBLE = "interleaved-zb"


@published(
    ZERO_BUBBLE,
    placement="loop",
    splits=True,
    source="torch.distributed.pipelining; after Qi et al., ICLR 2024",
)
def interleaved_zb(problem: Problem) -> Schedule:
    """ZB-H1 on a loop: GIS's warm-up, and on rank d the k-th W follows the (k + d)-th B.

    With p dividing m, every rank holds up to ``p v`` chunk activations (those that wait for their
    W included). With ``m >= p`` the bubble of the span is ``(p - 1)(F + B - W) / v`` on a uniform
    loop without delays where ``W <= F``, that of the makespan where ``W <= B`` too (F, B, W: of all
    v chunks). A stage that may not split runs BW for B.

    Raises
    ------
    NotApplicable
        Unless the stages of one route go round the devices twice or more.
    """
    order = depth_first(problem)

    def row(rank: int) -> list[Item]:
        backwards = with_late_weights(problem, order.backwards(rank), rank)
        return alternate(order.forwards(rank), backwards, order.warm_up(rank, per_hop=1))

    return schedule_in_groups(problem, order, row, ZERO_BUBBLE)


@published("looped-bfs", placement="loop", source="Lamy-Poirier, MLSys 2023")
def looped_bfs(problem: Problem) -> Schedule:
    """All microbatches of chunk 0, then of chunk 1, and so on; the backwards are the mirror image.

    Backwards so begin with the last chunk and the last microbatch, as in torch's ScheduleLoopedBFS.
    Holds ``m v`` chunk activations; with ``m >= p`` the bubble is ``(p - 1)(F + BW) / v`` on a
    uniform loop without delays (F, BW: of all v chunks).

    Raises
    ------
    NotApplicable
        Unless the stages of one route go round the devices twice or more.
    """
    ranks = chunked_loop_of(problem)

    def row(rank: int) -> list[Item]:
        microbatches = range(problem.routes[0].microbatches)
        chunks = ranks.stages[rank]
        # warm-up
        items: list[Item] = [Op(s, "F", j) for s in chunks for j in microbatches]
        # cool-down
        for stage in reversed(chunks):
            for microbatch in reversed(microbatches):
                items += full_backward(problem, stage, microbatch)
        return items

    return schedule_by_rank(problem, ranks, row, "looped-bfs")
