"""Makespan and span of one network under many samples of its durations at once.

One pass over the nodes, with an array of one number per sample (:func:`makespans`) or per sample
and device (:func:`spans`). The span is the minimum span of each sample: with ``L[d, e]`` the
longest path from the start of device d's first item to the end of device e's last one, it is the
largest mean of a cycle of L (:mod:`pipesat.core.timing` has the proof), by Karp (Discrete
Mathematics 23, 1978, theorem 1). It is not rounded up, since sampled times are no integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pipesat.core.arrays import Floats
    from pipesat.core.schedule import Objective
    from pipesat.risk.links import Network

    Durations: TypeAlias = Iterable[Floats | float]


def makespans(network: Network, durations: Durations, samples: int) -> Floats:
    """Largest end of any node, per sample.

    ``durations`` has those of every node in turn: one per sample, or one for all.
    """
    import numpy as np

    result = np.zeros(samples)
    for _, end, last in _ends(network, durations, lambda _: np.zeros(samples)):
        if last:
            np.maximum(result, end, out=result)
    return result


def spans(network: Network, durations: Durations, samples: int) -> Floats:
    """Minimum span of every sample; 0 without items."""
    paths = _longest_paths(network, durations, samples)
    return _largest_cycle_mean(paths) if paths.shape[1] else paths.sum(axis=(1, 2))


def value_without_noise(network: Network, objective: Objective) -> int:
    """Makespan or minimum span with the problem's own costs, in whole time units.

    Spans from 2^53 time units on are those of floating point.
    """
    from pipesat.risk.links import ends_of

    if objective == "makespan":
        return max(ends_of(network), default=0)
    return math.ceil(float(spans(network, map(float, network.duration), 1)[0]))


def _ends(
    network: Network, durations: Durations, begin: Callable[[int], Floats]
) -> Iterator[tuple[int, Floats, bool]]:
    """Yield every node's number, its ends, and whether no later node waits for it.

    ``begin(number)`` are the earliest starts of a node that waits for nothing. Ends are kept only
    as long as some later node waits for them.
    """
    import numpy as np

    kept: dict[int, Floats] = {}
    uses = _uses(network)
    for number, (waits, length) in enumerate(zip(network.waits, durations, strict=True)):
        end = begin(number)
        for source, delay in waits:
            earlier = kept[source]
            np.maximum(end, earlier + delay if delay else earlier, out=end)
            uses[source] -= 1
            if not uses[source]:
                del kept[source]
        end += length
        if uses[number]:
            kept[number] = end
        yield number, end, not uses[number]


def _longest_paths(network: Network, durations: Durations, samples: int) -> Floats:
    """``L[sample, d, e]`` among the devices that have items; -inf where no path leads."""
    import numpy as np

    used = sorted({device for device in network.device if device >= 0})
    index = {device: i for i, device in enumerate(used)}
    last: dict[int, Floats] = {}

    def begin(number: int) -> Floats:
        device = network.device[number]
        start = np.full((samples, len(used)), -np.inf)
        if device >= 0 and device not in last:
            start[:, index[device]] = 0
        return start

    columns = (x if isinstance(x, float) else x[:, None] for x in durations)
    for number, end, _ in _ends(network, columns, begin):
        if (device := network.device[number]) >= 0:
            last[device] = end
    paths = np.empty((samples, len(used), len(used)))
    for device, end in last.items():
        paths[:, :, index[device]] = end
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


def _uses(network: Network) -> list[int]:
    """How many nodes wait for each node."""
    uses = [0] * len(network.node)
    for waits in network.waits:
        for source, _ in waits:
            uses[source] += 1
    return uses
