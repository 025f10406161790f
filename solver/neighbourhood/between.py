"""What lies between and after the modelled items of a window."""

from __future__ import annotations

from collections.abc import Collection

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


def following(graph: Graph, modelled: Collection[int]) -> dict[int, int]:
    """Longest path from the end of a modelled item through its receivers that are not modelled."""
    sequence = graph.sequence
    result: dict[int, int] = {}
    for item in range(min(modelled), len(sequence.item)):
        if item in modelled:
            continue
        for source, delay in sequence.inputs[item]:
            if source in modelled:
                path = delay + sequence.duration[item] + graph.tail[item]
                result[source] = max(path, result.get(source, path))
    return result
