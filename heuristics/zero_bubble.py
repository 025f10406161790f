"""ZB-H1, ZB-H2 and ZB-V (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024), and ZB-1P."""

from __future__ import annotations

from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.rows import Rank, RowWriter, chain_schedule, schedule_by_rank
from pipesat.problem.geometry import ranks_of
from pipesat.problem.ops import Item
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule


@published("zb-h1", placement="chain", splits=True, source="Qi et al., ICLR 2024")
def zb_h1(problem: Problem) -> Schedule:
    """1F1B's shape with B and W apart: on rank d, W of microbatch j follows B of microbatch j + d.

    Every rank so holds 1F1B's ``p - d`` activations and up to d parts that wait for their W, and
    the last d W fill the cool-down. On a uniform chain with a small delay c, where ``W <= F``,
    ``span = m (F + B + W) + (p - 1)(F + B - W + 4c)``. A stage that may not split runs BW for B.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    return chain_schedule(
        problem, "zb-h1", lambda rank: rank.split(rank.warm_up(1), delay=rank.before)
    )


@published("zb-h2", placement="chain", splits=True, source="Qi et al., ICLR 2024")
def zb_h2(problem: Problem) -> Schedule:
    """``2 (p - d) - 1`` forwards before rank d's first B, and W of j after B of ``j + 2 d``.

    The extra forwards fill the wait for the first gradient; the ``2 d`` weight gradients that are
    left over move to the end, so that the ranks' rows become a parallelogram. Holds ``2 p - 1``
    activations on rank 0. On a uniform chain with a small delay c and ``m >= 2 p - 1``, where
    ``F >= W`` and ``F + B >= 2 W``, ``span = m (F + B + W) + (p - 1)(F + B - 2 W + 2 c)``: no
    bubble at all if the three are equal and c is 0. A stage that may not split runs BW for B.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    # one forward less than stands before the first B: the steady state begins with one
    return chain_schedule(
        problem, "zb-h2", lambda rank: rank.split(rank.warm_up(2), delay=2 * rank.before)
    )


@published(
    "zb-1p",
    placement="chain",
    splits=True,
    source="PP-Schedule-Visualization, 2025; after Qi et al., ICLR 2024",
)
def zb_1p(problem: Problem) -> Schedule:
    """1F1B with B and W apart, where a W waits until p microbatches are ahead of it.

    In the steady state a W follows F and B if ``forwards done - Ws done >= p``; in the cool-down
    every B is followed by the oldest W; the other Ws end the row. From ``m >= p - 1`` on this is
    ZB-H1, op for op; with fewer microbatches its Ws come earlier. A stage that may not split runs
    BW for B.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """

    def row(rank: Rank) -> list[Item]:
        # the first W follows the F that is p microbatches ahead, or the first B of the cool-down
        ahead, warm_up = min(rank.before + rank.after, len(rank.forwards)), rank.warm_up(1)
        return rank.split(warm_up, delay=ahead - warm_up)

    return chain_schedule(problem, "zb-1p", row)


@published("zb-v", placement="vee", splits=True, source="Qi et al., ICLR 2024")
def zb_v(problem: Problem) -> Schedule:
    """Two chunks per rank in a V, B and W apart, in the paper's order for equal times.

    Every rank holds at most 2p chunk activations, 1F1B's p full ones on its first rank. For equal
    F, B and W without delays, and ``m >= 2 p - 1``, no rank ever idles between its first and last
    op: ``span = 2 m (F + B + W)``. Fewer microbatches run the order of ``2 p - 1`` without those
    that are missing. The order is PyTorch's ``ScheduleZBVZeroBubble``; the authors' own program
    makes one from the problem's times instead.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V.
    """
    ranks = ranks_of(problem, "vee")
    p = len(ranks)

    def row(rank: int) -> list[Item]:
        m = max(problem.microbatches[ranks.stages[rank][0]], 2 * p - 1)
        writer = RowWriter(problem, ranks.stages[rank])
        # warm-up
        writer.write("F0", 2 * (p - rank) - 1)
        writer.write("F1 F0", rank)
        writer.write("F1 B1 W1", p - rank)
        # steady state; chunk 0 runs out of forwards before chunk 1 does
        writer.write("F0 B0 W0 F1 B1 W1", m - (2 * p - 1 - rank))
        writer.write("B0 W0 F1 B1 W1", p - 1 - rank)
        # cool-down
        writer.write("B0 B1", rank)
        writer.write("B0 W0", p - rank)
        writer.write("W1", rank)
        writer.write("W0", rank)
        return writer.items

    return schedule_by_rank(problem, ranks, row, "zb-v")
