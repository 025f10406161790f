"""Part of the checker: the copies of offloaded microbatches, and what devices hold over time.

From given times alone, as the rest of the checker: nothing here comes from the placing of copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from pipesat.core.check_ops import (
    Complaint,
    CopyAmounts,
    Ops,
    elsewhere,
    in_turn,
    lasting,
    one_at_a_time,
    restated_copies,
)
from pipesat.core.errors import Violation
from pipesat.core.ops import Copy, Op, Unreadable
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule, TimedCopy


class Copies:
    """The copies of a schedule, and which (stage, microbatch) should have them.

    ``times`` has the start and end of each copy that belongs to an offloaded microbatch, the first
    time it appears.
    """

    def __init__(self, problem: Problem, ops: Ops, schedule: Schedule) -> None:
        self.problem, self.ops, self.schedule = problem, ops.times, schedule
        self.offloads: dict[tuple[int, int], CopyAmounts] = {}
        for (stage, microbatch), mode in ops.modes.items():
            offload = restated_copies(problem, Op(stage, "F", microbatch, mode))
            if offload is not None:
                self.offloads[stage, microbatch] = offload
        self.times: dict[Copy, tuple[int, int]] = {}

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong with the copies, except for memory."""
        copies = self.schedule.copies
        for device, row in enumerate(copies):
            for timed in row:
                for rule, text in self._complaints(device, timed):
                    yield Violation(rule, text, device, timed.start)
        yield from self._missing()
        for device, row in enumerate(copies):
            yield from self._channels(device, row)
        yield from self._waits()

    def _complaints(self, device: int, timed: TimedCopy) -> Iterator[Complaint]:
        copy, start, end = timed
        home = self.problem.device_name(device)
        if isinstance(copy, Unreadable):
            yield "text", f"{copy.text!r} on {home} is no copy; write <stage><O|L><microbatch>"
            return
        if start < 0:
            yield "time", f"{copy} starts at {start}, before time 0"
        if copy.stage < len(self.problem.stages):
            yield from elsewhere(self.problem, copy, device, "is copied")
        offload = self.offloads.get((copy.stage, copy.microbatch))
        if offload is None:
            of = f"stage {copy.stage} does not offload microbatch {copy.microbatch}"
            yield "mode", f"{copy} on {home}, but {of}"
            return
        wanted = offload.out if copy.kind == "O" else offload.back
        if end - start != wanted:
            yield "length", f"{copy} on {home} lasts {lasting(start, end)}, expected {wanted}"
        if copy in self.times:
            yield "doubled", f"{copy} appears twice, at {self.times[copy][0]} and at {start}"
            return
        self.times[copy] = (start, end)

    def _missing(self) -> Iterator[Violation]:
        for stage, microbatch in sorted(self.offloads):
            if Op(stage, "F", microbatch) not in self.ops:
                continue  # reported as missing itself
            device = self.problem.stages[stage].device
            for copy in (Copy(stage, "O", microbatch), Copy(stage, "L", microbatch)):
                if copy not in self.times:
                    where = self.problem.device_name(device)
                    yield Violation("missing", f"{copy} on {where} is missing", device)

    def _channels(self, device: int, row: tuple[TimedCopy, ...]) -> Iterator[Violation]:
        """Order of the list; one copy at a time on each channel, as ops on a device."""
        home = self.problem.device_name(device)
        yield from in_turn(device, row, f"among the copies of {home}")
        shared = self.problem.devices[device].copy_channels == 1
        for kinds in ("OL",) if shared else ("O", "L"):
            own = [t for t in row if isinstance(t.copy, Copy) and t.copy.kind in kinds]
            yield from one_at_a_time(device, own, f"on a channel of {home}")

    def waits(self) -> Iterator[tuple[Op | Copy, Op | Copy]]:
        """Yield ``(later, earlier)``: F, O, L and the backward of a microbatch in this order."""
        for stage, microbatch in self.offloads:
            out, back = Copy(stage, "O", microbatch), Copy(stage, "L", microbatch)
            forward = Op(stage, "F", microbatch)
            if out in self.times and forward in self.ops:
                yield out, forward
            if out in self.times and back in self.times:
                yield back, out
            for kind in ("B", "BW"):
                backward = Op(stage, kind, microbatch)
                if back in self.times and backward in self.ops:
                    yield backward, back

    def _waits(self) -> Iterator[Violation]:
        for later, earlier in self.waits():
            start = self._time(later)[0]
            end = self._time(earlier)[1]
            if start < end:
                text = f"{later} starts at {start}, but it waits for {earlier}, which ends at {end}"
                device = self.problem.stages[later.stage].device
                yield Violation("input", text, device, start)

    def _time(self, event: Op | Copy) -> tuple[int, int]:
        return self.times[event] if isinstance(event, Copy) else self.ops[event]

    def away(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield ``(stage, begin, end, amount)``: what is not held between O's end and L's start."""
        for (stage, microbatch), offload in self.offloads.items():
            out = self.times.get(Copy(stage, "O", microbatch))
            back = self.times.get(Copy(stage, "L", microbatch))
            if out is not None and back is not None:
                yield stage, out[1], back[0], offload.away


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
        for time, group in groupby(sorted([(0, 0), *changes[number]]), key=itemgetter(0)):
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
