"""The whole problem with memory modes in one CP-SAT model, as long as it is small enough.

*In one order*: of microbatches that are alike, every stage runs the F's and the backwards in the
order of the numbers; that no such schedule is better says nothing of others. *In any order*:
nothing is lost, so "no" is a bound (proofs/search.md). It is found many times faster in one order.
"""

from __future__ import annotations

import math
from typing import Literal as Literal_

from ortools.sat.python import cp_model

from pipesat.core.checker import check
from pipesat.core.claims import Bound
from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.timing import retime
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.times import LARGEST, latest_end
from pipesat.solver.modes.assign import Cell as Key
from pipesat.solver.modes.cell import Start
from pipesat.solver.modes.over_time import OverTime
from pipesat.solver.modes.state import schedule_from
from pipesat.solver.modes.ways import Part, Way
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import FOUND, PROOFS, Runner, Share

SOURCE = "whole model with modes"
_AWAITING: tuple[Literal_["F", "B"], ...] = ("F", "B")
_MOST_CELLS = 64  # (stage, microbatch)s: beyond, the model is hardly ever solved
_MOST_PAIRED = 24  # the same where ops may pair


def whole_applies(problem: Problem, incumbent: Incumbent) -> bool:
    """Whether the model is small, and CP-SAT can be relied on for such times."""
    latest = latest_end(problem, incumbent.objective, incumbent.value or 0)
    most = _MOST_PAIRED if gains(problem) else _MOST_CELLS
    return problem.has_modes and sum(problem.microbatches) <= most and latest <= LARGEST


class Whole:
    """Looks for the best schedule in one order; when that is settled, asks for any order."""

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, runner: Runner, seed: int
    ) -> None:
        self.problem, self.incumbent, self.runner, self.seed = problem, incumbent, runner, seed
        self.settled = False
        self.looking, self.share = Share(), Share()
        self.asked = self.better = self.refuted = 0

    @property
    def report(self) -> str:
        """What it did, in a few words."""
        how = f"{self.asked} questions, {self.better} better, {self.refuted} answered no"
        return f"{SOURCE}: {how}" + (", settled in one order" if self.settled else "")

    def step(self) -> bool:
        """Ask one question; return whether there is another."""
        bound, value = self.incumbent.bound.value, self.incumbent.value
        if value is None or bound >= value:
            return False
        if not self.settled:
            self._look_in_one_order(value)
            return True
        if self.incumbent.trusts(PROOFS):
            self._ask_in_any_order(bound, value)
            return True
        return False

    def _look_in_one_order(self, value: int) -> None:
        model = WholeModel(self.problem, value - 1, self.incumbent.objective, one_order=True)
        model.cp.minimize(model.value)
        solver, status = self._solve(model, self.looking.limit)
        if status in FOUND:
            self._offer(model.schedule(solver))
        self.settled = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        self.looking.longer()

    def _ask_in_any_order(self, bound: int, value: int) -> None:
        """Ask for a schedule within a share of the gap above the bound; "no" is a bound."""
        target = self.share.target(bound, value)
        model = WholeModel(self.problem, target, self.incumbent.objective, one_order=False)
        solver, status = self._solve(model, self.share.limit)
        if status == cp_model.INFEASIBLE:
            self.refuted += 1
            self.incumbent.raise_bound(Bound(target + 1, f"CP-SAT on the {SOURCE}"), PROOFS)
            self.share.refuted()
        elif status not in FOUND or not self._offer(model.schedule(solver)):
            self.share.less()
            self.share.longer()

    def _solve(
        self, model: WholeModel, limit: float
    ) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        self.asked += 1
        return self.runner.solve(
            model.cp, limit=limit, seed=self.seed + self.asked, strong=True, linear=False
        )

    def _offer(self, found: Schedule) -> bool:
        """Offer what was found, timed as early as possible; return whether it is the best."""
        before, problem = self.incumbent.value, self.problem
        if check(problem, found):
            return False
        timed = retime(problem, found, self.incumbent.objective, SOURCE)
        value = self.incumbent.offer_timed(timed)
        better = value is not None and before is not None and value < before
        self.better += better
        return better


class WholeModel(OverTime):
    """Whether there is a schedule of at most ``most``; ``value`` is its objective, in a solution.

    Alike microbatches of a route are numbered as the F's of its first stage come.
    """

    def __init__(
        self, problem: Problem, most: int, objective: Objective = "makespan", *, one_order: bool
    ) -> None:
        stages = range(len(problem.stages))
        super().__init__(problem, stages, latest_end(problem, objective, most))
        self.value = self.cp.new_int_var(0, most, "")
        self._add_dataflow()
        for stage in stages:
            for alike in self.alike(stage):
                row = self.row(stage, alike)
                if one_order or problem.previous[stage] is None:
                    self.add_order(row, "F")
                if one_order:
                    self.add_order(row, "B")
            if one_order:
                self.add_order_of_a_way([stage], ("O", "L", "W"))
        for device in range(len(problem.devices)):
            self._add_window(device, objective)
            self.add_device(device)

    def _add_window(self, device: int, objective: Objective) -> None:
        """The device's window, from its first op or from the origin, is within the objective."""
        begin: Start = 0
        cells = [cell for s in self.problem.stages_on[device] for cell in self.row(s)]
        if objective == "span":
            begin = self.cp.new_int_var(0, self.latest, "")
            for cell in cells:
                self.cp.add(cell.tasks["F"].start >= begin)
        for cell in cells:
            self.add_end(cell, begin + self.value)
        if self.choices.all:
            self.add_load(device, begin, begin + self.value)

    def schedule(self, solver: cp_model.CpSolver) -> Schedule:
        """Read a solution."""
        starts: dict[Key, dict[Part, int]] = {}
        ways: dict[Key, Way] = {}
        for key, cell in self.cells.items():
            starts[key] = {part: solver.value(task.start) for part, task in cell.tasks.items()}
            ways[key] = next(way for way, one in cell.ways if solver.boolean_value(one))
        pairs = [
            (choice.ops, choice.time)
            for choice in self.choices.all
            if solver.boolean_value(choice.literal)
        ]
        rank = {key: self._rank(solver, key) for key in self.cells}
        return schedule_from(self.problem, starts, ways, SOURCE, pairs, rank)

    def _rank(self, solver: cp_model.CpSolver, key: Key) -> int:
        """How many microbatches come before, by the one order of all stages or by number."""
        stage, m = key
        rank = m
        for one, other, first in self.turns.of(self.problem.route_of[stage]):
            before = solver.boolean_value(first)
            rank += (m == other and before) - (m == other)
            rank += m == one and not before
        return rank

    def _add_dataflow(self) -> None:
        for (stage, microbatch), cell in self.cells.items():
            for kind in _AWAITING:
                need = awaited(self.problem, Op(stage, kind, microbatch))
                if need is not None:
                    phase: Part = need.event[1]
                    source = self.cells[need.event[0], microbatch].tasks[phase]
                    self.cp.add(cell.tasks[kind].start >= source.end + need.delay)


def least_schedule(
    problem: Problem, most: int, objective: Objective = "makespan", *, one_order: bool = False
) -> tuple[int, Schedule] | None:
    """Solve the whole model to its optimum, ``most`` at most; ``None`` if there is none."""
    model = WholeModel(problem, most, objective, one_order=one_order)
    model.cp.minimize(model.value)
    solver, status = Runner(Clock(math.inf)).solve(
        model.cp, limit=math.inf, seed=0, strong=True, linear=False
    )
    if status != cp_model.OPTIMAL:
        return None
    return solver.value(model.value), model.schedule(solver)
