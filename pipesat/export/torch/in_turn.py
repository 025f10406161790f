"""What stock torch makes of overlapped pairs: it runs their members in turn, the forward first."""

from __future__ import annotations

from pipesat.core.ops import Pair
from pipesat.core.problem import Problem
from pipesat.core.rules import duration
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
        arrivals = [ends[source] + delay for source, delay in inputs]
        if isinstance(item, Pair):  # its backward always waits for something: the last arrival
            *before_forward, before_backward = arrivals
            start = max(free[device], *before_forward, 0)
            half = start + duration(problem, item.forward)
            end = max(half, before_backward) + duration(problem, item.backward)
        else:
            end = max(free[device], *arrivals, 0) + duration(problem, item)
        free[device] = end
        ends.append(end)
    return max(ends, default=0)
