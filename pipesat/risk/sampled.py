"""Makespan and span of one network under many samples of its durations at once.

One pass over the nodes, with an array of one number per sample (:func:`makespans`) or per sample
and device (:func:`spans`). The span is the minimum span of each sample: with ``L[d, e]`` the
longest path from the start of device d's first item to the end of device e's last one, it is the
largest mean of a cycle of L (:mod:`pipesat.core.timing` has the proof), by Karp (Discrete
Mathematics 23, 1978, theorem 1). It is not rounded up, since sampled times are no integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from pipesat.core.linear_order import LinearOrder, last_ends
from pipesat.core.timing import earliest_ends

if TYPE_CHECKING:
    from pipesat.core.arrays import Floats
    from pipesat.core.schedule import Objective

    Durations: TypeAlias = Iterable[Floats | float]


def makespans(network: LinearOrder, durations: Durations, samples: int) -> Floats:
    """Largest end of any item, per sample.

    ``durations`` has those of every item in turn: one per sample, or one for all.
    """
    import numpy as np

    def begin(number: int) -> Floats | None:
        return None if network.waits[number] else np.zeros(samples)

    ends = last_ends(network.device, network.waits, durations, begin)
    values: Floats = np.maximum.reduce([np.zeros(samples), *ends.values()])
    return values


def spans(network: LinearOrder, durations: Durations, samples: int) -> Floats:
    """Minimum span of every sample; 0 without items."""
    paths = _longest_paths(network, durations, samples)
    return _largest_cycle_mean(paths) if paths.shape[1] else paths.sum(axis=(1, 2))


def value_without_noise(network: LinearOrder, objective: Objective) -> int:
    """Makespan or minimum span with the problem's own costs, in whole time units.

    Spans from 2^53 time units on are those of floating point.
    """
    if objective == "makespan":
        return max(earliest_ends(network, [0]), default=0)
    return math.ceil(float(spans(network, map(float, network.duration), 1)[0]))


def _longest_paths(network: LinearOrder, durations: Durations, samples: int) -> Floats:
    """``L[sample, d, e]`` among the devices that have items; -inf where no path leads."""
    import numpy as np

    used = sorted({device for device in network.device if device >= 0})
    index = {device: i for i, device in enumerate(used)}
    begun = set[int]()

    def begin(number: int) -> Floats | None:
        device = network.device[number]
        if device < 0 or device in begun:
            return None
        begun.add(device)
        start = np.full((samples, len(used)), -np.inf)
        start[:, index[device]] = 0
        return start

    columns = (x if isinstance(x, float) else x[:, None] for x in durations)
    last = last_ends(network.device, network.waits, columns, begin)
    paths = np.empty((samples, len(used), len(used)))
    for device in used:
        paths[:, :, index[device]] = last[device]
    return paths


def _largest_cycle_mean(paths: Floats) -> Floats:
    """Karp's ``max over v of min over k of (D[n, v] - D[k, v]) / (n - k)``, per sample.

    ``D[k, v]`` is the longest walk of k edges that ends in v, from anywhere. Every device's own
    first and last item are joined by a path, so walks of every length exist.
    """
    import numpy as np

    samples, count, _ = paths.shape
    walks = np.zeros((count + 1, samples, count))
    for k in range(count):
        walks[k + 1] = (walks[k][:, :, None] + paths).max(axis=1)
    edges = np.arange(count, 0, -1)[:, None, None]
    means: Floats = ((walks[count] - walks[:count]) / edges).min(axis=0).max(axis=1)
    return means
