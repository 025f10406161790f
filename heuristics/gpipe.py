"""GPipe (Huang et al., NeurIPS 2019)."""

from __future__ import annotations

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.alternate import Pass, alternate, chain_schedule, whole


@published(
    "gpipe",
    placement="chain",
    source="Huang et al., NeurIPS 2019",
)
def gpipe(problem: Problem) -> Schedule:
    """All forwards, then all backwards, both in microbatch order (as torch's ScheduleGPipe).

    Holds m activations per device; bubble ``(p - 1)(F + BW)`` on a uniform chain without delays.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """

    def row(passes: list[Pass], before: int, after: int) -> list[Item]:
        del before, after  # all ranks alike
        return alternate(passes, whole(problem, passes), len(passes))

    return chain_schedule(problem, "gpipe", row)
