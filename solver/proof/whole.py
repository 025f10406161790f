"""Proofs and schedules by one model of the whole problem, as long as it is small enough.

*In one order* of microbatches that are alike, every stage runs the F's and the backwards in the
order of the numbers, and that no such schedule is better says nothing of others; *in any order*
nothing is lost. It is found many times faster in one order (docs/proofs/search.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from ortools.sat.python import cp_model

from pipesat.check.checker import check
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem
from pipesat.problem.variants import variants
from pipesat.schedule.schedule import Objective, Schedule, Timed, TimedCopy
from pipesat.schedule.timing import retime
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import FOUND, PROOFS, Runner, Share, Watched
from pipesat.solver.model.over_time import OverTime, Time
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.times import LARGEST, latest_end
from pipesat.solver.proof.questions import Questions

WHOLE = "whole model with modes"
_MOST, _MOST_PAIRED = 64, 24  # (stage, microbatch)s, and where ops may pair


def whole_applies(problem: Problem, latest: int) -> bool:
    """Whether the whole model is small, and CP-SAT can be relied on for such times."""
    most = _MOST_PAIRED if gains(problem) else _MOST
    return sum(problem.microbatches) <= most and latest <= LARGEST


class Whole(Questions):
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
        solver, status = self.solve(model.cp, self.looking.limit)
        if status in FOUND:
            self._offer(model.schedule(solver, WHOLE))
        self.settled = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        self.looking.longer()

    def _ask_in_any_order(self, bound: int, value: int) -> None:
        """Ask for a schedule within a share of the gap above the bound."""
        target = self.share.target(bound, value)
        model = WholeModel(self.problem, target, self.incumbent.objective, one_order=False)
        solver, status = self.solve(model.cp, self.share.limit)
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

    Alike microbatches of a route are numbered as the F's of its first stage come, alike sequences
    as those of their first slices do.
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
                row, slices = self.row(stage, alike), problem.slices_of[stage]
                entry = stage == problem.route(stage).stages[0]
                if one_order or (entry and not alike[0] % slices):
                    self.add_order(row, "F")
                if one_order and problem.stages[stage].has_backward:
                    self.add_order(row, "B")
            if one_order:
                self.add_order_of_a_variant([stage], ("O", "L", "W"))
        for device in range(len(problem.devices)):
            self._add_window(device, objective)
            self.add_device(device)

    def _add_window(self, device: int, objective: Objective) -> None:
        """The device's window, from its first op or from the origin, is within the objective."""
        begin: Time = 0
        passages = [one for s in self.problem.stages_on[device] for one in self.row(s)]
        if objective == "span":
            begin = self.cp.new_int_var(0, self.latest, "")
            for passage in passages:
                self.cp.add(passage.tasks["F"].start >= begin)
        for passage in passages:
            self.add_end(passage, begin + self.value)
        if self.choices.all:
            self.add_load(device, begin, begin + self.value)


def offer_any(incumbent: Incumbent) -> list[str]:
    """Offer one microbatch after the other, each as a model of it alone says, if that is small.

    It is for where no order is sure to fit. What is left of a valid schedule without all other
    microbatches is valid, so if one does not pass alone in any modes, none exists: the incumbent
    keeps that as ``impossible``. Returns what failed.
    """
    problem, lane = incumbent.problem, Watched(incumbent.clock)
    asking = Questions(problem, incumbent, runner=lane.runner(), seed=0)

    def ask() -> None:
        found = []
        for alone in _alone(problem):
            most = _all_in_a_row(alone)
            if not whole_applies(alone, most):
                return
            model = WholeModel(alone, most, one_order=False)
            solver, status = asking.solve(model.cp, incumbent.clock.left)
            if status == cp_model.INFEASIBLE:
                incumbent.impossible = _IMPOSSIBLE
            if status not in FOUND:
                return
            found.append(model.schedule(solver, WHOLE))
        one_by_one = _one_by_one(problem, found)
        if not check(problem, one_by_one):
            incumbent.offer_timed(retime(problem, one_by_one, incumbent.objective, WHOLE))

    return lane.run(ask)


_IMPOSSIBLE = (
    "no schedule fits: one microbatch alone exceeds a capacity in whichever modes it runs, also "
    f"if ops of length zero share instants (CP-SAT on the {WHOLE})"
)


def _alone(problem: Problem) -> Iterator[Problem]:
    """Yield problems of a sequence of each kind; all in one where their modes depend on another.

    Without slices, a sequence is a microbatch. Where a route has no such kind, its last.
    """
    kinds = [[*route.kinds] for route in problem.routes]
    most = max(map(len, kinds))
    together = problem.mode_choice == "stage"
    for chosen in [range(most)] if together else ([number] for number in range(most)):
        routes = []
        for route, own in zip(problem.routes, kinds, strict=True):
            numbers = sorted({min(number, len(own) - 1) for number in chosen})
            classes = tuple(of_class for number in numbers for of_class in own[number])
            count = route.slices * len(numbers)
            of = classes if route.definitions else None
            routes.append(replace(route, microbatches=count, classes=of))
        yield replace(problem, routes=tuple(routes), overlap=None, order="free")


def _one_by_one(problem: Problem, found: Sequence[Schedule]) -> Schedule:
    """Put a schedule together of those of :func:`_alone`: nothing of two sequences meets."""
    rows: list[list[Any]] = [[] for _ in problem.devices]
    copies: list[list[Any]] = [[] for _ in problem.devices]
    begin = 0
    for number, route in enumerate(problem.routes):
        kinds, slices = [*route.kinds], route.slices
        for sequence in range(route.microbatches // slices):
            first = sequence * slices
            kind = kinds.index(route.classes_in(sequence))
            own, place = (found[0], kind) if len(found) == 1 else (found[kind], 0)
            for device in range(len(problem.devices)):
                for row, one in ((rows, own.devices[device]), (copies, own.copies_of(device))):
                    for what, start, end in cast("Iterable[tuple[Op, int, int]]", one):
                        at, slice_ = divmod(what.microbatch, slices)
                        if (problem.route_of[what.stage], at) == (number, place):
                            moved = what._replace(microbatch=first + slice_)
                            row[device].append((moved, begin + start, begin + end))
            begin += own.makespan
    return Schedule(
        tuple(tuple(Timed(*one) for one in row) for row in rows),
        WHOLE,
        tuple(tuple(TimedCopy(*one) for one in row) for row in copies) if any(copies) else (),
    )


def _all_in_a_row(problem: Problem) -> int:
    """Return what all ops, copies and delays take together, in the variants that take longest."""
    total = 0
    for stage, microbatches in enumerate(problem.microbatches):
        for k in range(microbatches):
            own = variants(problem, stage, problem.class_of(stage, k))
            total += max(v.work for v in own) + max(v.out + v.back for v in own)
            for after in problem.after[stage]:
                if (link := problem.link(stage, k, after)) is not None:
                    total += link.F + link.B
    return total
