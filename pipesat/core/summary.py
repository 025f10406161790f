"""What tables and summaries say of a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipesat.core.memory import peak_memory
from pipesat.core.metrics import mode_counts
from pipesat.core.ops import Unreadable, members
from pipesat.core.stage import COSTS

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule


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


def records_of_stages(problem: Problem) -> list[dict[str, Any]]:
    """Return a row per stage: where it lies, what it takes, and its device's memory."""
    return [
        {
            "stage": number,
            "device": problem.device_name(stage.device),
            **{key: getattr(stage, key) for key in COSTS},
            "modes": ", ".join(mode.name for mode in stage.modes) or None,
            "memory": problem.devices[stage.device].memory,
            "static": problem.devices[stage.device].static,
        }
        for number, stage in enumerate(problem.stages)
    ]


def modes_text(problem: Problem, schedule: Schedule) -> str:
    """Say how many (stage, microbatch) run in which memory mode."""
    counts = mode_counts(problem, schedule)
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def memory_text(problem: Problem, schedule: Schedule) -> str:
    """Say which device is fullest, and of what."""
    unit = f" {problem.memory_unit}" if problem.memory_unit else ""
    peaks = peak_memory(problem, schedule)
    worst = max(range(len(peaks)), key=peaks.__getitem__)
    capacity = problem.devices[worst].memory
    limit = "unlimited" if capacity is None else f"capacity {capacity}"
    return f"{peaks[worst]}{unit} on {problem.device_name(worst)} ({limit})"
