"""What is known of when the k-th op of each kind of a device starts and ends."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import chain, product
from math import prod
from typing import Final

import numpy as np

from pipesat.core.arrays import Ints, ints
from pipesat.kernels.arrays import NONE, UNLIMITED
from pipesat.kernels.compiled import ready
from pipesat.kernels.device_states import NEVER, followers, table_of
from pipesat.problem.ops import Phase
from pipesat.problem.problem import Problem
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.model.left_out import lags_before, tail_after
from pipesat.solver.model.variables import Variables
from pipesat.solver.proof.device_runs import B, F, all_legs, pairs_of, rows_of
from pipesat.solver.proof.following import MixedRows, RankWait

_MOST, _MOST_MODES = 64, 32  # microbatches of a route; ways to choose modes that are told apart
_WIDEST = 6  # windows that are halved, in ops
_LARGEST = 1 << 50  # amount of memory
PHASES: Final[tuple[tuple[int, Phase], ...]] = (F, "F"), (B, "B")


def ranks_apply(problem: Problem) -> bool:
    """Whether its routes are chains of alike microbatches, and no op has length 0."""
    if not problem.chains_only or problem.has_lists or max(problem.microbatches) > _MOST:
        return False
    rows = [[rows_of(problem, stage) for stage in own] for own in problem.stages_on]
    legs = [all_legs(chain.from_iterable(own)) for own in rows]
    if not all(leg.time and leg.held <= _LARGEST for own in legs for leg in own):
        return False
    pairs = chain.from_iterable(pairs_of(problem, own) for own in legs)
    return not any(a and b and a.event[:2] == b.event[:2] for a, b in pairs)


class DeviceStates:
    """A device, and what is known of it in schedules of at most ``length``.

    By direction, 0 from the beginning and 1 from the end, whose times are measured backwards:
    ``earliest`` starts by row, 3 for each of its ``stages`` in their order, and rank.
    """

    def __init__(self, problem: Problem, least: Problem, device: int) -> None:
        self.stages, self.length = problem.stages_on[device], NEVER
        self.counts = ints([problem.microbatches[stage] for stage in self.stages])
        self.earliest = np.zeros((2, 3 * len(self.stages) + 1, max(self.counts)), np.int64)
        self.ends = self.earliest.copy()
        queues = list[RankWait]()
        for n, stage in enumerate(self.stages):
            (head,) = lags_before(least, (stage,), stage, "F")
            (trip,) = lags_before(least, (stage,), stage, "B")
            self.earliest[0, 3 * n : 3 * n + 3] = head.delay
            self.earliest[1, 3 * n : 3 * n + 2] = tail_after(least, (stage,), stage)
            own = range(len(rows_of(problem, stage)))
            queues += [RankWait(n, F, n, B, trip.delay, variant) for variant in own]
            for kind, phase in PHASES:
                (lag,) = lags_before(least, self.stages, stage, phase)
                if lag.phase == phase and lag.stage is not None:
                    queues.append(RankWait(self.stages.index(lag.stage), kind, n, kind, lag.delay))
        rows = [rows_of(problem, stage) for stage in self.stages]
        legs = all_legs(chain.from_iterable(rows))
        pairs = pairs_of(problem, legs)
        self.longest = [0] * (3 * len(self.stages))
        for leg in legs:
            if leg.op and leg.kind in (F, B):
                row = 3 * self.stages.index(leg.op.stage) + leg.kind
                times = [time for (one, _), time in pairs.items() if one == leg.op]
                self.longest[row] = max(leg.time, *times, self.longest[row])
        apart = problem.mode_choice == "stage"
        choices = [[[row] for row in own] if apart else [own] for own in rows]
        if prod(len(own) for own in choices) > _MOST_MODES:
            choices = [[own] for own in rows]
        known = problem.devices[device].slack
        slack = UNLIMITED if known is None else known
        self.modes = [
            MixedRows(own, pairs, self.counts, slack, queues) for own in product(*choices)
        ]

    def follow(
        self, end: int, width: int, effort: Clock, runner: Runner
    ) -> tuple[Ints, bool] | None:
        """Return the least ends by row and rank, from one end, and whether no states were merged.

        ``None``: not known. Modes in which nothing is that short are left out from now on.
        """
        limits = self._limits(end)
        found = [
            (mode, mode.follow(end, limits, self.length, width, effort, runner))
            for mode in self.modes
        ]
        known = [(mode, one) for mode, one in found if one is not None]
        if len(known) < len(found):
            return None
        self.modes = [mode for mode, one in known if one[0].min() < NEVER]
        ends = [one for _, one in known if one[0].min() < NEVER]
        least = np.min([x for x, _ in ends], axis=0, initial=NEVER) if ends else limits[1]
        self.ends[end] = np.maximum(self.ends[end], least)
        return least, all(exact for _, exact in ends)

    def ready(self) -> bool:
        """Whether it may be followed at once, with all loops compiled."""
        followed = self.modes[0].begin(0, self._limits(0), self.length)
        tables = *self.modes[0].until[0], *self.modes[0].until[1]
        return all([ready(followers, *followed, 0, 1), ready(table_of, *tables)])

    def _limits(self, end: int) -> tuple[Ints, Ints]:
        latest = np.full(self.earliest[0].shape, NONE)
        for row in range(len(latest) - 1):
            m = self.counts[row // 3]
            latest[row, :m] = self.length - self.earliest[1 - end, row, :m][::-1]
        return self.earliest[end], latest

    def within(self, length: int) -> DeviceStates:
        """A device of which as much is known, in schedules of at most some length."""
        found = copy(self)
        found.length = length
        found.earliest, found.ends = self.earliest.copy(), self.ends.copy()
        found.modes = [copy(mode) for mode in self.modes]
        for mode in found.modes:
            mode.until = [*mode.until]
        return found

    def add_to(self, v: Variables) -> None:
        """Say in a model of schedules as short when the k-th op of each kind starts and ends."""
        unit = v.times.unit
        for row, (stage, phase) in enumerate(product(self.stages, v.tasks)):
            tasks = v.tasks[phase][stage]
            if any(task.present is not True for task in tasks):
                continue  # what is absent has a number, and no rank
            latest = self.length - self.ends[1, row, : len(tasks)][::-1]
            for task, end, start in zip(tasks, self.ends[0, row], latest, strict=False):
                v.cp.add(task.end >= -(-int(end) // unit))
                v.cp.add(task.start <= int(start) // unit)

    def windows(self, place: int) -> Iterator[tuple[int, int, int, int]]:
        """How long the windows are in which the k-th F's and backwards start; row and k."""
        for row, rank in product(range(len(self.longest)), range(max(self.counts))):
            if self.longest[row] and rank < self.counts[row // 3]:
                low, high = self._window(row, rank)
                if self.longest[row] // 32 < high - low < _WIDEST * self.longest[row]:
                    yield high - low, place, row, rank

    def halve(self, row: int, rank: int, upper: DeviceStates, lower: DeviceStates) -> None:
        """Let the k-th one of a row start in the upper or the lower half of its window."""
        middle = sum(self._window(row, rank)) // 2
        upper.earliest[0, row, rank] = middle + 1
        end, back = self.length - middle - self.longest[row], self.counts[row // 3] - 1 - rank
        lower.earliest[1, row, back] = max(end, lower.earliest[1, row, back])

    def _window(self, row: int, rank: int) -> tuple[int, int]:
        back = self.counts[row // 3] - 1 - rank
        last = self.length - self.earliest[1, row, back] - self.longest[row]
        return int(self.earliest[0, row, rank]), int(last)
