"""What waits for what: a sequence that respects it, where it stops, and why, by name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TypeAlias, TypeVar

from pipesat.core.errors import Deadlock
from pipesat.problem.ops import Event, Op, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import inputs_of
from pipesat.schedule.schedule import Order

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


def explain_deadlock(problem: Problem, order: Order, position: Sequence[int]) -> Deadlock:
    """Build the error for an order that stopped with device d at ``order[d][position[d]]``.

    Each stopped head waits for an event; the device whose list has that event further back is
    stopped by its own head. Following heads closes a circle, unless some event is in no list.
    """
    where = _places(order, position)
    happened = _places(order, [0] * len(order)).keys() - where.keys()
    targets: dict[int, tuple[int, int]] = {}
    for device, row in enumerate(order):
        if position[device] == len(row):
            continue
        head = row[position[device]]
        for event in [need.event for op in members(head) for need in inputs_of(problem, op)]:
            if event in happened:
                continue
            place = where.get(event)
            if place is None:
                return Deadlock(
                    f"{head} on {problem.device_name(device)} waits for "
                    f"{_event_text(problem, event)}, which the order does not have"
                )
            targets[device] = place
    sentences, names = [], []
    for device, other in pairwise(circle({d: [e] for d, (e, _) in targets.items()})[::-1]):
        head, target = order[device][position[device]], order[other][targets[device][1]]
        names.append(str(head))
        sentences.append(
            f"{head} on {problem.device_name(device)} waits for {target}"
            + (
                f", which stands behind {order[other][position[other]]} on "
                f"{problem.device_name(other)}"
                if order[other][position[other]] != target
                else f" on {problem.device_name(other)}"
            )
        )
    return Deadlock("deadlock: " + "; ".join(sentences), names)


def _places(order: Order, position: Sequence[int]) -> dict[Event, tuple[int, int]]:
    """Where each event from ``position`` on stands: device and index."""
    return {
        op.event: (device, index)
        for device, row in enumerate(order)
        for index in range(position[device], len(row))
        for op in members(row[index])
    }


def _event_text(problem: Problem, event: Event) -> str:
    stage, phase, microbatch = event
    fused = phase == "B" and not problem.stages[stage].may_split
    return str(Op(stage, "BW" if fused else phase, microbatch))
