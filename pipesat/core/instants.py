"""Ops that must end in one instant, because what is held between them exceeds the memory.

An order fixes what a device holds between one of its items and the next. Where that is more than
the capacity, no time may pass in between: the next item has to be one of length zero that runs at
the end of the one before it. This, and what waits for what, makes groups of items, perhaps of
several devices, that all end at the same time; every timing of the order that keeps to memory keeps
them together, and the earliest of these timings exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipesat.core.rules import duration, memory_change, one_of_each

if TYPE_CHECKING:
    from pipesat.core.linear_order import LinearOrder
    from pipesat.core.problem import Problem


def keep_together(problem: Problem, sequence: LinearOrder) -> LinearOrder:
    """Return the sequence with the groups of an order side by side.

    What cannot be kept together, because something in between takes time, stays apart: no timing of
    such an order keeps to memory, and the checker says where.
    """
    if not instants_matter(problem):
        return sequence
    joined = list(_without_time_between(problem, sequence))
    if not joined:
        return sequence
    import networkx as nx  # importing pipesat stays fast

    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(sequence.item)))
    graph.add_edges_from((s, n) for n, own in enumerate(sequence.waits) for s, _ in own)
    graph.add_edges_from((after, before) for before, after in joined)
    blocks = nx.condensation(graph)
    order: list[int] = []
    groups: list[range] = []
    for block in nx.topological_sort(blocks):
        members = sorted(blocks.nodes[block]["members"])
        if len(members) > 1 and _can_end_together(sequence, set(members)):
            groups.append(range(len(order), len(order) + len(members)))
        order += members
    return sequence.rearranged(order, groups)


def instants_matter(problem: Problem) -> bool:
    """Whether a device of limited memory has ops of length zero."""
    return any(
        problem.devices[problem.stages[op.stage].device].memory is not None
        and not duration(problem, op)
        for op in one_of_each(problem)
    )


def _without_time_between(problem: Problem, sequence: LinearOrder) -> Iterator[tuple[int, int]]:
    """Consecutive items of a device between which more is held than there is room for."""
    held = [0] * len(problem.devices)
    rooms = [device.room for device in problem.devices]
    for number, (device, item) in enumerate(zip(sequence.device, sequence.item, strict=True)):
        before, room = sequence.before[number], rooms[device]
        if room is None:
            continue
        if before >= 0 and held[device] > room and not sequence.duration[number]:
            yield before, number
        held[device] += memory_change(problem, item).net


def _can_end_together(sequence: LinearOrder, members: set[int]) -> bool:
    """Whether whatever waits within the group takes no time and waits without a delay."""
    return not any(
        delay or sequence.duration[number]
        for number in members
        for source, delay in sequence.waits[number]
        if source in members
    )
