"""Routes that are graphs, sequences in slices, stages without a backward: what is certain of them.

*One sequence at a time* is a schedule wherever memory has place for one. Which of its ops run first
decides what it holds, so two ways are tried: the forwards that lead to one last stage after those
that lead to another, with each backward as soon as it may run, and all forwards by slice.

*What no order avoids.* While the backward of a last stage runs on the last slice of a sequence, or
the forward before it does, all forwards of all stages that lead there have started, and none of
their backwards has ended: all slices of these stages are held.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, product
from typing import NamedTuple

from pipesat.core.errors import Infeasible
from pipesat.problem.ops import Event, Item, Kind, Op, Phase
from pipesat.problem.problem import Problem, once
from pipesat.problem.rules import inputs_of, last_stages, leads_to, memory_in_order
from pipesat.problem.variants import variants
from pipesat.schedule.schedule import Order


class Passing(NamedTuple):
    """A sequence of a route: the first of its microbatches, and the class of each."""

    route: int
    first: int
    classes: tuple[int, ...]


def sequences(problem: Problem) -> Iterator[Passing]:
    """Yield a sequence of each route and combination of classes; without slices, a microbatch."""
    for number, route in enumerate(problem.routes):
        for classes, sequence in route.kinds.items():
            yield Passing(number, sequence * route.slices, classes)


def require_memory(problem: Problem) -> None:
    """Pass unless it is clear that no order of ops avoids more memory than there is.

    Raises
    ------
    Infeasible
        Naming the device and what it holds at least.
    """
    for passing in sequences(problem):
        for device, held, stages in _certainly_held(problem, passing):
            data = problem.devices[device]
            if data.slack is not None and held > data.slack:
                which = f"stage{'s' * (len(stages) > 1)} {', '.join(map(str, stages))}"
                own = f" and one sequence's {held} on {which} at one time" if stages else ""
                raise Infeasible(
                    f"{problem.device_name(device)} has a capacity of {data.memory} but needs at "
                    f"least {data.static + held} (its static {data.static}{own})"
                )


def _certainly_held(
    problem: Problem, passing: Passing
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield devices, what a sequence holds there at one time at least, and on which stages."""
    route, last = problem.routes[passing.route], passing.classes[-1]
    for stage in route.stages:
        own = variants(problem, stage, last)
        of_each = (variants(problem, stage, one) for one in {*passing.classes})
        least = max(min(one.surely_held for one in every) for every in of_each)
        yield problem.stages[stage].device, least, (stage,)
        if problem.after[stage] or not problem.stages[stage].has_backward:
            continue
        if not all(one.forward or one.backward for one in own):
            continue  # an instant holds nothing
        for device, stages in enumerate(problem.stages_on):
            there = tuple(
                s
                for s in stages
                if problem.route_of[s] == passing.route
                and problem.stages[s].has_backward
                and leads_to(problem, s, stage)
            )
            held = sum(
                min(one.rest for one in variants(problem, s, of_class))
                for s in there
                for of_class in passing.classes
            )
            yield device, held, there


@once
def one_at_a_time(problem: Problem) -> Order | None:
    """Return an order of one sequence after the other that fits memory, if one was found."""
    for order, peaks in _in_turns(problem):
        held = zip(problem.devices, peaks, strict=True)
        if all(device.slack is None or peak <= device.slack for device, peak in held):
            return order
    return None


def peaks_one_at_a_time(problem: Problem) -> list[int]:
    """Most that each device holds in the order of one sequence after the other that holds least."""
    return min((peaks for _, peaks in _in_turns(problem)), key=max)


def _in_turns(problem: Problem) -> Iterator[tuple[Order, list[int]]]:
    """Yield orders of one sequence after the other, and the most that each device holds in them."""
    for modes, deep in product(_modes(problem), (True, False)):
        order = _in_turn(problem, deep, modes)
        yield order, _peaks(problem, order)


def _peaks(problem: Problem, order: Order) -> list[int]:
    peaks = []
    for row in order:
        changes = [memory_in_order(problem, item) for item in row]
        held = accumulate((change.net for change in changes), initial=0)
        taken = (own + change.at_start for own, change in zip(held, changes, strict=False))
        peaks.append(max(taken, default=0))
    return peaks


def _modes(problem: Problem) -> Iterator[Sequence[int]]:
    """Yield modes of stages: all in keep, then each in the one that holds least."""
    numbers = range(len(problem.stages))
    yield [0] * len(numbers)
    if problem.has_modes:
        yield [
            min(problem.modes_of(stage), key=partial(_held_in_mode, problem, stage))
            for stage in numbers
        ]


def _held_in_mode(problem: Problem, stage: int, mode: int) -> tuple[int, int]:
    route = problem.route(stage)
    own = [
        one
        for of_class in route.class_numbers
        for one in variants(problem, stage, of_class)
        if one.mode == mode
    ]
    return sum(one.rest for one in own), max(one.most for one in own)


def _in_turn(problem: Problem, deep: bool, modes: Sequence[int]) -> Order:
    """All sequences one after the other, their forwards by last stage (``deep``) or by slice."""
    rows: list[list[Item]] = [[] for _ in problem.devices]
    for number, route in enumerate(problem.routes):
        steps = _steps(problem, number, deep)
        for first in range(0, route.microbatches, route.slices):
            for stage, phase, at in steps:
                op = Op(stage, "F", first + at, modes[stage])
                fused = problem.amounts(stage, first + at, modes[stage]).may_fuse
                kinds: tuple[Kind, ...] = ("F",) if phase == "F" else ("B", "W")
                kinds = ("BW",) if phase == "B" and fused else kinds
                rows[problem.stages[stage].device] += [op._replace(kind=kind) for kind in kinds]
    return tuple(map(tuple, rows))


def _steps(problem: Problem, number: int, deep: bool) -> list[tuple[int, Phase, int]]:
    """Forwards and backwards of one sequence, by slice, with each backward as soon as possible."""
    route = problem.routes[number]
    own = [(s, at) for at in range(route.slices) for s in route.stages]
    if deep:
        sinks = {s: last_stages(problem, s)[0] for s in route.stages}
        place = {s: at for at, s in enumerate(route.stages)}
        own.sort(key=lambda one: (place[sinks[one[0]]], one[1], place[one[0]]))
    ops = [
        Op(stage, "B", at)
        for at in reversed(range(route.slices))
        for stage in reversed(route.stages)
        if problem.stages[stage].has_backward
    ]
    ops += [Op(stage, "F", at) for stage, at in own]
    missing: list[int] = []
    readers: dict[Event, list[int]] = {op.event: [] for op in ops}
    for reader, op in enumerate(ops):
        needs = inputs_of(problem, op)
        missing.append(len(needs))
        for need in needs:
            readers[need.event].append(reader)
    ready = [reader for reader, count in enumerate(missing) if not count]  # ascends: a heap
    steps: list[tuple[int, Phase, int]] = []
    while ready:
        op = ops[heapq.heappop(ready)]
        stage, phase, at = op.event
        steps.append((stage, phase, at))
        for reader in readers[op.event]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    return steps
