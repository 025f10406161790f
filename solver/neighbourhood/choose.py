"""Which part of an order to free next: a window of time, on all devices or on some neighbours."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass, field

from pipesat.solver.neighbourhood.graph import Graph
from pipesat.solver.neighbourhood.window import Segments

_FIRST_SIZE = 80.0  # free items; CP-SAT settles such a window in a fraction of a second
_FIRST_SIZE_OF_HARDER = 40.0  # of pairs and modes
_LEAST_SIZE = 8.0
_GROW, _GROW_FAST, _SHRINK = 1.1, 1.3, 0.85
_QUICK, _VERY_QUICK = 0.4, 0.1  # of a window's limit


@dataclass
class WindowKind:
    """Windows on so many neighbouring devices (0: all), with a size that adapts itself.

    ``size`` is the number of free items aimed at: it grows while windows are settled quickly and
    shrinks when they are not.
    """

    devices: int
    weight: float
    size: float = _FIRST_SIZE

    def learn(self, *, settled: bool, share: float, most: int) -> None:
        """Adapt the size after a window that took this share of its limit."""
        if not settled:
            self.size = max(_LEAST_SIZE, self.size * _SHRINK)
        elif share < _QUICK:
            self.size = min(self.size * (_GROW_FAST if share < _VERY_QUICK else _GROW), most)


@dataclass
class Chooser:
    """Draws windows at random."""

    rng: random.Random
    kinds: list[WindowKind] = field(default_factory=list)

    def draw(self, graph: Graph) -> tuple[WindowKind, Segments]:
        """Return a kind and, per device, the range of positions to free."""
        (kind,) = self.rng.choices(self.kinds, [kind.weight for kind in self.kinds])
        devices = self._devices(graph, kind)
        items = sum(len(graph.rows[d]) for d in devices)
        begin = min(graph.start[graph.rows[d][0]] for d in devices)
        end = max(graph.end(graph.rows[d][-1]) for d in devices)
        width = max(1, int((end - begin) * min(1.0, kind.size / items)))
        low = self.rng.randint(begin - width // 2, max(begin, end - width // 2))
        if width >= end - begin:
            low = begin
        segments: Segments = {}
        for device in devices:
            row = graph.rows[device]
            first = bisect_left(row, low, key=graph.start.__getitem__)
            last = bisect_left(row, low + width + 1, key=graph.start.__getitem__)
            if first < last:
                segments[device] = (first, last)
        return kind, segments

    def _devices(self, graph: Graph, kind: WindowKind) -> list[int]:
        busy = [d for d, row in enumerate(graph.rows) if row]
        if not kind.devices or kind.devices >= len(busy):
            return busy
        first = self.rng.randint(0, len(busy) - kind.devices)
        return busy[first : first + kind.devices]


def kinds_for(devices: int, *, pairs: bool = False, modes: bool = False) -> list[WindowKind]:
    """All devices most of the time, groups of neighbours now and then.

    Where ops may pair, windows are smaller at first, and as often on groups as on all devices:
    of as many ops, those of few devices see more of the pairs that a device may form. With memory
    modes also on single devices, where more microbatches have all of their backward in the window.
    """
    harder = pairs or modes
    size, share = (_FIRST_SIZE_OF_HARDER, 1.0) if harder else (_FIRST_SIZE, 0.15)
    kinds = [WindowKind(0, 1.0, size)]
    groups = (1, 2, 4) if modes else (2, 4)
    kinds += [WindowKind(count, share, size) for count in groups if count < devices]
    return kinds
