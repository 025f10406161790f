"""Memory counted in whole microbatches: what no two of them can share is of use to neither.

Room for five chunks holds two microbatches of two chunks each, not two and a half. Such a limit on
the number of microbatches is memory, too: that of a problem in which a microbatch holds 1 of it.
docs/proofs/bounds.md has the argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipesat.bounds.work_in_memory import in_use
from pipesat.core.problem import Device, Problem, Stage


def with_rooms_in_use(problem: Problem) -> Problem:
    """Return the problem with every device's memory as far as anything can fill it.

    What is held is a sum of the stages' amounts, hence a multiple of their greatest common divisor.
    """
    devices = []
    for device, numbers in zip(problem.devices, problem.stages_on, strict=True):
        stages = [problem.stages[s] for s in numbers]
        room = in_use(device.room, (amount for stage in stages for amount in _amounts(stage)))
        devices.append(device if room is None else replace(device, memory=device.static + room))
    return replace(problem, devices=tuple(devices))


def in_whole_microbatches(problem: Problem, device: int) -> Iterator[Problem]:
    """Yield problems whose memory is how many microbatches of a stage of the device are in flight.

    That is from the start of F to the end of the backward, while the device's earlier stages of the
    route hold theirs, too. Every schedule of the problem is one of each; only where such a number
    leaves some of the room over.
    """
    room = problem.devices[device].room
    if room is None:
        return
    for stages in problem.chunks_on[device].values():
        held = 0
        for stage in stages:
            held += problem.stages[stage].held_after_F
            number = room // held if held else 0
            if number and number * held < room:
                yield _counting(problem, device, stage, number)


def _counting(problem: Problem, device: int, stage: int, number: int) -> Problem:
    """Return the problem in which the device has room for so many microbatches of a stage."""
    stages = list(problem.stages)
    for s in problem.stages_on[device]:
        held = int(s == stage)
        stages[s] = replace(stages[s], held_after_F=held, held_after_B=0, held_in_backward=0)
    devices = list(problem.devices)
    devices[device] = Device(devices[device].name, memory=number)
    return replace(problem, devices=tuple(devices), stages=tuple(stages))


def _amounts(stage: Stage) -> tuple[int, int, int]:
    return stage.held_after_F, stage.held_after_B, stage.held_in_backward
