"""What the user of an exported order has to know: what was changed, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator

from pipesat.core.metrics import peak_memory
from pipesat.core.ops import Pair
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.export.torch.adapt import Adapted
from pipesat.export.torch.in_turn import makespan_in_turn

_STAGES_SHOWN = 8


def notes(problem: Problem, schedule: Schedule, adapted: Adapted) -> Iterator[str]:
    """Yield each change of a schedule for torch, then what is left of its makespan.

    Of an order with overlapped pairs both makespans are named, changed or not: as stock torch runs
    it, and if the pairs overlap.
    """
    yield from adapted.changes
    stages = problem.routes[0].stages
    if list(stages) != sorted(stages):
        names = ", ".join(
            f"{stage} is {number}" for number, stage in enumerate(stages[:_STAGES_SHOWN])
        )
        more = ", ..." if len(stages) > _STAGES_SHOWN else ""
        yield f"stages renumbered along the route: {names}{more}"
    now = adapted.schedule
    pairs = sum(isinstance(item, Pair) for row in now.order for item in row)
    if not adapted.changes and not pairs:
        return
    planned = f"makespan {now.makespan} (was {schedule.makespan})"
    if pairs:
        stock = makespan_in_turn(adapted.problem, now.order)
        planned = (
            f"makespan {stock} in stock torch, which runs the members of its overlapped pairs "
            f"({pairs}) in turn; {planned} only with a function of yours for OVERLAP_F_B that "
            "overlaps them"
        )
    yield f"torch's order: {planned}; peak memory {max(peak_memory(adapted.problem, now))}"
