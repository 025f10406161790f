"""The earliest timing of least span: when each device starts its first item.

Let ``L[d, e]`` be the longest path from the start of device d's first item to the
end of device e's last one. First starts ``x`` with span T exist if and only if
``x[e] >= x[d] + L[d, e] - T`` for all d, e, so the least T is the largest mean of a cycle of L,
rounded up (all times are integers); the least such x gives the earliest schedule of that span.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pipesat.core.graphs import circle
from pipesat.core.linear_order import last_ends

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pipesat.core.linear_order import LinearOrder

    Matrix = NDArray[np.int64]

_EXACT_IN_INT64 = 1 << 60  # sums of longer paths are added up as Python integers


def of_minimum_span(sequence: LinearOrder, devices: int) -> list[int]:
    """Earliest starts of the devices' first items among all timings of least span."""
    paths = _longest_paths(sequence, devices)
    target = max(0, *(int(paths[d, d]) for d in range(devices)))
    while True:
        first, cycle_mean = _potentials(paths, target)
        if cycle_mean is None:
            return [int(x) for x in first]
        target = cycle_mean


def _longest_paths(sequence: LinearOrder, devices: int) -> Matrix:
    """``L[d, e]``: start of d's first item to the end of e's last; hugely negative if no path."""
    import numpy as np

    longest = sum(sequence.duration) + sum(abs(d) for inputs in sequence.inputs for _, d in inputs)
    # no sum of paths through all devices, less a span each, is larger than this
    furthest = (devices + 2) * longest
    exact = furthest < _EXACT_IN_INT64
    dtype = np.int64 if exact else object
    unreachable = -(1 << 62) if exact else -4 * furthest

    def begin(number: int) -> Matrix | None:
        device = sequence.device[number]
        if sequence.before[number] >= 0:
            return None
        start: Matrix = np.full(devices, unreachable, dtype=dtype)
        if device < devices:
            start[device] = 0
        return start

    paths = np.full((devices, devices), unreachable, dtype=dtype)
    lasts = last_ends(
        sequence.device, sequence.waits, sequence.duration, begin, sequence.group_ending_with
    )
    for device, end in lasts.items():
        if device < devices:
            paths[:, device] = end
    return paths


def _potentials(paths: Matrix, target: int) -> tuple[Matrix, int | None]:
    """Least x >= 0 with ``x[e] >= x[d] + L[d, e] - target``, or the mean of a violating cycle.

    Bellman-Ford; the mean, rounded up, is a better lower bound on the span than ``target`` was.
    """
    import numpy as np

    count = len(paths)
    x = np.zeros(count, dtype=paths.dtype)
    parent = np.full(count, -1)
    for _ in range(count + 1):
        candidates = x[:, None] + paths - target
        best = candidates.argmax(axis=0)
        value = candidates[best, np.arange(count)]
        improved = value > x
        if not improved.any():
            return x, None
        x = np.where(improved, value, x)
        parent = np.where(improved, best, parent)
        if cycle := circle({e: [d] for e, d in enumerate(parent.tolist()) if d >= 0}):
            total = sum(int(paths[d, e]) for d, e in pairwise(cycle))
            return x, -(-total // (len(cycle) - 1))
    raise AssertionError("Bellman-Ford neither settled nor closed a cycle")
