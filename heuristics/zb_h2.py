"""ZB-H2 (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2)."""

from __future__ import annotations

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.alternate import Pass, alternate, chain_schedule, with_late_weights


@published(
    "zb-h2",
    placement="chain",
    splits=True,
    source="Qi et al., ICLR 2024",
)
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

    def row(passes: list[Pass], before: int, after: int) -> list[Item]:
        # one forward less than stands before the first B: the steady state begins with one
        return alternate(passes, with_late_weights(problem, passes, 2 * before), 2 * after)

    return chain_schedule(problem, "zb-h2", row)
