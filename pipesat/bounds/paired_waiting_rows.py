"""Rows for what microbatches wait, in the programme that has the counts of all devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from pipesat.bounds.counting import Programme, add_to, tangent_points
from pipesat.bounds.feasibility import certain_activations
from pipesat.bounds.paired_device import Count
from pipesat.bounds.paired_waiting import Waiting, Waits
from pipesat.core.ops import Kind
from pipesat.core.problem import Problem

_Row: TypeAlias = dict[int, int]


@dataclass(frozen=True)
class WaitingRows:
    """``counts``: per device, its items by phase. ``longest``: an end that some schedule reaches.

    All waits are memory times time.
    """

    programme: Programme
    waiting: Waiting
    counts: Mapping[int, Count]
    longest: int

    def while_filling(self, total: int, device: int) -> None:
        """Let a variable be at least what waits around the forwards before the first backward."""
        row, count = {total: 1}, self.counts[device]
        for stage, most in self._stages(device):
            found = self.waiting.while_filling(stage, most)
            row[self._waits(stage, most, count.of(stage, count.before, "F"), found)] = -1
        self.programme.at_least(row, 0)

    def while_emptying(self, total: int, device: int, beyond: int) -> None:
        """Let a variable be at least what waits around the backwards after the last forward.

        Until the end that counts, and for ``beyond`` after it. From B on, all that its microbatch
        still holds counts as waiting, but for the time of W, which the area has.
        """
        row, count = {total: 1}, self.counts[device]
        for stage, most in self._stages(device):
            data, number = self.problem.stages[stage], count.of(stage, count.after, "B", "BW")
            found = self.waiting.while_emptying(stage, most)
            row[self._waits(stage, most, number, found)] = -1
            add_to(row, count.of(stage, count.after, "B"), data.held_after_B * data.W)
            add_to(row, number, -self._held[stage] * beyond)
        self.programme.at_least(row, 0)

    def of_weights(self, row: _Row, device: int, rest: int) -> None:
        """Add what weight gradients wait whose B ran before the last forward had ended.

        From the end of B to that of the last forward, and for ``rest`` but their own time.
        """
        count, room = self.counts[device], self.problem.devices[device].room or 0
        held = {s: self.problem.stages[s].held_after_B for s, _ in self._stages(device)}
        stages = [s for s, w in held.items() if w and self.problem.stages[s].may_split]
        if not stages:
            return
        together: _Row = {}
        for stage in stages:
            late: _Row = {}
            add_to(late, count.of(stage, count.after, "W"), 1)
            add_to(late, count.of(stage, count.pending, "W"), 1)
            add_to(late, count.of(stage, count.after, "B"), -1)
            add_to(row, late, held[stage] * max(0, rest - self.problem.stages[stage].W))
            add_to(together, late, 1)
        apart = min(
            time
            for item, time in count.home.items.items()
            if any(kind == "B" and group.stage in stages for group, kind in item)
        )
        two, most = min(held[s] for s in stages) * apart, room // min(held[s] for s in stages)
        waits = self.programme.variable(0, two * max(1, most) ** 2)
        for n in tangent_points(most):
            # k (k - 1) / 2 >= n k - n (n + 1) / 2 for all whole numbers
            line = {waits: 1}
            add_to(line, together, -two * n)
            self.programme.at_least(line, -two * n * (n + 1) // 2)
        add_to(row, {waits: 1}, 1)

    def _waits(self, stage: int, most: int, number: Mapping[int, int], found: Waits) -> int:
        """Return a variable: what so many microbatches of a stage wait."""
        held = self._held[stage]
        waits = self.programme.variable(0, 2 * held * most * self.longest)
        for slope, constant in found.tangents(tangent_points(most)):
            line = {waits: 1}
            add_to(line, number, -held * slope)
            for other, kind, longer in found.longer:
                add_to(line, self._alone.get((other, kind), {}), held * longer)
            self.programme.at_least(line, held * constant)
        return waits

    @property
    def problem(self) -> Problem:
        """What is bounded."""
        return self.waiting.problem

    def _stages(self, device: int) -> list[tuple[int, int]]:
        """A device's stages, and how many microbatches of each it can hold."""
        room, found = self.problem.devices[device].room or 0, []
        for stage in self.problem.stages_on[device]:
            held = self._held[stage]
            most = min(self.problem.microbatches[stage], room // held) if held else 0
            if most:
                found.append((stage, most))
        return found

    @cached_property
    def _held(self) -> list[int]:
        return certain_activations(self.problem)

    @cached_property
    def _alone(self) -> dict[tuple[int, Kind], _Row]:
        """Per stage and kind, how many of its ops run alone."""
        found: dict[tuple[int, Kind], _Row] = {}
        for count in self.counts.values():
            for phase in count.phases:
                for item, variable in phase.items():
                    if len(item) == 1:
                        ((group, kind),) = item
                        found.setdefault((group.stage, kind), {})[variable] = 1
        return found
