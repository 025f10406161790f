"""ZB-V (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 6)."""

from __future__ import annotations

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.row_writer import RowWriter
from pipesat.heuristics.shared.rows import schedule_by_rank
from pipesat.placement.recognise import vee_of


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
    ranks = vee_of(problem)
    p = len(ranks)

    def row(rank: int) -> list[Item]:
        m = max(problem.microbatches[ranks.stages[rank][0]], 2 * p - 1)
        writer = RowWriter(problem, ranks.stages[rank])
        # warm-up
        for _ in range(2 * (p - rank) - 1):
            writer.forward(0)
        for _ in range(rank):
            writer.forward(1)
            writer.forward(0)
        for _ in range(p - rank):
            _forward_and_backward(writer, 1)
        # steady state; chunk 0 runs out of forwards before chunk 1 does
        for number in range(m - p):
            _forward_and_backward(writer, 0, forward=number < m - (2 * p - 1 - rank))
            _forward_and_backward(writer, 1)
        # cool-down
        for _ in range(rank):
            writer.backward_input(0)
            writer.backward_input(1)
        for _ in range(p - rank):
            writer.backward_input(0)
            writer.weight(0)
        for chunk in (1, 0):
            for _ in range(rank):
                writer.weight(chunk)
        return writer.items

    return schedule_by_rank(problem, ranks, row, "zb-v")


def _forward_and_backward(writer: RowWriter, chunk: int, *, forward: bool = True) -> None:
    """F of one microbatch, then B and W of an earlier one, or of the same."""
    if forward:
        writer.forward(chunk)
    writer.backward_input(chunk)
    writer.weight(chunk)
