"""Part of the checker: what devices hold, from the times of ops and copies."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from pipesat.core.check_copies import Copies
from pipesat.core.check_ops import Ops
from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.violation import Violation


def memory_violations(problem: Problem, ops: Ops, copies: Copies) -> Iterator[Violation]:
    """Static memory plus all that is held never exceeds a device's capacity."""
    if all(device.memory is None for device in problem.devices):
        return
    changes: list[list[tuple[int, int]]] = [[] for _ in problem.devices]
    for stage, begin, end, amount in _held(ops):
        if amount and begin < end:
            changes[problem.stages[stage].device] += [(begin, amount), (end, -amount)]
    for stage, begin, end, amount in copies.away():
        if begin < end:
            changes[problem.stages[stage].device] += [(begin, -amount), (end, amount)]
    for number, device in enumerate(problem.devices):
        if device.memory is None:
            continue
        held, worst, since = device.static, 0, 0
        if held > device.memory:
            worst = held
        for time, group in groupby(sorted(changes[number]), key=itemgetter(0)):
            held += sum(change for _, change in group)
            if held > device.memory:
                since = since if worst else time
                worst = max(worst, held)
            elif worst:
                yield _over(problem, number, since, time, worst)
                worst = 0
        if worst:
            yield _over(problem, number, since, None, worst)


def _held(ops: Ops) -> Iterator[tuple[int, int, int, int]]:
    """Half-open intervals ``(stage, begin, end, amount)`` in which memory is held."""
    for op, (start, end) in ops.times.items():
        stage, kind, microbatch, _ = op
        amounts = ops.amounts(op)
        a, w, x = amounts.held_after_F, amounts.held_after_B, amounts.held_in_backward
        if kind == "F":
            backward = ops.backward(stage, microbatch)
            if backward is not None:
                b_start, b_end = ops.times[backward]
                yield stage, start, b_end, a
                most = max(w, x) if backward.kind == "B" else x
                yield stage, b_start, b_end, max(0, most - a)
        elif kind == "B":
            weight = ops.times.get(Op(stage, "W", microbatch))
            if weight is not None:
                yield stage, end, weight[1], w


def _over(problem: Problem, device: int, since: int, until: int | None, peak: int) -> Violation:
    capacity = problem.devices[device].memory or 0
    when = f"from {since} to {until}" if until is not None else f"from {since} on"
    text = (
        f"{problem.device_name(device)} holds up to {peak} {when}, "
        f"{peak - capacity} over its capacity of {capacity}"
    )
    return Violation("memory", text, device, since)
