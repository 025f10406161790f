"""What values of a parameter of a hand-written schedule take, and what no schedule is below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeAlias, TypeVar

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.errors import NotApplicable
from pipesat.problem.problem import Problem
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.schedule import Schedule

V = TypeVar("V")
Takes: TypeAlias = tuple[int, int, int]
"""Makespan, bound and peak."""


def timed_values(
    problem: Problem, build: Callable[[Problem, V], Schedule], values: Iterable[V]
) -> Iterator[tuple[V, Takes]]:
    """Yield each value whose schedule exists and fits into memory, and what that takes.

    The peak is that of the device that holds most, in memory units. The bound holds for every
    schedule in which no device holds more, in time units.
    """
    for value in values:
        with suppress(NotApplicable):
            schedule = build(problem, value)
            peaks = peak_memory(problem, schedule)
            slacks = [device.memory for device in problem.devices]
            if all(
                slack is None or peak <= slack for peak, slack in zip(peaks, slacks, strict=True)
            ):
                bound = closed_form_bound(problem.with_memory(max(peaks)), "makespan")
                yield value, (schedule.makespan, bound.value, max(peaks))
