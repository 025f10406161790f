"""Proofs with memory modes: questions to the whole problem, and to one device alone.

**One device alone**: all of its modes, copies and memory in one model; the other devices count with
the least time that a microbatch needs there. **The whole problem**, as long as it is small enough:
*in one order* of microbatches that are alike, every stage runs the F's and the backwards in the
order of the numbers, and that no such schedule is better says nothing of others; *in any order*
nothing is lost. It is found many times faster in one order.

A model is asked whether a schedule of at most some length exists; "no" is a bound
(docs/proofs/search.md).
"""

from __future__ import annotations

import math

from ortools.sat.python import cp_model

from pipesat.bounds.paired import least_times_of_each_class
from pipesat.core.checker import check
from pipesat.core.claims import Bound
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.timing import retime
from pipesat.solver.model.left_out import lag_before, tail_after
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.times import LARGEST, latest_end
from pipesat.solver.modes.over_time import PARTS, OverTime, Time
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import FOUND, PROOFS, Lanes, Runner, Share

WHOLE = "whole model with modes"
_SHARE = 1 / 16  # of the gap, at first
_LIMIT = 2.0  # seconds per question about a device at first: rather a smaller one of every device
_OF_STRONGEST = 2  # times as long for the device that has proven most
_MOST_PAIRED_ALONE = 12  # (stage, microbatch)s of a device whose ops may pair: beyond, the model is
_MOST_CELLS, _MOST_PAIRED = 64, 24  # hardly ever solved; of the whole, and where ops may pair


def whole_applies(problem: Problem, incumbent: Incumbent) -> bool:
    """Whether the whole model is small, and CP-SAT can be relied on for such times."""
    latest = latest_end(problem, incumbent.objective, incumbent.value or 0)
    most = _MOST_PAIRED if gains(problem) else _MOST_CELLS
    return sum(problem.microbatches) <= most and latest <= LARGEST


class _Questions:
    """Raises an incumbent's bound by questions for a share of the gap; "no" is a bound."""

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, runner: Runner, seed: int
    ) -> None:
        self.problem, self.incumbent, self.runner, self.seed = problem, incumbent, runner, seed
        self.tried = self.better = self.refuted = 0
        self.spent = 0.0

    def solve(
        self, model: OverTime, limit: float
    ) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        """Solve a model within so many seconds."""
        self.tried += 1
        before = self.runner.spent
        found = self.runner.solve(
            model.cp, limit=limit, seed=self.seed + self.tried, strong=True, linear=False
        )
        self.spent += self.runner.spent - before
        return found

    def refute(self, target: int, share: Share, source: str) -> None:
        """There is no schedule as short as that."""
        self.refuted += 1
        self.incumbent.raise_bound(Bound(target + 1, source), PROOFS)
        share.refuted()


class DevicesAlone(_Questions):
    """Asks one device after the other; ``possible`` are lengths that one alone can keep to."""

    def __init__(self, problem: Problem, incumbent: Incumbent, *, seed: int) -> None:
        super().__init__(problem, incumbent, runner=Runner(incumbent.clock), seed=seed)
        self.possible: dict[int, int] = {}
        self.open = [
            device
            for device, stages in enumerate(problem.stages_on)
            if stages and problem.devices[device].room is not None
            if sum(problem.microbatches[s] for s in stages) <= _MOST_PAIRED_ALONE
            or not (gains(problem) and problem.has_modes)
        ]
        self.share = Share(_SHARE, _LIMIT)
        self.finished = not self.open
        self.strongest: int | None = None  # that has proven most

    def step(self, runner: Runner) -> None:
        """Ask one question, unless there is none left."""
        self.runner = runner
        self.finished = not self._ask()

    def _ask(self) -> bool:
        bound, value = self.incumbent.bound.value, self.incumbent.value
        if value is None or not self.incumbent.trusts(PROOFS):
            return False
        self.open = [one for one in self.open if self.possible.get(one, value) > bound]
        if not self.open or bound >= value:
            return False
        device = self.open.pop(0)
        target = self.share.target(bound, min(self.possible.get(device, value), value))
        absolute = self.incumbent.objective == "makespan"
        model = DeviceAlone(self.problem, device, target, absolute=absolute)
        longer = _OF_STRONGEST if device == self.strongest else 1
        solver, status = self.solve(model, longer * self.share.limit)
        if status == cp_model.INFEASIBLE:
            what = "with modes" if self.problem.has_modes else "memory over time"
            source = f"CP-SAT on {self.problem.device_name(device)} alone, {what}"
            self.refute(target, self.share, source)
            self.strongest = device
            self.open.insert(0, device)  # it may prove the next share as well
        elif status in FOUND:
            self.possible[device] = solver.value(model.value)
            self.open.append(device)
        elif self.share.share > self.share.least:
            self.share.less()
            self.open.insert(0, device)  # it may prove less
        else:
            self.open.append(device)
            if self.share.in_vain(of=len(self.open)):
                self.open.sort(key=lambda one: one != self.strongest)
        return True


