"""Proofs with memory modes: one device alone, all of its modes, copies and memory in one model.

The other devices count with the least time that a microbatch needs there (proofs/search.md). The
model is asked whether a schedule of at most some length exists; "no" is a bound.
"""

from __future__ import annotations

import math

from ortools.sat.python import cp_model

from pipesat.bounds.paired import least_times_of_each_class
from pipesat.core.claims import Bound
from pipesat.core.problem import Problem
from pipesat.solver.model.left_out import lag_before, tail_after
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.times import LARGEST
from pipesat.solver.modes.over_time import PARTS, OverTime
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import FOUND, PROOFS, Runner, Share

SOURCE = "proofs with modes"
_LIMIT = 2.0  # seconds per question at first: rather a smaller one of every device
_MOST_PAIRED = 12  # (stage, microbatch)s of a device whose ops may pair: beyond, hardly ever solved


def proofs_apply(problem: Problem, incumbent: Incumbent) -> bool:
    """Whether the model says something, and CP-SAT can be relied on for such times."""
    schedule = incumbent.schedule
    return problem.has_modes and schedule is not None and schedule.makespan <= LARGEST


class _Question:
    """How far one device has been asked."""

    def __init__(self, problem: Problem, device: int) -> None:
        self.device = device
        self.name = problem.device_name(device)
        self.possible: int | None = None  # a length that this device alone can keep to


class DevicesAlone:
    """Raises an incumbent's bound by questions about one device after the other."""

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, runner: Runner, seed: int
    ) -> None:
        self.problem, self.incumbent, self.runner, self.seed = problem, incumbent, runner, seed
        self.open = [
            _Question(problem, device)
            for device, stages in enumerate(problem.stages_on)
            if stages and problem.devices[device].room is not None
            if sum(problem.microbatches[s] for s in stages) <= _MOST_PAIRED or not gains(problem)
        ]
        self.share = Share(limit=_LIMIT)
        self.asked = self.refuted = 0

    @property
    def report(self) -> str:
        """What it did, in a few words."""
        return f"{SOURCE}: {self.asked} questions, {self.refuted} answered no"

    def step(self) -> bool:
        """Ask one question; return whether there will be another."""
        bound, value = self.incumbent.bound.value, self.incumbent.value
        if value is None or not self.incumbent.trusts(PROOFS):
            return False
        self.open = [one for one in self.open if one.possible is None or one.possible > bound]
        if not self.open or bound >= value:
            return False
        question = self.open.pop(0)
        target = self.share.target(bound, min(question.possible or value, value))
        objective = self.incumbent.objective
        model = DeviceAlone(self.problem, question.device, target, absolute=objective == "makespan")
        self.asked += 1
        solver, status = self.runner.solve(
            model.cp,
            limit=self.share.limit,
            seed=self.seed + self.asked,
            strong=True,
            linear=False,
        )
        if status == cp_model.INFEASIBLE:
            self.refuted += 1
            source = f"CP-SAT on {question.name} alone, with modes"
            self.incumbent.raise_bound(Bound(target + 1, source), PROOFS)
            self.share.refuted()
            self.open.insert(0, question)  # it may prove the next share as well
            return True
        if status in FOUND:
            question.possible = solver.value(model.end)
        else:
            self.share.unanswered()
        self.open.append(question)
        return True


class DeviceAlone(OverTime):
    """Whether a device can be done by ``most``; ``end`` is when, in a solution.

    Times are from the origin (``absolute``), or from the device's first op at the earliest.
    """

    def __init__(self, problem: Problem, device: int, most: int, *, absolute: bool) -> None:
        stages = problem.stages_on[device]
        super().__init__(problem, stages, most)
        self.device = device
        self.end = self.cp.new_int_var(0, most, "")
        self.heads: list[int] = []
        self.least = least_times_of_each_class(problem)
        for stage in stages:
            self._add_lags(stage, frozenset(stages), absolute=absolute)
        self._add_numbers()
        self.add_device(device)
        if self.choices.all:
            self.add_load(device, min(self.heads) if absolute else 0, self.end)

    def _add_numbers(self) -> None:
        """Number alike microbatches by the first F; those in equal ways keep to it in all parts."""
        for chunks in self.problem.chunks_on[self.device].values():
            for alike in self.alike(chunks[0]):
                self.add_order(self.row(chunks[0], alike), "F")
            self.add_order_of_a_way(chunks, PARTS)

    def _add_lags(self, stage: int, kept: frozenset[int], *, absolute: bool) -> None:
        """Count what lies between the device's ops of a microbatch, and before and after them."""
        for cell in self.row(stage):
            least = self.least[self.problem.class_of(stage, cell.microbatch)]
            for part in ("F", "B"):
                source, phase, delay = lag_before(least, kept, stage, part)
                if source is not None:
                    before = self.cells[source, cell.microbatch].tasks[phase].end
                    self.cp.add(cell.tasks[part].start >= before + delay)
                elif absolute:
                    self.heads.append(delay)
                    self.cp.add(cell.tasks[part].start >= delay)
            if absolute:
                tail = tail_after(least, kept, stage)
                self.cp.add(self.end >= cell.tasks["B"].end + tail)
            self.add_end(cell, self.end)


def least_end(problem: Problem, device: int, most: int, *, absolute: bool) -> int | None:
    """Solve a device's model to its optimum, ``most`` at most; ``None`` if there is none."""
    model = DeviceAlone(problem, device, most, absolute=absolute)
    model.cp.minimize(model.end)
    solver, status = Runner(Clock(math.inf)).solve(
        model.cp, limit=math.inf, seed=0, strong=True, linear=False
    )
    return solver.value(model.end) if status == cp_model.OPTIMAL else None
