"""A schedule's own copies when its times change: the three rules that keep memory what it was.

Memory with copies depends on times. What a device held when an item or copy took memory is not
exceeded at any other times with

1. the same sequence on every channel,
2. every O that had ended by the start of an item or L that takes memory still ending by it,
3. every L starting no earlier than the start of the item of its device that was the last to start
   at or before it, and the end of the one that was the last to end.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from pipesat.core.copy_graph import CopyGraph
from pipesat.core.linear_order import LinearOrder
from pipesat.core.ops import Unreadable
from pipesat.core.rules import memory_change

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule


def as_copied(problem: Problem, sequence: LinearOrder, schedule: Schedule) -> LinearOrder | None:
    """Return a valid schedule's sequence with its copies and what the rules make it wait for.

    ``None`` if no one sequence does all that, which only lengths of zero can bring about.
    """
    graph = CopyGraph(problem, sequence)
    place = {number: at for row in graph.rows for at, number in enumerate(row)}
    for device in range(len(problem.devices)):
        _add_copies(graph, place, schedule, device)
        _wait_for_copies_out(graph, schedule, device)
    return graph.sequence()


def _add_copies(graph: CopyGraph, place: dict[int, int], schedule: Schedule, device: int) -> None:
    """Add a device's copies, in sequence: rules 1 and 3, and what a copy itself waits for."""
    starts = [timed.start for timed in schedule.devices[device]]
    ends = [timed.end for timed in schedule.devices[device]]
    for copy, start, _ in schedule.copies_of(device):
        if isinstance(copy, Unreadable):
            raise ValueError(f"{copy.text!r} is not a copy")
        number = graph.add(copy)
        if copy.kind == "L":
            # of items at one instant, the backward itself and all after it come after the L
            most = place[graph.item_of[copy.stage, "B", copy.microbatch]]
            begun = min(bisect_right(starts, start), most)
            over = min(bisect_right(ends, start), most)
            if begun:
                item = graph.rows[device][begun - 1]
                graph.inputs[number].append((item, -graph.all.duration[item]))
            if over:
                graph.inputs[number].append((graph.rows[device][over - 1], 0))


def _wait_for_copies_out(graph: CopyGraph, schedule: Schedule, device: int) -> None:
    """Rule 2. On a channel ends follow each other: the last O stands for all before it."""
    out = [t for t in schedule.copies_of(device) if t.copy.kind == "O"]  # type: ignore[union-attr]
    if not out:
        return
    ends = [timed.end for timed in out]

    def wait(number: int, start: int) -> None:
        if ended := bisect_right(ends, start):
            last = out[ended - 1].copy
            graph.inputs[number].append((graph.number[last], 0))  # type: ignore[index]

    for number, timed in zip(graph.rows[device], schedule.devices[device], strict=True):
        if memory_change(graph.problem, graph.all.item[number]).at_start > 0:
            wait(number, timed.start)
    for copy, start, _ in schedule.copies_of(device):
        if copy.kind == "L":  # type: ignore[union-attr]
            wait(graph.number[copy], start)  # type: ignore[index]