class Whole(_Questions):
    """Looks for the best schedule in one order; when that is settled, asks for any order."""

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, runner: Runner, seed: int
    ) -> None:
        super().__init__(problem, incumbent, runner=runner, seed=seed)
        self.settled = False
        self.looking, self.share = Share(), Share()

    @property
    def report(self) -> str:
        """What it did, in a few words."""
        how = f"{self.tried} questions, {self.better} better, {self.refuted} answered no"
        return f"{WHOLE}: {how}" + (", settled in one order" if self.settled else "")

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
        solver, status = self.solve(model, self.looking.limit)
        if status in FOUND:
            self._offer(model.schedule(solver, WHOLE))
        self.settled = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        self.looking.longer()

    def _ask_in_any_order(self, bound: int, value: int) -> None:
        """Ask for a schedule within a share of the gap above the bound."""
        target = self.share.target(bound, value)
        model = WholeModel(self.problem, target, self.incumbent.objective, one_order=False)
        solver, status = self.solve(model, self.share.limit)
        if status == cp_model.INFEASIBLE:
            self.refute(target, self.share, f"CP-SAT on the {WHOLE}")
        elif status not in FOUND or not self._offer(model.schedule(solver, WHOLE)):
            self.share.less()
            self.share.longer()

    def _offer(self, found: Schedule) -> bool:
        """Offer what was found, timed as early as possible; return whether it is the best."""
        before, problem = self.incumbent.value, self.problem
        if check(problem, found):
            return False
        timed = retime(problem, found, self.incumbent.objective, WHOLE)
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
        self.add_rules(stages)
        self.value = self.cp.new_int_var(0, most, "")
        self.add_dataflow()
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
        begin: Time = 0
        cells = [cell for s in self.problem.stages_on[device] for cell in self.row(s)]
        if objective == "span":
            begin = self.cp.new_int_var(0, self.latest, "")
            for cell in cells:
                self.cp.add(cell.tasks["F"].start >= begin)
        for cell in cells:
            self.add_end(cell, begin + self.value)
        if self.choices.all:
            self.add_load(device, begin, begin + self.value)


class DeviceAlone(OverTime):
    """Whether a device can be done by ``most``; ``value`` is when, in a solution.

    Times are from the origin (``absolute``), or from the device's first op at the earliest.
    """

    def __init__(self, problem: Problem, device: int, most: int, *, absolute: bool) -> None:
        stages = problem.stages_on[device]
        super().__init__(problem, stages, most)
        self.device = device
        self.add_rules(stages)
        self.value = self.cp.new_int_var(0, most, "")
        self.heads: list[int] = []
        self.least = least_times_of_each_class(problem)
        for stage in stages:
            self._add_lags(stage, frozenset(stages), absolute=absolute)
        self._add_numbers()
        self.add_device(device)
        if self.choices.all:
            self.add_load(device, min(self.heads) if absolute else 0, self.value)

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
                self.cp.add(self.value >= cell.tasks["B"].end + tail)
            self.add_end(cell, self.value)


def offer_any(incumbent: Incumbent) -> list[str]:
    """Offer a schedule of the whole model, if it is small: where no order is sure to fit.

    Returns what failed.
    """
    problem, lanes = incumbent.problem, Lanes(incumbent.clock)
    asking = _Questions(problem, incumbent, runner=lanes.runner(), seed=0)

    def ask() -> None:
        most = _all_in_a_row(problem)
        model = WholeModel(problem, most, incumbent.objective, one_order=False)
        solver, status = asking.solve(model, incumbent.clock.left)
        if status in FOUND:
            incumbent.offer(model.schedule(solver, WHOLE).order, WHOLE)

    return lanes.run([ask] if whole_applies(problem, incumbent) else [])


def _all_in_a_row(problem: Problem) -> int:
    """Return what all ops, copies and delays take together, in the modes that take longest."""
    total = 0
    for stage, microbatches in enumerate(problem.microbatches):
        for k in range(microbatches):
            ways = [problem.amounts(stage, k, mode) for mode in problem.modes_of(stage)]
            copies = [(x.offload.time_out + x.offload.time_in) if x.offload else 0 for x in ways]
            total += max(x.F + max(x.B + x.W, x.BW) for x in ways) + max(copies)
            if (link := problem.link(stage, k)) is not None:
                total += link.F + link.B
    return total


def least_end(problem: Problem, device: int, most: int, *, absolute: bool) -> int | None:
    """Solve a device's model to its optimum, ``most`` at most; ``None`` if there is none."""
    model = DeviceAlone(problem, device, most, absolute=absolute)
    solver = _solved(model)
    return None if solver is None else solver.value(model.value)


def least_schedule(
    problem: Problem, most: int, objective: Objective = "makespan", *, one_order: bool = False
) -> tuple[int, Schedule] | None:
    """Solve the whole model to its optimum, ``most`` at most; ``None`` if there is none."""
    model = WholeModel(problem, most, objective, one_order=one_order)
    solver = _solved(model)
    return None if solver is None else (solver.value(model.value), model.schedule(solver, WHOLE))


def _solved(model: WholeModel | DeviceAlone) -> cp_model.CpSolver | None:
    model.cp.minimize(model.value)
    solver, status = Runner(Clock(math.inf)).solve(
        model.cp, limit=math.inf, seed=0, strong=True, linear=False
    )
    return solver if status == cp_model.OPTIMAL else None
