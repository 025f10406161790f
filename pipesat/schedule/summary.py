"""What tables and summaries say of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipesat.core.amounts import (
    bytes_of,
    exact_text,
    in_whole_units,
    memory_text,
    rounded_down,
    unit_of_cells,
)
from pipesat.core.claims import percent, ratio, uneven
from pipesat.problem.ops import Unreadable, members
from pipesat.problem.problem import Problem
from pipesat.schedule.metrics import mode_counts, peak_memory, useful_loads
from pipesat.schedule.schedule import Objective, Schedule, ops_in


def records_of(problem: Problem, schedule: Schedule) -> list[dict[str, Any]]:
    """Return a row per op; the members of a pair have a row each, with its times and its text."""
    return [
        {
            "device": device,
            "name": problem.device_name(device),
            "op": str(op),
            "stage": op.stage,
            "kind": op.kind,
            "microbatch": op.microbatch,
            "start": timed.start,
            "end": timed.end,
            "runs_as": str(timed.item),
        }
        for device, timed in schedule
        if not isinstance(timed.item, Unreadable)
        for op in members(timed.item)
    ]


def figures_text(problem: Problem, schedule: Schedule) -> str:
    """Say how many ops it has, a pair as two, and how long it is."""
    ops = sum(1 for _ in ops_in(schedule.order))
    makespan, span = (exact_text(t, problem.time_unit) for t in (schedule.makespan, schedule.span))
    return f"{ops} ops, makespan {makespan}, span {span}"


def modes_text(problem: Problem, schedule: Schedule) -> str:
    """Say how many (stage, microbatch) run in which memory mode."""
    counts = mode_counts(problem, schedule)
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def fullest(problem: Problem, peaks: Sequence[int]) -> int:
    """Return the device that is nearest to its capacity; without any, the one that holds most."""

    def share(device: int) -> tuple[float, int]:
        memory, peak = problem.devices[device].memory, peaks[device]
        return (peak / memory if memory else float(memory == 0 < peak)), peak

    return max(range(len(peaks)), key=share)


def peak_text(problem: Problem, peaks: Sequence[int]) -> str:
    """Say which device is fullest, and of what; empty if the problem says nothing of memory."""
    worst = fullest(problem, peaks)
    capacity, unit = problem.devices[worst].memory, problem.memory_unit
    if capacity is None and not peaks[worst]:
        return ""
    held = memory_text(peaks[worst], unit, within=capacity)
    if capacity is None:
        return f"{held} on {problem.device_name(worst)}, the most of any device (no capacity given)"
    if bytes_of(unit) is None:
        held, _ = in_whole_units(peaks[worst], unit)
    limit = memory_text(capacity, unit, rounded_down)
    return f"{held} of {limit} on {problem.device_name(worst)}, the fullest device"


def over_text(problem: Problem, schedule: Schedule) -> str:
    """Say which device exceeds its capacity most, and by what; empty if all is within."""
    peaks = peak_memory(problem, schedule)
    worst = fullest(problem, peaks)
    capacity = problem.devices[worst].memory
    fits = capacity is None or peaks[worst] <= capacity
    return "" if fits else peak_text(problem, peaks)


def work_text(problem: Problem, schedule: Schedule, objective: Objective) -> str:
    """Say where the time goes: the split's fault, if it costs more than the order, or who is busy.

    Where ops may pair, another order may have less work: nothing is said of the split then.
    """
    loads, value = useful_loads(problem, schedule), schedule.value(objective)
    found = None if problem.overlap is not None else uneven(loads, value)
    if found is not None:
        name = problem.device_name(found.device)
        return f"{name} has {found}: the split costs more than the order, see pipesat plan"
    busiest = max(range(len(loads)), key=loads.__getitem__)
    busy = percent(ratio(loads[busiest], value), 1)
    return f"the bottleneck is {problem.device_name(busiest)}, busy {busy} of the time"


def units_of(problem: Problem, *, ms: bool = False) -> list[str]:
    """Say what a table's times and memory are in, as far as the problem does.

    ``ms``: times are shown in ms where the problem's unit is known, bytes with a unit each.
    """
    time, memory = problem.time_unit, problem.memory_unit
    if ms:
        time = unit_of_cells(time)
        memory = "" if bytes_of(memory) else in_whole_units(0, memory)[1]
    units = (("times", time), ("memory", memory))
    return [f"{what} in {unit}" for what, unit in units if unit]


def statement_of(layers: Sequence[int]) -> str:
    """Say what was stated of the layers, to be repeated with every result that rests on it."""
    if len(set(layers)) == 1:
        return f"you state that every stage is made of {layers[0]} equal layers"
    counts = ", ".join(map(str, layers))
    return f"you state that the stages are made of {counts} layers, equal within a stage"
