"""GPipe (Huang et al., NeurIPS 2019)."""

from __future__ import annotations

from pipesat.heuristics.parts.rows import full_backward, schedule_by_rank
from pipesat.heuristics.placement import chain_of
from pipesat.heuristics.registry import published
from pipesat.ops import Item, Op
from pipesat.problem import Problem
from pipesat.schedule import Schedule


@published(
    "gpipe",
    placement="one stage per device",
    source="Huang et al., NeurIPS 2019",
    promises=("gpipe_bubble", "gpipe_peak"),
)
def gpipe(problem: Problem) -> Schedule:
    """All forwards, then all backwards, both in microbatch order (as torch's ScheduleGPipe).

    Holds m activations per device; bubble ``(p - 1)(F + BW)`` on a uniform chain without delays.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    ranks = chain_of(problem)

    def row(rank: int) -> list[Item]:
        (stage,) = ranks.stages[rank]
        microbatches = range(problem.microbatches[stage])
        # warm-up
        items: list[Item] = [Op(stage, "F", microbatch) for microbatch in microbatches]
        # cool-down
        for microbatch in microbatches:
            items += full_backward(problem, stage, microbatch)
        return items

    return schedule_by_rank(problem, ranks, row, "gpipe")
