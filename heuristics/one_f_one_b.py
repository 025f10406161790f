"""1F1B (PipeDream-Flush; Narayanan et al., ICML 2021)."""

from __future__ import annotations

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.alternate import Pass, alternate, chain_schedule, whole


@published(
    "1f1b",
    placement="chain",
    source="Narayanan et al., ICML 2021",
)
def one_f_one_b(problem: Problem) -> Schedule:
    """``min(p - 1 - d, m)`` warm-up forwards on rank d, then F and BW in turn, then the other BWs.

    Holds ``min(p - d, m)`` activations on rank d; bubble ``(p - 1)(F + BW)`` on a uniform chain
    without delays, as GPipe's.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """

    def row(passes: list[Pass], before: int, after: int) -> list[Item]:
        del before
        return alternate(passes, whole(problem, passes), after)

    return chain_schedule(problem, "1f1b", row)
