"""From an order to times: as early as possible for the makespan, minimum span for the span.

An order is first put into one sequence in which every item stands after everything it waits for
(:func:`linearize`); all timing is then one pass over arrays.

*Earliest* (makespan): an item starts at the end of the one before it on its device, or when its
last input has arrived (end + delay), whichever is later. Items that memory makes end together
(:mod:`pipesat.core.instants`) wait for each other.

*Minimum span*: let ``L[d, e]`` be the longest path from the start of device d's first item to the
end of device e's last one. First starts ``x`` with span T exist if and only if
``x[e] >= x[d] + L[d, e] - T`` for all d, e, so the least T is the largest mean of a cycle of L,
rounded up (all times are integers); the least such x gives the earliest schedule of that span.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from pipesat.core.deadlock import explain_deadlock
from pipesat.core.instants import keep_together
from pipesat.core.linear_order import LinearOrder
from pipesat.core.ops import Event, members
from pipesat.core.rules import awaited, duration, one_of_each
from pipesat.core.schedule import Objective, Order, Schedule, Timed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pipesat.core.problem import Problem

    Matrix = NDArray[np.int64]

_EXACT_IN_INT64 = 1 << 60  # sums of longer paths are added up as Python integers


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
    sequence = linearize(problem, order)
    ends = earliest_ends(sequence, releases(sequence, len(problem.devices), objective))
    return schedule_of(sequence, len(problem.devices), ends, source)


def releases(sequence: LinearOrder, devices: int, objective: Objective) -> list[int]:
    """Start of each device's first item: 0 for the makespan, that of least span for the span."""
    return [0] * devices if objective == "makespan" else _of_minimum_span(sequence, devices)


def schedule_of(
    sequence: LinearOrder, devices: int, ends: Sequence[int], source: str = ""
) -> Schedule:
    """Put a sequence and the ends of its items together."""
    rows: list[list[Timed]] = [[] for _ in range(devices)]
    for device, item, length, end in zip(
        sequence.device, sequence.item, sequence.duration, ends, strict=True
    ):
        rows[device].append(Timed(item, end - length, end))
    return Schedule(tuple(map(tuple, rows)), source)


def linearize(problem: Problem, order: Order) -> LinearOrder:
    """Put the items of an order into one sequence that respects devices and dependencies.

    Devices take turns: each runs its list until an item waits for one that has not run; the device
    is woken when that one does. O(items).

    Raises
    ------
    Deadlock, ValueError
        As :func:`time_order`.
    """
    _check_names(problem, order)
    plain = problem.plain  # one answer per stage and kind: twice as fast
    waits = {op[:2]: awaited(problem, op) for op in one_of_each(problem)} if plain else {}
    result = LinearOrder([], [], [], [], [])
    done: dict[Event, int] = {}
    asleep: dict[Event, list[int]] = {}
    position = [0] * len(order)
    last = [-1] * len(order)
    ready = list(range(len(order)))[::-1]
    while ready:
        device = ready.pop()
        row = order[device]
        while position[device] < len(row):
            item = row[position[device]]
            ops = members(item)
            inputs = []
            for op in ops:
                need = waits[op.stage, op.kind] if plain else awaited(problem, op)
                if need is None:
                    continue
                stage, phase, _ = need.event
                event = (stage, phase, op.microbatch)
                if event not in done:
                    asleep.setdefault(event, []).append(device)
                    break
                inputs.append((done[event], need.delay))
            else:
                number = len(result.item)
                result.device.append(device)
                result.item.append(item)
                result.duration.append(duration(problem, item))
                result.before.append(last[device])
                result.inputs.append(tuple(inputs))
                last[device] = number
                position[device] += 1
                for op in ops:
                    event = op.event
                    done[event] = number
                    ready.extend(asleep.pop(event, ()))
                continue
            break
    if len(result.item) < sum(map(len, order)):
        raise explain_deadlock(problem, order, position)
    return keep_together(problem, result)


def earliest_ends(sequence: LinearOrder, release: Sequence[int]) -> list[int]:
    """Earliest end of every item if device d may not start before ``release[d]``."""
    ends: list[int] = []
    groups = sequence.group_ending_with
    for number, (device, length, before, inputs) in enumerate(
        zip(sequence.device, sequence.duration, sequence.before, sequence.inputs, strict=True)
    ):
        start = release[device] if before < 0 else ends[before]
        for source, delay in inputs:
            start = max(start, ends[source] + delay)
        ends.append(start + length)
        if (group := groups.get(number)) is not None:
            ends[group.start :] = [max(ends[group.start :])] * len(group)
    return ends


