"""The critical path: the chain of items and delays that makes the makespan what it is."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from pipesat.core.arguments import public
from pipesat.core.timing import sequence_of

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule, Timed


class PathStep(NamedTuple):
    """One item of the path. ``through`` says what tied it to the step before.

    ``device``: the device was busy with that step; ``input``: it waited for that step's result;
    ``start``: the first step.
    """

    device: int
    timed: Timed
    through: Literal["device", "input", "start"]


@public
def critical_path(problem: Problem, schedule: Schedule) -> list[PathStep]:
    """Return a longest chain through the schedule's order, first step first.

    The nodes of the graph are items, the edges device succession and data flow, weighted with the
    length of their head plus the delay. For a schedule timed as early as possible the path has no
    idle time but delays and copies, and its length is the makespan. Copies are not among the steps;
    what waited for one is tied to the step before it by ``input``.
    """
    import networkx as nx  # importing pipesat stays fast

    linear = sequence_of(problem, schedule)
    graph: nx.DiGraph[int] = nx.DiGraph()  # node -1 stands before every device's first item
    for number, (length, before, inputs) in enumerate(
        zip(linear.duration, linear.before, linear.inputs, strict=True)
    ):
        if before >= 0 or not inputs or number not in linear.copies:
            tie = "device" if before >= 0 else "start"
            graph.add_edge(before, number, weight=length, through=tie)
        for origin, delay in sorted(inputs):  # a pair may wait twice for one pair: the longer delay
            if origin != before:
                graph.add_edge(origin, number, weight=length + delay, through="input")
    if not graph:
        return []
    path = nx.dag_longest_path(graph)
    counters = [0] * len(schedule.devices)
    timed_of = {}
    for number, device in enumerate(linear.device):
        if number not in linear.copies:
            timed_of[number] = schedule.devices[device][counters[device]]
            counters[device] += 1
    steps = []
    for last, node in pairwise(path):
        if node not in linear.copies:
            through: Literal["device", "input", "start"] = graph.edges[last, node]["through"]
            if last in linear.copies:
                through = "input"
            steps.append(PathStep(linear.device[node], timed_of[node], through))
    return steps
