"""Schedules on a loop of stages: interleaved 1F1B in groups, its variants, and breadth first.

A group of microbatches passes all chunks of a rank before the next group begins: chunk 0 for every
microbatch of the group, then chunk 1, and so on; backwards go through the chunks from the last to
the first (Narayanan et al., SC 2021, section 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from pipesat.core.errors import Deadlock, NotApplicable, require, require_applicable
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.rows import Pass, Rank, schedule_by_rank
from pipesat.problem.geometry import Ranks, ranks_of
from pipesat.problem.ops import Item
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule


def groups_of(m: int, size: int) -> list[int]:
    """Sizes of the groups, ``size`` microbatches each, the last one possibly fewer.

    Raises
    ------
    BadInput
        If ``size`` is less than 1.
    """
    require(size >= 1, "expected at least 1 microbatch", where="group", value=size)
    return [min(size, m - first) for first in range(0, m, size)]


def full_groups(m: int, least: int) -> list[int]:
    """Sizes of the groups if each has ``least`` microbatches or more, as nearly equal as possible.

    A short last group would cost time, or deadlock; torch spreads the rest over the groups, as is
    done here (torch only if that makes them equal). Fewer than ``least`` microbatches are one
    group.
    """
    count = max(1, m // least)
    return [m // count + (number < m % count) for number in range(count)]


def chunked_loop_of(problem: Problem) -> Ranks:
    """A loop with at least two stages per device.

    Raises
    ------
    NotApplicable
        If it is not one, or if it is a plain chain, which has schedules of its own.
    """
    ranks = ranks_of(problem, "loop")
    require_applicable(ranks.chunks > 1, "needs at least two stages per device")
    return ranks


def schedule_in_groups(
    problem: Problem, group: int | None, row: Callable[[Rank], list[Item]], source: str
) -> Schedule:
    """Time the order whose ranks run ``row(rank)`` in groups of ``group`` microbatches.

    ``None``: full groups of p.

    Raises
    ------
    NotApplicable
        As :func:`chunked_loop_of`; or if groups are too small for the number of ranks: then the
        warm-up is too short for the last chunks, and ranks wait for each other.
    BadInput
        As :func:`groups_of`.
    """
    ranks, m = chunked_loop_of(problem), problem.routes[0].microbatches
    p = len(ranks)
    groups = full_groups(m, p) if group is None else groups_of(m, group)

    def passes(chunks: Sequence[int]) -> list[Pass]:
        ends = accumulate(groups)
        spans = (range(end - size, end) for end, size in zip(ends, groups, strict=True))
        return [(chunk, number) for span in spans for chunk in chunks for number in span]

    def row_of(rank: int) -> list[Item]:
        forwards, backwards = passes(ranks.stages[rank]), passes(ranks.stages[rank][::-1])
        deep = (ranks.chunks - 1) * groups[0]
        return row(Rank(problem, forwards, backwards, rank, p - 1 - rank, deep))

    try:
        return schedule_by_rank(problem, ranks, row_of, source)
    except Deadlock:
        raise NotApplicable(
            f"a group of {min(groups)} is too small for {p} ranks: deadlock"
        ) from None


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
    return schedule_in_groups(
        problem, group, lambda rank: rank.whole(rank.warm_up(per_hop)), source
    )


@published(NAME, placement="loop", source="Narayanan et al., SC 2021")
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
    return schedule_in_groups(
        problem, group, lambda rank: rank.in_pairs(rank.warm_up(2, extra=1)), source
    )


IN_GROUPS: Final[Mapping[str, Callable[..., Schedule]]] = {
    NAME: interleaved,
    OVERLAPPED: in_overlapped_groups,
}
"""What makes each schedule whose groups have a size to choose, ``group``."""


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


@published(
    "interleaved-zb",
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
    return schedule_in_groups(
        problem, None, lambda rank: rank.split(rank.warm_up(1), delay=rank.before), "interleaved-zb"
    )


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
    ranks, m = chunked_loop_of(problem), problem.routes[0].microbatches

    def row(rank: int) -> list[Item]:
        passes = [(stage, microbatch) for stage in ranks.stages[rank] for microbatch in range(m)]
        p = len(ranks)
        return Rank(problem, passes, passes[::-1], rank, p - 1 - rank).whole(len(passes))

    return schedule_by_rank(problem, ranks, row, "looped-bfs")
