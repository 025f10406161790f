"""Proofs with memory modes: one device alone, all of its modes, copies and memory in one model.

The other devices count with the least time that a microbatch needs there (docs/search.md). The
model is asked whether a schedule of at most some length exists; "no" is a bound.
"""

from __future__ import annotations

import math

from ortools.sat.python import cp_model

from pipesat.bounds.devices import terms_of
from pipesat.core.claims import Bound
from pipesat.core.least import least_problem
from pipesat.core.problem import Problem
from pipesat.core.rules import round_trip
from pipesat.solver.model.times import LARGEST
from pipesat.solver.modes.cell_rules import (
    PARTS,
    add_device,
    add_order,
    add_order_of_a_way,
    new_cell,
)
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import FOUND, PROOFS, Runner

SOURCE = "proofs with modes"
_LIMIT, _LONGER, _LONGEST = 4.0, 2.0, 60.0  # seconds per question
_SHARE, _MORE, _LESS, _LEAST_SHARE = 0.25, 1.5, 0.5, 0.02  # of the gap that is asked for at once


def proofs_apply(problem: Problem, incumbent: Incumbent) -> bool:
    """Whether the model says something: a chain of alike microbatches that choose their modes."""
    schedule = incumbent.schedule
    return (
        problem.one_stage_per_device
        and problem.has_modes
        and not problem.has_lists
        and problem.mode_choice == "microbatch"
        and problem.overlap is None
        and schedule is not None
        and schedule.makespan <= LARGEST
    )


class _Question:
    """How far one device has been asked."""

    def __init__(self, problem: Problem, device: int) -> None:
        self.device = device
        self.name = problem.device_name(device)
        self.share, self.limit = _SHARE, _LIMIT
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
        ]
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
        self.open.append(question)
        most = min(value, question.possible or value) - 1
        target = min(most, bound + int(question.share * (value - bound)))
        objective = self.incumbent.objective
        model = DeviceAlone(self.problem, question.device, target, absolute=objective == "makespan")
        self.asked += 1
        solver, status = self.runner.solve(
            model.cp, limit=question.limit, seed=self.seed + self.asked, strong=True, linear=False
        )
        if status == cp_model.INFEASIBLE:
            self.refuted += 1
            source = f"CP-SAT on {question.name} alone, with modes"
            self.incumbent.raise_bound(Bound(target + 1, source), PROOFS)
            question.share = min(1.0, question.share * _MORE)
        elif status in FOUND:
            question.possible = solver.value(model.end)
            question.share *= _LESS
        else:
            question.share = max(_LEAST_SHARE, question.share * _LESS)
            question.limit = min(_LONGEST, question.limit * _LONGER)
        return True


class DeviceAlone:
    """Whether a device with one stage can be done by ``most``; ``end`` is when, in a solution.

    Times are from the origin (``absolute``), or from the device's first op at the earliest.
    Microbatches are numbered as their F's come, and those of a way come in one order in all parts.
    """

    def __init__(self, problem: Problem, device: int, most: int, *, absolute: bool) -> None:
        self.problem, self.device, self.most = problem, device, most
        (self.stage,) = problem.stages_on[device]
        least = least_problem(problem)
        terms = terms_of(problem, [least], device)
        self.cp = cp_model.CpModel()
        self.begin = terms.start * absolute
        self.end = self.cp.new_int_var(0, most, "")
        self.cells = [
            new_cell(self.cp, problem, self.stage, m, self.begin, most)
            for m in range(problem.microbatches[self.stage])
        ]
        away = round_trip(least, self.stage)
        for cell in self.cells:
            self.cp.add(cell.start["B"] >= cell.end("F") + away)
            self.cp.add(self.end >= cell.end("W"))
            self.cp.add(self.end >= cell.end("B") + terms.way_home * absolute)
        add_order(self.cp, self.cells, "F")
        add_order_of_a_way(self.cp, self.cells, PARTS[1:])
        add_device(self.cp, problem, device, self.cells, most)


def least_end(problem: Problem, device: int, most: int, *, absolute: bool) -> int | None:
    """Solve a device's model to its optimum, ``most`` at most; ``None`` if there is none."""
    model = DeviceAlone(problem, device, most, absolute=absolute)
    model.cp.minimize(model.end)
    solver, status = Runner(Clock(math.inf)).solve(
        model.cp, limit=math.inf, seed=0, strong=True, linear=False
    )
    return solver.value(model.end) if status == cp_model.OPTIMAL else None
