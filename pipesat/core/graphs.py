"""What waits for what, of anything: a sequence that respects it, where it stops, and on what."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias, TypeVar

NodeT = TypeVar("NodeT", bound=Hashable)

Spot: TypeAlias = tuple[int, int]
"""Number of a row and position in it, from 0."""


def circle(waits: Mapping[NodeT, Iterable[NodeT]]) -> list[NodeT]:
    """Return nodes of which each waits for the one before it, the first one again at the end.

    Empty if there is no such circle.
    """
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        found: list[NodeT] = error.args[1]
        return found
    return []


def sequenced(waits: Sequence[Iterable[int]]) -> list[int] | None:
    """Return the numbers so that each stands after those that it waits for.

    ``None`` if some wait for each other.
    """
    graph = TopologicalSorter[int](dict.fromkeys(range(len(waits)), ()))
    for number, sources in enumerate(waits):
        graph.add(number, *sources)
    try:
        return list(graph.static_order())
    except CycleError:
        return None


def stops(lengths: Sequence[int], waits: Callable[[int, int], Iterable[Spot]]) -> list[int]:
    """Return how far each row gets if it runs in turn what waits for nothing that has not run.

    Takes less than a graph of all that they have.
    """
    position = [0] * len(lengths)
    asleep: dict[Spot, list[int]] = {}
    ready = [*range(len(lengths))]
    while ready:
        row = ready.pop()
        while (at := position[row]) < lengths[row]:
            for spot in waits(row, at):
                if spot[1] >= position[spot[0]]:
                    asleep.setdefault(spot, []).append(row)
                    break
            else:
                position[row] += 1
                ready += asleep.pop((row, at), ())
                continue
            break
    return position
