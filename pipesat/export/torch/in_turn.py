"""What stock torch makes of overlapped pairs: it runs their members in turn."""

from __future__ import annotations

from pipesat.core.ops import members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, duration
from pipesat.core.schedule import Order
from pipesat.core.timing import linearize


def makespan_in_turn(problem: Problem, order: Order) -> int:
    """Makespan of an order whose overlapped cells run as in torch's runtime without an override.

    The members of a cell run one after the other, each as soon as its own input is there; both
    results are sent after the cell (torch puts its sends behind it), so what waits for the forward
    waits for the whole cell.
    """
    sequence = linearize(problem, order)
    free = [0] * len(problem.devices)
    ends: list[int] = []
    for device, item, inputs in zip(sequence.device, sequence.item, sequence.inputs, strict=True):
        arrivals = iter([ends[source] + delay for source, delay in inputs])
        end = free[device]
        for op in members(item):
            arrival = 0 if awaited(problem, op) is None else next(arrivals)
            end = max(end, arrival) + duration(problem, op)
        free[device] = end
        ends.append(end)
    return max(ends, default=0)
