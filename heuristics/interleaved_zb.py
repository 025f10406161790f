"""Interleaved zero bubble, as torch has it (ScheduleInterleavedZeroBubble)."""

from __future__ import annotations

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.alternate import alternate, with_late_weights
from pipesat.heuristics.shared.loops import depth_first, schedule_in_groups

NAME = "interleaved-zb"


@published(
    NAME,
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

    return schedule_in_groups(problem, order, row, NAME)
