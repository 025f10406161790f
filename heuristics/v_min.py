"""V-Min (Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024)."""

from __future__ import annotations

from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.building_blocks import order_by_block
from pipesat.placement.recognise import vee_of


@published("v-min", placement="vee", splits=True, source="Qi et al., NeurIPS 2024")
def v_min(problem: Problem) -> Schedule:
    """Two chunks per rank in a V at about a third of 1F1B's memory: ``2 ((p + 4) // 3)`` chunks.

    A microbatch passes every rank in one slot, so its lifespan is the least there is. The order is
    made for equal F, B and W; where they differ, the steady state has bubbles too.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V.
    """
    order = order_by_block(problem, vee_of(problem), _block)
    return time_order(problem, order, source="v-min")


def _block(p: int, rank: int) -> tuple[int, int, int, int]:
    """One slot per rank all the way.

    Where p is a multiple of 3, a rank's F's would meet its B's in one slot modulo 6 without two
    more between the last F and the first B.
    """
    turn = 2 if p % 3 == 0 else 0
    back = 2 * p - rank - 1
    return rank, back, 2 * p + turn + rank, 2 * p + turn + back
