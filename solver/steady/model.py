"""The cyclic CP-SAT model: repetends of a given period, the shortest one if wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

from pipesat.core.ops import PHASE_OF, Kind, Op
from pipesat.core.problem import Problem
from pipesat.solver.model.times import model_times
from pipesat.solver.steady.constraints import add_constraints
from pipesat.solver.steady.repetend import Repetend
from pipesat.solver.steady.variables import Cycle, Linear, PeriodOp, PeriodTask, add_variables


@dataclass(frozen=True)
class CyclicModel:
    """A cyclic model. ``length`` is the time from 0 to the end of the first period's last op."""

    variables: Cycle
    length: cp_model.IntVar

    @property
    def cp(self) -> cp_model.CpModel:
        """The CP-SAT model."""
        return self.variables.cp

    def repetend(self, value: Callable[[Linear], int]) -> Repetend:
        """Read the repetend out of a solution; ``value`` evaluates an expression."""
        v = self.variables
        times = {}
        for slot, task in v.tasks.items():
            split = v.split[slot.stage, slot.microbatch]
            is_split = split if isinstance(split, bool) else bool(value(split))
            kind: Kind = slot.phase
            if not is_split:
                if slot.phase == "W":
                    continue
                kind = "F" if slot.phase == "F" else "BW"
            times[Op(slot.stage, kind, slot.microbatch)] = value(task.time) * v.times.unit
        return Repetend(v.period * v.times.unit, v.microbatches, times)

    def shorten(self, repetend: Repetend) -> None:
        """Look for the shortest repetend now, starting from one of the same period."""
        self.cp.minimize(self.length)
        for device in range(len(self.variables.problem.devices)):
            self._hint(self._places(repetend, device))

    def keep(self, repetend: Repetend, free: Collection[int]) -> None:
        """Keep the cyclic order of a repetend on all devices but the free ones.

        The order of a device is the order of its ops within the period, and in which period each
        runs. The repetend may have another period.
        """
        for device in range(len(self.variables.problem.devices)):
            places = self._places(repetend, device)
            if device in free:
                self._hint(places)
                continue
            for (_, _, before), (_, _, after) in pairwise(places):
                self.cp.add(after.offset >= before.offset + before.length)
            for _, count, task in places:
                self.cp.add(task.count == count)

    def _places(self, repetend: Repetend, device: int) -> list[tuple[int, int, PeriodTask]]:
        """``(offset, count, task)`` of a device's ops in order, counted from the model's origin."""
        v = self.variables
        row = repetend.rows(v.problem)[device]
        if not row:
            return []
        origin = repetend.times[Op(v.problem.stages_on[device][0], "F", 0)]
        places = []
        for _, _, op in row:
            count, offset = divmod(repetend.times[op] - origin, repetend.period)
            task = v.tasks[PeriodOp(op.stage, PHASE_OF[op.kind], op.microbatch)]
            places.append((offset // v.times.unit, count, task))
        first = next(i for i, (*_, task) in enumerate(places) if task is self._origin(device))
        return places[first:] + places[:first]

    def _origin(self, device: int) -> PeriodTask:
        return self.variables.tasks[PeriodOp(self.variables.problem.stages_on[device][0], "F", 0)]

    def _hint(self, places: list[tuple[int, int, PeriodTask]]) -> None:
        for offset, count, task in places:
            self.cp.add_hint(task.offset, offset)
            if isinstance(task.count, cp_model.IntVar):
                self.cp.add_hint(task.count, count)


def build_cyclic_model(problem: Problem, period: int, counts: tuple[int, ...]) -> CyclicModel:
    """Model all repetends of a period (time units) with ``counts[r]`` microbatches of route r.

    The period is rounded up to a multiple of what all times have in common. Nothing is lost but
    overlapped pairs: see :mod:`pipesat.solver.steady.variables` for the limits of the variables.
    Times must be small enough for CP-SAT: the package's door rounds them.
    """
    cp = cp_model.CpModel()
    times = model_times(problem, 0)
    v = add_variables(cp, problem, times, max(1, -(-period // times.unit)), counts)
    add_constraints(v)
    length = cp.new_int_var(0, v.horizon * 2, "length")
    for slot in v.tasks:
        cp.add(v.tasks[slot].time >= 0)
        if slot.phase == "W":
            cp.add(length >= v.tasks[slot].end)
    return CyclicModel(v, length)
