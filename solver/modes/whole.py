"""The whole problem with memory modes in one CP-SAT model, as long as it is small enough.

*In one order*: every stage runs its F's and its backwards in the order of the numbers; that no such
schedule is better says nothing of others. *In any order*: nothing is lost, so "no" is a bound
(docs/search.md). It is found many times faster in one order.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal as Literal_

from ortools.sat.python import cp_model

from pipesat.core.checker import check
from pipesat.core.claims import Bound
from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited
from pipesat.core.schedule import Schedule
from pipesat.core.timing import retime
from pipesat.solver.modes.assign import Cell as Key
from pipesat.solver.modes.cell import Cell
from pipesat.solver.modes.cell_rules import add_device, add_order, add_order_of_a_way, new_cell
from pipesat.solver.modes.state import schedule_from
from pipesat.solver.modes.ways import Part, Way
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import FOUND, PROOFS, Runner

SOURCE = "whole model with modes"
_AWAITING: tuple[Literal_["F", "B"], ...] = ("F", "B")
_MOST_CELLS = 64  # (stage, microbatch)s: beyond, the model is hardly ever solved
_LIMIT, _LONGER, _LONGEST = 4.0, 2.0, 60.0  # seconds per question
_SHARE, _MORE, _LESS, _LEAST_SHARE = 0.25, 1.5, 0.5, 0.02  # of the gap that is asked for at once


def whole_applies(problem: Problem, incumbent: Incumbent) -> bool:
    """Whether the model says all that there is, and is small: alike microbatches, the makespan."""
    return (
        incumbent.objective == "makespan"
        and problem.has_modes
        and not problem.has_lists
        and problem.overlap is None
        and sum(problem.microbatches) <= _MOST_CELLS
    )


class Whole:
    """Looks for the best schedule in one order; when that is settled, asks for any order."""

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, runner: Runner, seed: int
    ) -> None:
        self.problem, self.incumbent, self.runner, self.seed = problem, incumbent, runner, seed
        self.settled = False
        self.limit, self.share = _LIMIT, _SHARE
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
        model = WholeModel(self.problem, value - 1, one_order=True)
        model.cp.minimize(model.end)
        solver, status = self._solve(model)
        if status in FOUND:
            self._offer(model.schedule(solver))
        self.settled = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        self.limit = _LIMIT if self.settled else min(_LONGEST, self.limit * _LONGER)

    def _ask_in_any_order(self, bound: int, value: int) -> None:
        """Ask for a schedule within a share of the gap above the bound; "no" is a bound."""
        target = min(value - 1, bound + int(self.share * (value - bound)))
        model = WholeModel(self.problem, target, one_order=False)
        solver, status = self._solve(model)
        if status == cp_model.INFEASIBLE:
            self.refuted += 1
            self.incumbent.raise_bound(Bound(target + 1, f"CP-SAT on the {SOURCE}"), PROOFS)
            self.share = min(1.0, self.share * _MORE)
        elif status not in FOUND or not self._offer(model.schedule(solver)):
            self.share = max(_LEAST_SHARE, self.share * _LESS)
            self.limit = min(_LONGEST, self.limit * _LONGER)

    def _solve(self, model: WholeModel) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        self.asked += 1
        return self.runner.solve(
            model.cp, limit=self.limit, seed=self.seed + self.asked, strong=True, linear=False
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


class WholeModel:
    """Whether there is a schedule of at most ``most``; ``end`` is its makespan, in a solution.

    Microbatches of a route are numbered as the F's of its first stage come.
    """

    def __init__(self, problem: Problem, most: int, *, one_order: bool) -> None:
        self.problem, self.cp = problem, cp_model.CpModel()
        self.end = self.cp.new_int_var(0, most, "")
        self.cells = {
            (stage, m): new_cell(self.cp, problem, stage, m, 0, most)
            for stage, count in enumerate(problem.microbatches)
            for m in range(count)
        }
        self._add_dataflow()
        for stage, count in enumerate(problem.microbatches):
            row = [self.cells[stage, m] for m in range(count)]
            if one_order or problem.previous[stage] is None:
                add_order(self.cp, row, "F")
            if one_order:
                add_order(self.cp, row, "B")
                parts: tuple[Part, ...] = ("O", "L", "W")
                add_order_of_a_way(self.cp, row, parts)
            if problem.mode_choice == "stage":
                self._add_one_mode(row)
        for device in range(len(problem.devices)):
            here = [cell for cell in self.cells.values() if cell.device == device]
            add_device(self.cp, problem, device, here, most)

    def schedule(self, solver: cp_model.CpSolver) -> Schedule:
        """Read a solution."""
        starts: dict[Key, dict[Part, int]] = {}
        ways: dict[Key, Way] = {}
        for key, cell in self.cells.items():
            starts[key] = {part: solver.value(start) for part, start in cell.start.items()}
            chosen = zip(cell.ways, cell.chosen, strict=True)
            ways[key] = next(way for way, one in chosen if solver.boolean_value(one))
        return schedule_from(self.problem, starts, ways, SOURCE)

    def _add_dataflow(self) -> None:
        for (stage, microbatch), cell in self.cells.items():
            for kind in _AWAITING:
                need = awaited(self.problem, Op(stage, kind, microbatch))
                if need is not None:
                    source = self.cells[need.event[0], microbatch]
                    self.cp.add(cell.start[kind] >= source.end(need.event[1]) + need.delay)
            self.cp.add(self.end >= cell.end("W"))

    def _add_one_mode(self, row: list[Cell]) -> None:
        """All microbatches of the stage run in one mode."""
        modes = {way.mode for way in row[0].ways}
        for one, two in pairwise(row):
            for mode in modes:
                self.cp.add(_runs_in(one, mode) == _runs_in(two, mode))


def _runs_in(cell: Cell, mode: int) -> cp_model.LinearExprT:
    pairs = zip(cell.ways, cell.chosen, strict=True)
    return sum(literal for way, literal in pairs if way.mode == mode)


def least_makespan(problem: Problem, most: int, *, one_order: bool = False) -> int | None:
    """Solve the whole model to its optimum, ``most`` at most; ``None`` if there is none."""
    model = WholeModel(problem, most, one_order=one_order)
    model.cp.minimize(model.end)
    solver, status = Runner(Clock(math.inf)).solve(
        model.cp, limit=math.inf, seed=0, strong=True, linear=False
    )
    return solver.value(model.end) if status == cp_model.OPTIMAL else None
