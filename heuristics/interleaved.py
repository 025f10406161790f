"""Interleaved 1F1B (Narayanan et al., SC 2021), with any group size."""

from __future__ import annotations

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.alternate import alternate, whole
from pipesat.heuristics.shared.loops import depth_first, schedule_in_groups

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
