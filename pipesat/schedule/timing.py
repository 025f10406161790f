"""From an order to times: as early as possible for the makespan, minimum span for the span.

An order is first put into one sequence in which every item stands after everything it waits for
(:func:`linearize`); all timing is then one pass over arrays (:mod:`pipesat.schedule.linear_order`).

*Earliest* (makespan): an item starts at the end of the one before it on its device, or when its
last input has arrived (end + delay), whichever is later. Items that memory makes end together wait
for each other. The *critical path* is the chain of items and delays that makes the makespan what it
is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from operator import sub
from typing import TYPE_CHECKING, Literal, NamedTuple

from pipesat.core.arguments import public
from pipesat.core.arrays import nothing_collected
from pipesat.problem.rules import duration
from pipesat.schedule.arrays_of import arrays_of, coded, order_of
from pipesat.schedule.copies import as_copied, offloads_anything, with_copies
from pipesat.schedule.deadlock import explain_deadlock
from pipesat.schedule.linear_order import (
    LinearOrder,
    instants_matter,
    keep_together,
    of_minimum_span,
)
from pipesat.schedule.schedule import Objective, Order, Schedule, Timed, TimedCopy

if TYPE_CHECKING:
    from pipesat.kernels.arrays import Coded, ProblemArrays
    from pipesat.problem.problem import Problem
    from pipesat.schedule.schedule import Schedule, Timed


@public
@nothing_collected()
def time_order(
    problem: Problem, order: Order, objective: Objective = "makespan", source: str = ""
) -> Schedule:
    """Time an order: earliest for the makespan, by its minimum span for the span.

    Raises
    ------
    Deadlock
        If its ops wait for each other, or for an op that the order lacks.
    ValueError
        If the order names a stage, device or pair that the problem does not have.
    """
    if objective == "makespan" and _alone(problem):
        timed = _timed(order, *coded(problem, order))
        if timed is not None:
            return Schedule(timed, source)
    sequence = with_all_copies(problem, order)
    ends = earliest_ends(sequence, releases(sequence, len(problem.devices), objective))
    return schedule_of(sequence, len(problem.devices), ends, source)


@nothing_collected()
def time_codes(problem: Problem, codes: Coded, source: str = "") -> Schedule:
    """Time an order of the problem's arrays as early as possible, as :func:`time_order` does."""
    arrays = arrays_of(problem)
    order = order_of(problem, arrays, codes)
    timed = _timed(order, arrays, codes) if _alone(problem) else None
    return time_order(problem, order, source=source) if timed is None else Schedule(timed, source)


def _alone(problem: Problem) -> bool:
    """Whether items are timed one by one: none is copied, and none has to end with others."""
    return not (problem.has_copies or instants_matter(problem))


def _timed(
    order: Order, arrays: ProblemArrays, codes: Coded
) -> tuple[tuple[Timed, ...], ...] | None:
    """Time items one by one; ``None``: they cannot run."""
    import numpy as np  # importing pipesat stays fast

    from pipesat.kernels.timing import ends_of, sequenced

    found = sequenced(arrays, codes)
    if len(found.item) < len(codes.first) or found.duration.min(initial=0) < 0:
        return None
    ends, starts = np.empty((2, len(found.item)), np.int64)
    ends[found.item] = ends_of(found, np.zeros(len(order), np.int64))
    starts[found.item] = ends[found.item] - found.duration
    times = zip(chain.from_iterable(order), starts.tolist(), ends.tolist(), strict=True)
    timed = [*map(Timed._make, times)]
    return tuple(tuple(timed[a:b]) for a, b in pairwise(codes.begin.tolist()))


def with_all_copies(problem: Problem, order: Order) -> LinearOrder:
    """Put an order into one sequence, with the copies of what it offloads where timing puts them.

    Raises
    ------
    Deadlock, ValueError
        As :func:`time_order`.
    """
    sequence = linearize(problem, order)
    return (
        _with_best_copies(problem, sequence) if offloads_anything(problem, sequence) else sequence
    )


