"""Looped BFS (Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023)."""

from __future__ import annotations

from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.loops import chunked_loop_of
from pipesat.heuristics.shared.rows import full_backward, schedule_by_rank


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
    ranks = chunked_loop_of(problem)

    def row(rank: int) -> list[Item]:
        microbatches = range(problem.routes[0].microbatches)
        chunks = ranks.stages[rank]
        # warm-up
        items: list[Item] = [Op(s, "F", j) for s in chunks for j in microbatches]
        # cool-down
        for stage in reversed(chunks):
            for microbatch in reversed(microbatches):
                items += full_backward(problem, stage, microbatch)
        return items

    return schedule_by_rank(problem, ranks, row, "looped-bfs")
