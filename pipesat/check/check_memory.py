"""Part of the checker: the copies of offloaded microbatches, and what devices hold over time.

From given times alone, as the rest of the checker: nothing here comes from the placing of copies.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesat.check.check_ops import (
    BACKWARDS,
    CheckedOps,
    Complaint,
    CopyAmounts,
    OpColumn,
    elsewhere,
    in_turn,
    integers,
    lasting,
    one_at_a_time,
    restated_copies,
)
from pipesat.core.arrays import Ints
from pipesat.core.errors import Violation
from pipesat.problem.ops import Copy, Op, Unreadable
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule, TimedCopy


class Copies:
    """The copies of a schedule, and which (stage, microbatch) should have them.

    ``times`` has the start and end of each copy that belongs to an offloaded microbatch, the first
    time it appears.
    """

    def __init__(self, problem: Problem, ops: CheckedOps, schedule: Schedule) -> None:
        self.problem, self.ops, self.schedule = problem, ops, schedule
        self.offloads: dict[tuple[int, int], CopyAmounts] = {}
        for cell in np.flatnonzero(ops.modes).tolist():
            op = ops.op(cell)
            offload = restated_copies(problem, op)
            if offload is not None:
                self.offloads[op.stage, op.microbatch] = offload
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
        stages = self.problem.stages
        if copy.stage < len(stages) and stages[copy.stage].device != device:
            yield "device", elsewhere(self.problem, copy, device, "is copied")
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
            if not self.ops.has(Op(stage, "F", microbatch)):
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
            if out in self.times and self.ops.has(forward):
                yield out, forward
            if out in self.times and back in self.times:
                yield back, out
            for kind in ("B", "BW"):
                backward = Op(stage, kind, microbatch)
                if back in self.times and self.ops.has(backward):
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
        return self.times[event] if isinstance(event, Copy) else self.ops.time(event)

    def away(self) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        """As :func:`_held`: what is not held between O's end and L's start."""
        rows = []
        for (stage, microbatch), offload in self.offloads.items():
            out = self.times.get(Copy(stage, "O", microbatch))
            back = self.times.get(Copy(stage, "L", microbatch))
            if out is not None and back is not None:
                rows.append((stage, out[1], back[0], -offload.away))
        if rows:
            stages, begins, ends, amounts = map(integers, zip(*rows, strict=True))
            yield stages, begins, ends, amounts


def memory_violations(problem: Problem, ops: CheckedOps, copies: Copies) -> Iterator[Violation]:
    """Static memory plus all that is held never exceeds a device's capacity."""
    if all(device.memory is None for device in problem.devices):
        return
    homes = np.array([stage.device for stage in problem.stages])
    static = integers([device.static for device in problem.devices])
    everyone = np.arange(len(problem.devices))
    where, when, what = [everyone], [np.zeros_like(everyone)], [static]
    for stage, begin, end, amount in [*_held(ops), *copies.away()]:
        lasts = begin < end
        for time, change in ((begin, amount), (end, -amount)):
            where.append(homes[stage][lasts])
            when.append(time[lasts])
            what.append(change[lasts])
    devices, times, changes = map(np.concatenate, (where, when, what))
    order = np.lexsort((times, devices))
    firsts = np.searchsorted(devices[order], everyone)
    for number, own in enumerate(np.split(order, firsts[1:])):
        capacity = problem.devices[number].memory
        if capacity is not None:
            yield from _too_much(problem, number, capacity, times[own], np.cumsum(changes[own]))


def _too_much(
    problem: Problem, device: int, capacity: int, times: Ints, held: Ints
) -> Iterator[Violation]:
    """Yield a device's stretches above its capacity; of changes at one time the last one counts."""
    last = np.flatnonzero(np.append(times[1:] != times[:-1], [True]))
    if not (held[last] > capacity).any():
        return
    worst, since = 0, 0
    for time, now in zip(times[last].tolist(), held[last].tolist(), strict=True):
        if now > capacity:
            since = since if worst else time
            worst = max(worst, now)
        elif worst:
            yield _over(problem, device, since, time, worst)
            worst = 0
    if worst:
        yield _over(problem, device, since, None, worst)


def _held(ops: CheckedOps) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Half-open intervals ``(stage, begin, end, amount)`` in which memory is held, as arrays."""
    f, b, w, bw = ops.number
    columns = (OpColumn.held_after_F, OpColumn.held_after_B, OpColumn.held_in_backward)
    after_f, after_b, during = map(ops.of_cells, columns)
    backward = np.where(f < 0, -1, np.where(b >= 0, b, bw))
    alone = ops.of_cells(OpColumn.backward) == BACKWARDS.index("none")
    last_of_held = np.where(alone, f, backward)
    most = np.where(b >= 0, np.maximum(after_b, during), during)
    for begins, first, last, amounts in (
        (ops.start, f, last_of_held, after_f),
        (ops.start, np.where(alone, -1, backward), backward, most - after_f),
        (ops.end, np.where(alone, -1, b), w, after_b),
    ):
        cells = np.flatnonzero((first >= 0) & (last >= 0) & (amounts > 0))
        yield ops.stage_of[cells], begins[first[cells]], ops.end[last[cells]], amounts[cells]


def _over(problem: Problem, device: int, since: int, until: int | None, peak: int) -> Violation:
    capacity = problem.devices[device].memory or 0
    when = f"from {since} to {until}" if until is not None else f"from {since} on"
    units = {"times": problem.time_unit, "memory": problem.memory_unit}
    told = ", ".join(f"{what} in {unit}" for what, unit in units.items() if unit)
    text = (
        f"{problem.device_name(device)} holds up to {peak} {when}, "
        f"{peak - capacity} over its capacity of {capacity}{told and f' ({told})'}"
    )
    return Violation("memory", text, device, since)
