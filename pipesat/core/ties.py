"""Ops of length zero at one instant: whether a schedule lists them in an order of execution.

Part of the checker, from given times alone: nothing here comes from the timing of orders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from pipesat.core.ops import Copy, Item, Op, Unreadable, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule


def impossible_ties(
    problem: Problem, schedule: Schedule, waits: Mapping[Op | Copy, Sequence[Op | Copy]]
) -> Iterator[tuple[int, str]]:
    """Yield ``(time, complaint)`` for every instant whose items could not run as they are listed.

    ``waits`` has what each op and copy waits for, without the ops' modes. On one device or through
    several: what is listed before something else cannot wait for it.
    """
    instants: dict[int, list[tuple[str, Item | Copy]]] = defaultdict(list)
    for device, row in enumerate(schedule.devices):
        name = problem.device_name(device)
        for item, start, end in row:
            if start == end and not isinstance(item, Unreadable):
                instants[start].append((name, item))
    for device, copies in enumerate(schedule.copies):
        name = f"the copies of {problem.device_name(device)}"
        for copy, start, end in copies:
            if start == end and not isinstance(copy, Unreadable):
                instants[start].append((name, copy))
    for time, listed in sorted(instants.items()):
        if len(listed) > 1 and (complaint := _complaint(listed, waits)):
            yield time, f"no order of execution at {time}: {complaint}"


def _complaint(
    listed: Sequence[tuple[str, Item | Copy]], waits: Mapping[Op | Copy, Sequence[Op | Copy]]
) -> str:
    """Why these items of one instant cannot run as they are listed; ``""`` if they can."""
    reasons: dict[tuple[Item | Copy, Item | Copy], str] = {}  # (earlier, later)
    last: dict[str, Item | Copy] = {}
    homes = {op: item for _, item in listed for op in _parts(item)}
    for name, item in listed:
        if name in last:
            reasons[last[name], item] = f"{item} is listed after {last[name]} on {name}"
        last[name] = item
        for op in _parts(item):
            for source in waits.get(op, ()):
                if source in homes:
                    reasons[homes[source], item] = f"{item} waits for {homes[source]}"
    graph: TopologicalSorter[Item | Copy] = TopologicalSorter()
    for earlier, later in reasons:
        graph.add(later, earlier)
    try:
        graph.prepare()
    except CycleError as error:
        cycle: list[Item | Copy] = error.args[1]
        return ", ".join(reasons[pair] for pair in pairwise(cycle))
    return ""


def _parts(item: Item | Copy) -> tuple[Op | Copy, ...]:
    """A copy, or the ops of an item, without their modes."""
    if isinstance(item, Copy):
        return (item,)
    return tuple(op._replace(mode=0) if op.mode else op for op in members(item))
