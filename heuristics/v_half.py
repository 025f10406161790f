"""V-Half (Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024)."""

from __future__ import annotations

from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.building_blocks import order_by_block
from pipesat.placement.recognise import vee_of


@published("v-half", placement="vee", splits=True, source="Qi et al., NeurIPS 2024")
def v_half(problem: Problem) -> Schedule:
    """Two chunks per rank in a V at about half of 1F1B's memory: ``2 ((p + 2) // 2)`` chunks.

    The order is made for equal F, B and W; a steady state without bubbles survives other times,
    because the block leaves two slots for the way out of either chunk's F or B.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V.
    """
    order = order_by_block(problem, vee_of(problem), _block)
    return time_order(problem, order, source="v-half")


def _block(p: int, rank: int) -> tuple[int, int, int, int]:
    """Two slots per rank on the way to a turning point of chunk 0's F and chunk 1's B, else one.

    On even p both F's of a rank would meet both B's in one slot modulo 6 without three more
    between the last F and the first B.
    """
    turn = 0 if p % 2 else 3
    first = 3 * p - rank - 2
    return 2 * rank, first, 3 * p + turn - 1 + 2 * rank, 3 * p + turn + first
