"""Chimera (Li and Hoefler, "Chimera", SC 2021, section 3.1)."""

from __future__ import annotations

from pipesat.core.errors import NotApplicable
from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.rows import full_backward, schedule_by_rank
from pipesat.placement.recognise import two_routes_of


@published("chimera", placement="bidirectional", source="Li and Hoefler, SC 2021")
def chimera(problem: Problem) -> Schedule:
    """1F1B on both of two opposite routes, merged without conflicts.

    Units of p microbatches, p / 2 on each route, are concatenated; a unit's first forwards fill
    the gaps between the last backwards of the one before ("direct concatenation", section 3.5).
    In slots of one op each, microbatch j of a unit runs F on position s of its route in slot
    ``s + 2 j`` and BW in slot ``2 p - 1 - s + 2 j``, and a unit begins ``2 p`` slots after the
    one before. For even p no two ops of a rank share a slot. A unit of equal F and BW takes
    ``3 p - 2`` slots, of which ``p - 2`` are bubble. The last unit may lack microbatches.

    Raises
    ------
    NotApplicable
        Unless two routes pass an even number of devices in opposite directions.
    """
    ranks = two_routes_of(problem)
    p = len(ranks)
    if p % 2:
        raise NotApplicable("needs an even number of devices")

    def row(rank: int) -> list[Item]:
        slots: list[tuple[int, list[Item]]] = []
        for stage, position in zip(ranks.stages[rank], (rank, p - 1 - rank), strict=True):
            for microbatch in range(problem.microbatches[stage]):
                unit, number = divmod(microbatch, p // 2)
                begin = 2 * p * unit + 2 * number
                slots.append((begin + position, [Op(stage, "F", microbatch)]))
                backward = full_backward(problem, stage, microbatch)
                slots.append((begin + 2 * p - 1 - position, backward))
        return [item for _, items in sorted(slots) for item in items]

    return schedule_by_rank(problem, ranks, row, "chimera")