def retime(
    problem: Problem, schedule: Schedule, objective: Objective = "makespan", source: str = ""
) -> Schedule:
    """Time a valid schedule's order again, with the copies that it has.

    Memory with copies depends on times. So its copies stay in sequence on their channels, every O
    that had ended when an item or L that takes memory started still ends by then, and every L stays
    behind the start and the end of the items of its device that had started and ended when it did:
    the earliest such timing, or the one of least span. Without copies it is :func:`time_order`.

    Raises
    ------
    Deadlock, ValueError
        As :func:`time_order`.
    """
    if not any(schedule.copies):
        return time_order(problem, schedule.order, objective, source)
    sequence = sequence_of(problem, schedule)
    if not sequence.copies:  # they and items of length zero wait for each other at one instant
        return replace(schedule, source=source)
    ends = earliest_ends(sequence, releases(sequence, len(problem.devices), objective))
    return schedule_of(sequence, len(problem.devices), ends, source)


def sequence_of(problem: Problem, schedule: Schedule) -> LinearOrder:
    """Put a valid schedule's items and copies into one sequence, with all that they wait for.

    As :func:`retime` sees them. Without the copies where no one sequence has all of that, which
    only lengths of zero can bring about.

    Raises
    ------
    Deadlock, ValueError
        As :func:`time_order`.
    """
    sequence = linearize(problem, schedule.order)
    if not any(schedule.copies):
        return sequence
    copied = as_copied(problem, sequence, schedule)
    return sequence if copied is None else copied


_ROUNDS = 3  # of guessing when items end and placing copies by that


def _with_best_copies(problem: Problem, sequence: LinearOrder) -> LinearOrder:
    """Add the copies with which the earliest timing is shortest, of a few ways to place them."""
    devices = len(problem.devices)
    alone = earliest_ends(sequence, [0] * devices)
    best, value = sequence, -1
    for lead in (0, 1) if any(d.copy_channels == 1 for d in problem.devices) else (0,):
        guess = alone
        for _ in range(_ROUNDS):
            copied, place = with_copies(problem, sequence, guess, lead)
            ends = earliest_ends(copied, [0] * devices)
            guess = [ends[number] for number in place]
            if value < 0 or max(guess) < value:
                best, value = copied, max(guess)
            if value == max(alone):  # as if copies took no time
                return best
    return best


def releases(sequence: LinearOrder, devices: int, objective: Objective) -> list[int]:
    """Start of each device's first item: 0 for the makespan, that of least span for the span."""
    return [0] * devices if objective == "makespan" else of_minimum_span(sequence, devices)


def schedule_of(
    sequence: LinearOrder, devices: int, ends: Sequence[int], source: str = ""
) -> Schedule:
    """Put a sequence and the ends of its items together."""
    rows: list[list[Timed]] = [[] for _ in range(devices)]
    copies: list[list[TimedCopy]] = [[] for _ in range(devices)] if sequence.copies else []
    starts = map(sub, ends, sequence.duration)
    timed = map(Timed._make, zip(sequence.item, starts, ends, strict=True))
    for number, (device, one) in enumerate(zip(sequence.device, timed, strict=True)):
        if device < devices:
            rows[device].append(one)
        else:
            copy = TimedCopy(sequence.copies[number], one.start, one.end)
            copies[(device - devices) // 2].append(copy)
    for row in copies:
        row.sort(key=lambda timed: timed[1:])  # at one instant they stay in sequence
    return Schedule(tuple(map(tuple, rows)), source, tuple(map(tuple, copies)))


def linearize(problem: Problem, order: Order) -> LinearOrder:
    """Put the items of an order into one sequence that respects devices and dependencies.

    O(items); see :func:`pipesat.kernels.timing.sequenced`.

    Raises
    ------
    Deadlock, ValueError
        As :func:`time_order`.
    """
    from pipesat.kernels.timing import sequenced  # importing pipesat stays fast

    arrays, codes = coded(problem, order)
    found = sequenced(arrays, codes)
    items = [*chain.from_iterable(order)]
    sequence = LinearOrder.of_arrays(found, [items[at] for at in found.item.tolist()])
    for item, length in zip(sequence.item, sequence.duration, strict=True):
        if length < 0:
            duration(problem, item)  # raises: a pair that may not be
    if len(sequence.item) < len(items):
        raise explain_deadlock(problem, order, found.reached.tolist())
    if offloads_anything(problem, sequence):
        return sequence  # what is held between two items depends on copies
    return keep_together(problem, sequence)


def earliest_ends(sequence: LinearOrder, release: Sequence[int]) -> list[int]:
    """Earliest end of every item if device d may not start before ``release[d]``."""
    import numpy as np  # importing pipesat stays fast

    from pipesat.kernels.timing import ends_of

    return ends_of(sequence.arrays, np.array(release, np.int64)).tolist()


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
