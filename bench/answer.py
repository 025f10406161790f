"""What the two models of others.py share.

Neither imports the other: OR-Tools brings a HiGHS of its own that clashes with highspy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipesat.core.rules import link_delay

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Order


@dataclass(frozen=True)
class Answer:
    """The outcome of a model, in its own words.

    ``status`` is ``optimal``, ``feasible``, ``infeasible`` or ``unknown``; ``claimed`` the value
    and ``bound`` the lower bound it reports, in time units; ``found`` the seconds and values of its
    solutions; ``size`` its variables and constraints.
    """

    status: str
    claimed: int | None
    bound: int | None
    order: Order | None
    found: list[tuple[float, float]]
    seconds: float
    size: str


def serial_time(problem: Problem) -> int:
    """Time of one microbatch after the other: a horizon that needs no search."""
    total = 0
    for stage, (data, m) in enumerate(zip(problem.stages, problem.microbatches, strict=True)):
        backward = max(data.B + data.W if data.may_split else 0, data.BW if data.may_fuse else 0)
        links = link_delay(problem, stage, "F") + link_delay(problem, stage, "B")
        total += m * (data.F + backward + links)
    return total
