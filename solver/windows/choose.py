"""Windows: which part of a schedule to free next, all devices or neighbours, and how it went."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pipesat.solver.windows.graph import Graph
from pipesat.solver.windows.window import Segments

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


class Drawn(NamedTuple):
    """A window of time ``[begin, end)`` on some devices."""

    kind: WindowKind
    devices: list[int]
    begin: int
    end: int


@dataclass
class Chooser:
    """Draws windows at random."""

    rng: random.Random
    kinds: list[WindowKind] = field(default_factory=list)

    def draw(self, items: Sequence[int], extent: Callable[[int], tuple[int, int]]) -> Drawn:
        """Draw a window.

        Parameters
        ----------
        items
            How many each device has.
        extent
            When the first of a device's items starts, and its last one ends.
        """
        (kind,) = self.rng.choices(self.kinds, [kind.weight for kind in self.kinds])
        devices = self._devices([d for d, count in enumerate(items) if count], kind)
        begins, ends = zip(*map(extent, devices), strict=True)
        begin, end = min(begins), max(ends)
        total = sum(items[device] for device in devices)
        width = max(1, int((end - begin) * min(1.0, kind.size / total)))
        low = self.rng.randint(begin - width // 2, max(begin, end - width // 2))
        if width >= end - begin:
            low = begin
        return Drawn(kind, devices, max(begin, low), low + width + 1)

    def _devices(self, busy: list[int], kind: WindowKind) -> list[int]:
        if not kind.devices or kind.devices >= len(busy):
            return busy
        first = self.rng.randint(0, len(busy) - kind.devices)
        return busy[first : first + kind.devices]


def draw_segments(chooser: Chooser, graph: Graph) -> tuple[WindowKind, Segments]:
    """Return a kind and, per device and its channels, the range of positions to free."""
    start, devices = graph.start, len(graph.release)
    own = graph.rows[:devices]
    drawn = chooser.draw(list(map(len, own)), lambda d: (start[own[d][0]], graph.end(own[d][-1])))
    segments: Segments = {}

    def add(row: int, *, empty: bool) -> None:
        first, last = (
            bisect_left(graph.rows[row], time, key=start.__getitem__)
            for time in (drawn.begin, drawn.end)
        )
        if first < last or empty:
            segments[row] = (first, last)

    for device in drawn.devices:
        add(device, empty=False)
    for device in [*segments] if len(graph.rows) > devices else []:
        for row in (devices + 2 * device, devices + 2 * device + 1):
            add(row, empty=True)
    return drawn.kind, segments


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
