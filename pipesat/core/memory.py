"""Memory over time of each device, from a schedule's times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pipesat.core.arguments import public
from pipesat.core.ops import members
from pipesat.core.rules import copied_amount, memory_change

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule

_INT64 = 1 << 62  # times from here on are held as Python integers


class Profile(NamedTuple):
    """A step function: from ``times[i]`` on, ``held[i]`` memory units are in use."""

    times: NDArray[np.int64]
    held: NDArray[np.int64]


@public
def memory_profiles(problem: Problem, schedule: Schedule) -> list[Profile]:
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
        profiles.append(Profile(times, np.cumsum(steps)))
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
