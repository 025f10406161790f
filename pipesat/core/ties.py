"""Ops of length zero at one instant: whether a schedule lists them in an order of execution.

Part of the checker, from given times alone: nothing here comes from the timing of orders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from pipesat.core.ops import Item, Op, Unreadable, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Timed


def impossible_ties(
    problem: Problem, rows: Sequence[Sequence[Timed]], waits: Mapping[Op, Op]
) -> Iterator[tuple[int, str]]:
    """Yield ``(time, complaint)`` for every instant whose items could not run as they are listed.

    ``waits`` has the input of each op. On one device or through several: an item that is listed
    before another one cannot wait for it.
    """
    instants: dict[int, list[tuple[int, Item]]] = defaultdict(list)
    for device, row in enumerate(rows):
        for item, start, end in row:
            if start == end and not isinstance(item, Unreadable):
                instants[start].append((device, item))
    for time, listed in sorted(instants.items()):
        if len(listed) > 1 and (complaint := _complaint(problem, listed, waits)):
            yield time, f"no order of execution at {time}: {complaint}"


def _complaint(problem: Problem, listed: Sequence[tuple[int, Item]], waits: Mapping[Op, Op]) -> str:
    """Why these items of one instant cannot run as their devices list them; ``""`` if they can."""
    reasons: dict[tuple[Item, Item], str] = {}  # (earlier, later)
    last: dict[int, Item] = {}
    homes = {op: item for _, item in listed for op in members(item)}
    for device, item in listed:
        if device in last:
            name = problem.device_name(device)
            reasons[last[device], item] = f"{item} is listed after {last[device]} on {name}"
        last[device] = item
        for op in members(item):
            source = homes.get(waits[op]) if op in waits else None
            if source is not None:
                reasons[source, item] = f"{item} waits for {source}"
    graph: TopologicalSorter[Item] = TopologicalSorter()
    for earlier, later in reasons:
        graph.add(later, earlier)
    try:
        graph.prepare()
    except CycleError as error:
        cycle: list[Item] = error.args[1]
        return ", ".join(reasons[pair] for pair in pairwise(cycle))
    return ""
