"""Metrics of a schedule: makespan, span, bubbles, and where each device's time goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pipesat.core.memory import peak_memory
from pipesat.core.ops import KINDS, Event, Item, Op, Pair, members
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, memory_change
from pipesat.core.schedule import Schedule, Timed


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
    Bubble paper (Qi et al., ICLR 2024): ``1 - largest device load / span``.
    """
    loads = [sum(t.end - t.start for t in row) for row in schedule.devices]
    makespan, span = schedule.makespan, schedule.span
    of_makespan = 1 - sum(loads) / (len(problem.devices) * makespan) if makespan else None
    return of_makespan, 1 - max(loads) / span if span else None


def pair_counts(schedule: Schedule) -> dict[str, int]:
    """How many pairs of which kinds run, as in ``{"F+BW": 12}``; kinds in the order F, B, W, BW."""
    found = Counter(
        tuple(sorted(KINDS.index(op.kind) for op in item))
        for row in schedule.order
        for item in row
        if isinstance(item, Pair)
    )
    return {f"{KINDS[a]}+{KINDS[b]}": found[a, b] for a, b in sorted(found)}


def measure(problem: Problem, schedule: Schedule) -> Metrics:
    """Return all metrics of a valid schedule. O(n log n)."""
    of_makespan, of_span = bubbles(problem, schedule)
    makespan = schedule.makespan
    ends = {op.event: timed.end for _, timed in schedule for op in members(timed.item)}  # type: ignore[arg-type]
    return Metrics(
        makespan=makespan,
        span=schedule.span,
        bubble_of_makespan=of_makespan,
        bubble_of_span=of_span,
        peak_memory=tuple(peak_memory(problem, schedule)),
        devices=tuple(
            _device_time(problem, device, row, ends, makespan)
            for device, row in enumerate(schedule.devices)
        ),
    )


def _device_time(
    problem: Problem, device: int, row: tuple[Timed, ...], ends: dict[Event, int], makespan: int
) -> DeviceTime:
    if not row:
        return DeviceTime(0, makespan, 0, 0, 0, 0)
    room = problem.devices[device].room
    forwards = _Forwards(problem, row, ends)
    parts = {"input": 0, "memory": 0, "unforced": 0}
    held, free_at = 0, row[0].start
    for timed in row:
        gap_start, gap_end = free_at, timed.start
        if gap_end > gap_start:
            arrived = min(max(_arrival(problem, timed.item, ends), gap_start), gap_end)  # type: ignore[arg-type]
            blocked = gap_end if room is None else forwards.blocked_since(held, room, gap_end)
            blocked = min(max(blocked, gap_start), gap_end)
            parts["memory"] += gap_end - blocked
            parts["input"] += max(0, min(arrived, blocked) - gap_start)
            parts["unforced"] += max(0, blocked - max(arrived, gap_start))
        for op in members(timed.item):  # type: ignore[arg-type]
            held += memory_change(problem, op).net
            if op.kind == "F":
                forwards.waiting[op.stage].pop()
        free_at = max(free_at, timed.end)
    return DeviceTime(
        busy=sum(t.end - t.start for t in row),
        warm_up=row[0].start,
        cool_down=makespan - free_at,
        **parts,
    )


class _Forwards:
    """The next forward of each stage of a device that has not run yet, and when it was ready."""

    def __init__(self, problem: Problem, row: tuple[Timed, ...], ends: dict[Event, int]) -> None:
        self.problem, self.ends = problem, ends
        self.waiting: dict[int, list[Op]] = {}  # per stage, last one first
        for timed in reversed(row):
            for op in members(timed.item):  # type: ignore[arg-type]
                if op.kind == "F":
                    self.waiting.setdefault(op.stage, []).append(op)

    def blocked_since(self, held: int, room: int, until: int) -> int:
        """When, before ``until``, an F was first ready that would not fit; ``until`` if none."""
        ready = [
            _arrival(self.problem, ops[-1], self.ends)
            for ops in self.waiting.values()
            if ops and held + memory_change(self.problem, ops[-1]).at_start > room
        ]
        return min([until, *ready])


def _arrival(problem: Problem, item: Item, ends: dict[Event, int]) -> int:
    """When the inputs of an item are all there."""
    arrival = 0
    for op in members(item):
        need = awaited(problem, op)
        if need is not None and (end := ends.get(need.event)) is not None:
            arrival = max(arrival, end + need.delay)
    return arrival
