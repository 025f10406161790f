"""ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2)."""

from __future__ import annotations

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.alternate import Pass, alternate, chain_schedule, with_late_weights


@published(
    "zb-h1",
    placement="chain",
    splits=True,
    source="Qi et al., ICLR 2024",
)
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

    def row(passes: list[Pass], before: int, after: int) -> list[Item]:
        return alternate(passes, with_late_weights(problem, passes, before), after)

    return chain_schedule(problem, "zb-h1", row)
