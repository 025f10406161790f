"""Windows: which part of a schedule to free next, all devices or neighbours, and how it went."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ortools.sat.python import cp_model
from ortools.sat.python.cp_model import CpSolver

from pipesat.core.problem import Problem
from pipesat.solver.neighbourhood.graph import Graph
from pipesat.solver.neighbourhood.window import Segments
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import FOUND, Runner

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
    """Return a kind and, per device, the range of positions to free."""
    rows, start = graph.rows, graph.start
    drawn = chooser.draw(
        list(map(len, rows)), lambda d: (start[rows[d][0]], graph.end(rows[d][-1]))
    )
    segments: Segments = {}
    for device in drawn.devices:
        first, last = (
            bisect_left(rows[device], time, key=start.__getitem__)
            for time in (drawn.begin, drawn.end)
        )
        if first < last:
            segments[device] = (first, last)
    return drawn.kind, segments


class Windows:
    """Improves an incumbent window by window, with ``limit`` seconds for each."""

    source = "window search"

    def __init__(
        self,
        problem: Problem,
        incumbent: Incumbent,
        *,
        runner: Runner,
        seed: int,
        kinds: list[WindowKind],
        limit: float,
    ) -> None:
        self.problem, self.incumbent, self.runner = problem, incumbent, runner
        self.rng, self.limit = random.Random(seed), limit  # noqa: S311
        self.chooser = Chooser(self.rng, kinds)
        self.windows = self.improvements = 0

    @property
    def report(self) -> str:
        """What it did, in a few words."""
        return f"{self.source}: {self.windows} windows, {self.improvements} improvements"

    def solve(
        self, cp: cp_model.CpModel, kind: WindowKind, *, most: int, harder: bool, presolve: bool
    ) -> CpSolver | None:
        """Solve a window's model; return the solver if it has found something.

        ``most`` is how large a window may get, in items. ``harder`` ones have optional intervals.
        ``presolve`` pays where there are many pairs.
        """
        self.windows += 1
        seed, spent = self.rng.randrange(1 << 30), self.runner.spent
        limit = min(self.limit, self.incumbent.clock.left)
        solver, status = self.runner.solve(
            cp, limit=limit, seed=seed, strong=harder, linear=False, presolve=presolve
        )
        settled, share = status == cp_model.OPTIMAL, (self.runner.spent - spent) / self.limit
        kind.learn(settled=settled, share=share, most=most)
        return solver if status in FOUND else None


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
