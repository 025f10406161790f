"""Metrics of a schedule: makespan, span, bubbles, memory over time, where devices' time goes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pipesat.core.arguments import public
from pipesat.core.grouping import grouped
from pipesat.problem.ops import KINDS, Copy, Event, Item, Op, Pair, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import copied_amount, duration, inputs_of, kept, memory_change
from pipesat.problem.stage import KEEP
from pipesat.schedule.schedule import Schedule, Timed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INT64 = 1 << 62  # times from here on are held as Python integers


class MemoryProfile(NamedTuple):
    """A step function: from ``times[i]`` on, ``held[i]`` memory units are in use."""

    times: NDArray[np.int64]
    held: NDArray[np.int64]


@public
def memory_profiles(problem: Problem, schedule: Schedule) -> list[MemoryProfile]:
    """Memory in use on every device, static part included.

    Intervals are half-open, so changes at one instant count together: what ends frees its memory
    before what starts takes it, and an interval of length zero holds nothing.
    """
    import numpy as np  # importing pipesat stays fast

    profiles = []
    for number, (device, row) in enumerate(zip(problem.devices, schedule.devices, strict=True)):
        changes: list[tuple[int, int]] = [(0, device.static)]
        for timed in row:
            change = memory_change(problem, timed.item)  # type: ignore[arg-type]
            changes += [(timed.start, change.at_start), (timed.end, change.at_end)]
        changes += _by_copies(problem, schedule, number)
        # millions of ops of 10^12 time units each may pass 64 bits
        dtype = np.int64 if max(max(change) for change in changes) < _INT64 else object
        array = np.array(changes, dtype=dtype)
        times, index = np.unique(array[:, 0], return_inverse=True)
        steps = np.zeros(len(times), dtype=dtype)
        np.add.at(steps, index, array[:, 1])
        profiles.append(MemoryProfile(times, np.cumsum(steps)))
    return profiles


def _by_copies(problem: Problem, schedule: Schedule, device: int) -> Iterator[tuple[int, int]]:
    """What copies out set free at their ends, and copies back take at their starts."""
    copies = schedule.copies_of(device)
    if not copies:
        return
    offloaded = {
        (op.stage, op.microbatch): op
        for timed in schedule.devices[device]
        for op in members(timed.item)  # type: ignore[arg-type]
        if op.mode
    }
    for copy, start, end in copies:
        amount = copied_amount(problem, offloaded[copy.stage, copy.microbatch])  # type: ignore[union-attr]
        yield (end, -amount) if copy.kind == "O" else (start, amount)  # type: ignore[union-attr]


@public
def peak_memory(problem: Problem, schedule: Schedule) -> list[int]:
    """Largest memory in use on each device, in memory units."""
    return [int(profile.held.max()) for profile in memory_profiles(problem, schedule)]


@dataclass(frozen=True)
class DeviceTime:
    """One device's share of ``[0, makespan]``; the parts add up to the makespan.

    ``warm_up`` is before its first item, ``cool_down`` after its last. Between them a gap is
    ``memory`` while an F was ready but would have exceeded the capacity, otherwise ``input`` while
    the next item's input had not arrived, otherwise ``unforced``.
    """

    busy: int
    warm_up: int
    input: int
    memory: int
    unforced: int
    cool_down: int


@dataclass(frozen=True)
class Metrics:
    """Figures of one schedule; bubbles are fractions, ``None`` if the denominator is 0."""

    makespan: int
    span: int
    bubble_of_makespan: float | None
    bubble_of_span: float | None
    peak_memory: tuple[int, ...]
    devices: tuple[DeviceTime, ...]


def bubbles(problem: Problem, schedule: Schedule) -> tuple[float | None, float | None]:
    """Bubble of the makespan and of the span.

    Of the makespan: ``1 - total compute time / (devices * makespan)``. Of the span, as in the Zero
    Bubble paper (Qi et al., ICLR 2024): ``1 - largest device load / span``. Where modes make an
    item longer, as recomputing does, it counts with its time in the mode keep; a pair counts once,
    copies do not.
    """
    loads = useful_loads(problem, schedule)
    makespan, span = schedule.makespan, schedule.span
    of_makespan = 1 - sum(loads) / (len(problem.devices) * makespan) if makespan else None
    return of_makespan, 1 - max(loads) / span if span else None


def useful_loads(problem: Problem, schedule: Schedule) -> list[int]:
    """Work of every device, an item at most as long as in the mode keep."""
    return [sum(_useful(problem, timed) for timed in row) for row in schedule.devices]


def pair_counts(schedule: Schedule) -> dict[str, int]:
    """How many pairs of which kinds run, as in ``{"F+BW": 12}``; kinds in the order F, B, W, BW."""
    found = Counter(
        tuple(sorted(KINDS.index(op.kind) for op in item))
        for row in schedule.order
        for item in row
        if isinstance(item, Pair)
    )
    return {f"{KINDS[a]}+{KINDS[b]}": found[a, b] for a, b in sorted(found)}


def mode_counts(problem: Problem, schedule: Schedule) -> dict[str, int]:
    """How many (stage, microbatch) run in which mode, as in ``{"keep": 30, "offload": 2}``."""
    counts = dict.fromkeys([KEEP, *problem.mode_names], 0)
    counts[KEEP] = sum(problem.microbatches)
    if problem.has_modes:
        for (stage, _), mode in schedule.modes.items():
            counts[problem.stages[stage].modes[mode - 1].name] += 1
            counts[KEEP] -= 1
    return counts


def _useful(problem: Problem, timed: Timed) -> int:
    """Time of an item, at most what it takes in the mode keep."""
    length = timed.end - timed.start
    item = timed.item
    if isinstance(item, Op) and not item.mode:
        return length
    return min(length, duration(problem, kept(item)))  # type: ignore[arg-type]


@public
def measure(problem: Problem, schedule: Schedule) -> Metrics:
    """Return all metrics of a valid schedule. O(n log n)."""
    of_makespan, of_span = bubbles(problem, schedule)
    makespan = schedule.makespan
    ends: dict[Event | Copy, int] = {
        op.event: timed.end
        for _, timed in schedule
        for op in members(timed.item)  # type: ignore[arg-type]
    }
    ends |= {copy: end for row in schedule.copies for copy, _, end in row}  # type: ignore[misc]
    profiles = memory_profiles(problem, schedule)
    return Metrics(
        makespan=makespan,
        span=schedule.span,
        bubble_of_makespan=of_makespan,
        bubble_of_span=of_span,
        peak_memory=tuple(int(profile.held.max()) for profile in profiles),
        devices=tuple(
            _device_time(problem, device, row, ends, makespan, profile)
            for device, (row, profile) in enumerate(zip(schedule.devices, profiles, strict=True))
        ),
    )


def _device_time(
    problem: Problem,
    device: int,
    row: tuple[Timed, ...],
    ends: dict[Event | Copy, int],
    makespan: int,
    profile: MemoryProfile,
) -> DeviceTime:
    """Where a device's time goes; with copies, what it holds changes within gaps."""
    if not row:
        return DeviceTime(0, makespan, 0, 0, 0, 0)
    capacity = problem.devices[device].memory
    ops = (op for timed in reversed(row) for op in members(timed.item))  # type: ignore[arg-type]
    # per stage, forwards that have not run, last one first
    waiting = grouped((op.stage, op) for op in ops if op.kind == "F")
    parts = {"input": 0, "memory": 0, "unforced": 0}
    free_at = row[0].start
    for timed in row:
        if timed.start > free_at:
            arrival = _arrival(problem, timed.item, ends)  # type: ignore[arg-type]
            needs = memory_change(problem, timed.item).at_start  # type: ignore[arg-type]
            for begin, end, held in _pieces(profile, free_at, timed.start):
                arrived = min(max(arrival, begin), end)
                blocked = end
                if capacity is not None:
                    stopped = [  # when an F was first ready that would not fit
                        _arrival(problem, ops[-1], ends)
                        for ops in waiting.values()
                        if ops and memory_change(problem, ops[-1]).at_start > capacity - held
                    ]
                    blocked = min([end, *stopped])
                    if needs > capacity - held:
                        blocked = min(blocked, arrived)  # it waits for a copy out
                blocked = max(blocked, begin)
                parts["memory"] += end - blocked
                parts["input"] += max(0, min(arrived, blocked) - begin)
                parts["unforced"] += max(0, blocked - max(arrived, begin))
        for op in members(timed.item):  # type: ignore[arg-type]
            if op.kind == "F":
                waiting[op.stage].pop()
        free_at = max(free_at, timed.end)
    return DeviceTime(
        busy=sum(t.end - t.start for t in row),
        warm_up=row[0].start,
        cool_down=makespan - free_at,
        **parts,
    )


def _pieces(profile: MemoryProfile, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Parts of a gap in which the same is held: ``(begin, end, held)``."""
    first, last = bisect_right(profile.times, begin), bisect_left(profile.times, end)
    cuts = [begin, *map(int, profile.times[first:last]), end]
    for at, (since, until) in enumerate(pairwise(cuts), first - 1):
        yield since, until, int(profile.held[at])


def _arrival(problem: Problem, item: Item, ends: dict[Event | Copy, int]) -> int:
    """When the inputs of an item are all there."""
    arrival = 0
    for op in members(item):
        for need in inputs_of(problem, op):
            if (end := ends.get(need.event)) is not None:
                arrival = max(arrival, end + need.delay)
        if op.mode and op.kind != "F":
            arrival = max(arrival, ends.get(Copy(op.stage, "L", op.microbatch), 0))
    return arrival