def _check_names(problem: Problem, order: Order) -> None:
    if len(order) != len(problem.devices):
        raise ValueError(
            f"the order has {len(order)} device lists, the problem {len(problem.devices)} devices"
        )
    for row in order:
        for item in row:
            for op in members(item):
                if op.stage >= len(problem.stages):
                    raise ValueError(f"{op}: there is no stage {op.stage}")


def _of_minimum_span(sequence: LinearOrder, devices: int) -> list[int]:
    """Earliest starts of the devices' first items among all timings of least span."""
    paths = _longest_paths(sequence, devices)
    target = max(0, *(int(paths[d, d]) for d in range(devices)))
    while True:
        first, cycle_mean = _potentials(paths, target)
        if cycle_mean is None:
            return [int(x) for x in first]
        target = cycle_mean


def _longest_paths(sequence: LinearOrder, devices: int) -> Matrix:
    """``L[d, e]``: start of d's first item to the end of e's last; hugely negative if no path."""
    import numpy as np

    longest = sum(sequence.duration) + sum(d for inputs in sequence.inputs for _, d in inputs)
    # no sum of paths through all devices, less a span each, is larger than this
    furthest = (devices + 2) * longest
    exact = furthest < _EXACT_IN_INT64
    dtype = np.int64 if exact else object
    unreachable = -(1 << 62) if exact else -4 * furthest
    row_end: dict[int, Matrix] = {}
    uses = _uses(sequence)
    kept: dict[int, Matrix] = {}  # ends of items that some later item still waits for
    groups = sequence.group_ending_with
    for number, (device, length, before, inputs) in enumerate(
        zip(sequence.device, sequence.duration, sequence.before, sequence.inputs, strict=True)
    ):
        if before < 0:
            start = np.full(devices, unreachable, dtype=dtype)
            start[device] = 0
        else:
            start = row_end[device]
        for source, delay in inputs:
            start = np.maximum(start, kept[source] + delay)
            uses[source] -= 1
            if not uses[source]:
                del kept[source]
        row_end[device] = end = start + length
        if uses[number]:
            kept[number] = end
        for member in (group := groups.get(number, range(0))):
            end = np.maximum(end, kept[member])
        for member in group:
            row_end[sequence.device[member]] = kept[member] = end
    paths = np.full((devices, devices), unreachable, dtype=dtype)
    for device, end in row_end.items():
        paths[:, device] = end
    return paths


def _uses(sequence: LinearOrder) -> list[int]:
    """How often an item's end is still needed: by those that wait for it, and by its group."""
    uses = [0] * len(sequence.item)
    for inputs in sequence.inputs:
        for source, _ in inputs:
            uses[source] += 1
    for member in chain.from_iterable(sequence.groups):
        uses[member] += 1
    return uses


def _potentials(paths: Matrix, target: int) -> tuple[Matrix, int | None]:
    """Least x >= 0 with ``x[e] >= x[d] + L[d, e] - target``, or the mean of a violating cycle.

    Bellman-Ford; the mean, rounded up, is a better lower bound on the span than ``target`` was.
    """
    import numpy as np

    count = len(paths)
    x = np.zeros(count, dtype=paths.dtype)
    parent = np.full(count, -1)
    for _ in range(count + 1):
        candidates = x[:, None] + paths - target
        best = candidates.argmax(axis=0)
        value = candidates[best, np.arange(count)]
        improved = value > x
        if not improved.any():
            return x, None
        x = np.where(improved, value, x)
        parent = np.where(improved, best, parent)
        if cycle := _parent_cycle(parent):
            total = sum(int(paths[d, e]) for d, e in zip(cycle, cycle[1:] + cycle[:1], strict=True))
            return x, -(-total // len(cycle))
    raise AssertionError("Bellman-Ford neither settled nor closed a cycle")


def _parent_cycle(parent: Matrix) -> list[int]:
    """A cycle of the parent pointers, in forward direction; empty if there is none."""
    seen = [0] * len(parent)
    for root in range(len(parent)):
        node, mark = root, root + 1
        while node >= 0 and not seen[node]:
            seen[node] = mark
            node = int(parent[node])
        if node >= 0 and seen[node] == mark:
            cycle = [node]
            while (step := int(parent[cycle[-1]])) != node:
                cycle.append(step)
            return cycle[::-1]
    return []
