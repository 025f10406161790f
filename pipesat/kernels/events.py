"""Events of devices in a heap: the earliest first, of those at one instant the lowest device's.

A heap is an array of times and one of devices, of which the first ``count`` are in use.
"""

from __future__ import annotations

from pipesat.kernels.arrays import Ints
from pipesat.kernels.compiled import compiled


@compiled
def pushed(times: Ints, devices: Ints, count: int, time: int, device: int) -> int:
    """Add an event, and return how many there are then."""
    at = count
    while at > 0:
        above = (at - 1) >> 1
        if times[above] < time or (times[above] == time and devices[above] <= device):
            break
        times[at], devices[at] = times[above], devices[above]
        at = above
    times[at], devices[at] = time, device
    return count + 1


@compiled
def popped(times: Ints, devices: Ints, count: int) -> int:
    """Remove the first event, and return how many there are then."""
    count -= 1
    time, device = times[count], devices[count]
    at, below = 0, 1
    while below < count:
        other = below + 1
        if other < count and (
            times[other] < times[below]
            or (times[other] == times[below] and devices[other] < devices[below])
        ):
            below = other
        if time < times[below] or (time == times[below] and device <= devices[below]):
            break
        times[at], devices[at] = times[below], devices[below]
        at, below = below, 2 * below + 1
    times[at], devices[at] = time, device
    return count
