"""What lies between and after the modelled items of a window."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pipesat.core.ops import Event, Item, Op, members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited
from pipesat.solver.neighbourhood.graph import Graph


def between(graph: Graph, free: Collection[int]) -> set[int]:
    """Return the other items that lie on a path between two free ones."""
    sequence = graph.sequence
    first, last = min(free), max(free)
    leads: set[int] = set(free)
    for item in range(last, first - 1, -1):
        if item in leads:
            if sequence.before[item] >= first:
                leads.add(sequence.before[item])
            leads.update(source for source, _ in sequence.inputs[item] if source >= first)
    follows: set[int] = set(free)
    for item in range(first, last + 1):
        if item not in follows and (
            sequence.before[item] in follows
            or any(source in follows for source, _ in sequence.inputs[item])
        ):
            follows.add(item)
    return (leads & follows) - set(free)


def following(problem: Problem, graph: Graph, modelled: Collection[int]) -> dict[Event, int]:
    """Longest path from an event of a modelled item through its receivers not modelled."""
    sequence = graph.sequence
    result: dict[Event, int] = {}
    for item in range(min(modelled), len(sequence.item)):
        if item in modelled:
            continue
        for source, delay in sequence.inputs[item]:
            if source in modelled:
                path = delay + sequence.duration[item] + graph.tail[item]
                for event in _awaited_of(problem, sequence.item[item], sequence.item[source]):
                    result[event] = max(path, result.get(event, path))
    return result


def _awaited_of(problem: Problem, item: Item, source: Item) -> Iterator[Event]:
    """Events of one item that another one waits for."""
    if isinstance(source, Op):
        yield source.event
        return
    events = {op.event for op in source}
    for op in members(item):
        if (need := awaited(problem, op)) is not None and need.event in events:
            yield need.event
