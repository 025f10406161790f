"""A model with memory over time: cells of some stages, pairs, order, devices and their channels.

The whole problem and one device alone are made of it; what may be ordered without loss stands in
docs/proofs/search.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import Final, cast

from ortools.sat.python import cp_model

from pipesat.core.problem import Problem
from pipesat.core.rules import duration
from pipesat.solver.model.pairing import gains, time_that_gains
from pipesat.solver.model.turns import add_turns, classes_of
from pipesat.solver.model.variants import Candidate, Literal, PairChoices, add_pair_choices
from pipesat.solver.modes.cell import Expression, Start
from pipesat.solver.modes.parts import OPS, Cell, Task, add_sequence, new_cell
from pipesat.solver.modes.ways import Holding, Part

PARTS: Final[tuple[Part, ...]] = ("F", "O", "L", "B", "W")
_BY_RULE: Final[tuple[Part, ...]] = ("F", "B")


class OverTime:
    """Cells of the kept stages, all parts within ``[0, latest]``; ``choices`` are the pairs."""

    def __init__(self, problem: Problem, stages: Collection[int], latest: int) -> None:
        self.problem, self.latest = problem, latest
        self.cp = cp_model.CpModel()
        known = gains(problem)
        self.cells = {
            (stage, m): new_cell(self.cp, problem, known, (stage, m), (0, latest))
            for stage in stages
            for m in range(problem.microbatches[stage])
        }
        tasks = [task for cell in self.cells.values() for task in cell.tasks.values()]
        candidates = _candidates(problem, self.cells.values())
        self.choices: PairChoices[Task] = add_pair_choices(self.cp, candidates, tasks, latest)
        for cell in self.cells.values():
            add_sequence(self.cp, cell)
        self.turns = add_turns(self.cp, problem)
        for stage in stages:
            self._add_rule(stage)
            if problem.mode_choice == "stage":
                self._add_one_mode(stage)

    def row(self, stage: int, microbatches: Iterable[int] | None = None) -> list[Cell]:
        """Cells of a stage, by number."""
        if microbatches is None:
            microbatches = range(self.problem.microbatches[stage])
        return [self.cells[stage, m] for m in microbatches]

    def alike(self, stage: int) -> list[list[int]]:
        """Microbatches of a stage's route that nothing but their numbers tells apart, in lists."""
        return classes_of(self.problem.routes[self.problem.route_of[stage]])

    def add_order(self, cells: Sequence[Cell], part: Part) -> None:
        """Let a part that all cells have run in their order, or two of them as a pair."""
        for one, two in pairwise(cells):
            self._add_before(one.tasks[part], two.tasks[part])

    def _add_before(
        self, x: Task, y: Task, *conditions: Literal, length: int | None = None
    ) -> None:
        """One ends before the other starts, or they are a pair, where the conditions hold.

        ``length`` is that of the first alone, if the conditions say it.
        """
        end = x.end if length is None else self._end(x, length)
        found = self.cp.add(y.start >= end)
        apart = (~pair for pair in self.choices.together(x, y))
        if literals := [*conditions, *apart]:
            found.only_enforce_if(*literals)

    def _add_rule(self, stage: int) -> None:
        """The file's rule for the order of a route's microbatches that are a list."""
        number = self.problem.route_of[stage]
        if self.problem.routes[number].classes is None or self.problem.order == "free":
            return
        given = self.problem.order == "given"
        for part in _BY_RULE:
            for numbers in [None] if given else self.alike(stage):
                self.add_order(self.row(stage, numbers), part)
            for one, other, first in self.turns.of(number):
                x, y = (self.cells[stage, m].tasks[part] for m in (one, other))
                self._add_before(x, y, first)
                self._add_before(y, x, cast(Literal, ~first))

    def _add_one_mode(self, stage: int) -> None:
        """All microbatches of the stage run in one mode."""
        for one, two in pairwise(self.row(stage)):
            for mode in self.problem.modes_of(stage):
                self.cp.add(one.runs_in(mode) == two.runs_in(mode))

    def add_order_of_a_way(self, stages: Sequence[int], parts: Iterable[Part]) -> None:
        """Let parts run by number among alike microbatches in equal ways on all of these stages."""
        parts = tuple(parts)
        for microbatches in self.alike(stages[0]):
            for one, two in combinations(microbatches, 2):
                both = [(self.cells[s, one], self.cells[s, two]) for s in stages]
                for numbers in product(*(range(len(x.ways)) for x, _ in both)):
                    self._add_alike(both, numbers, parts)

    def _add_alike(
        self,
        both: Sequence[tuple[Cell, Cell]],
        numbers: Sequence[int],
        parts: Sequence[Part],
    ) -> None:
        """Two microbatches on some stages, in these ways there."""
        chosen = [
            cell.ways[number].chosen
            for cells, number in zip(both, numbers, strict=True)
            for cell in cells
        ]
        for (x, y), number in zip(both, numbers, strict=True):
            for part in parts:
                if (length := x.ways[number].way.length(part)) is not None:
                    self._add_before(x.tasks[part], y.tasks[part], *chosen, length=length)

    def add_device(self, device: int) -> None:
        """Let a device run one item at a time, each channel one copy, within memory over time."""
        own = self.problem.devices[device]
        cells = [cell for stage in self.problem.stages_on[device] for cell in self.row(stage)]
        channels: tuple[tuple[Part, ...], ...] = (("O",), ("L",))
        for parts in (OPS, *((("O", "L"),) if own.copy_channels == 1 else channels)):
            tasks = [cell.tasks[part] for cell in cells for part in parts if part in cell.tasks]
            self.cp.add_no_overlap(interval for task in tasks for interval in task.intervals)
        if own.room is None:
            return
        intervals, amounts = [], []
        for cell in cells:
            for way, chosen in cell.ways:
                for holding in way.holdings:
                    intervals.append(self._held(cell, holding, chosen))
                    amounts.append(holding.amount)
        self.cp.add_cumulative(intervals, amounts, own.room)

    def _held(self, cell: Cell, holding: Holding, chosen: cp_model.IntVar) -> cp_model.IntervalVar:
        """What is held from a part's start, or B's end until W's, to a part's end, in a way."""
        begin, end = cell.tasks[holding.begin], cell.tasks[holding.end]
        low: cp_model.LinearExprT = begin.start
        if holding.end == "W":
            low = self._end(begin, holding.offset)
        if begin is end and not self.choices.partners(begin):
            return self.cp.new_optional_fixed_size_interval_var(low, holding.length, chosen, "")
        between, high = self.cp.new_int_var(0, self.latest, ""), self._end(end, holding.length)
        return self.cp.new_optional_interval_var(low, between, high, chosen, "")

    def _end(self, task: Task, length: int) -> cp_model.LinearExprT:
        """End of a part in a way in which it has this length alone."""
        return task.end if self.choices.partners(task) else task.start + length

    def add_end(self, cell: Cell, end: cp_model.LinearExprT) -> None:
        """Let nothing of a cell end later."""
        self.cp.add(cell.tasks["B"].end <= end)
        if (weight := cell.tasks.get("W")) is not None:
            last = self.cp.add(weight.end <= end)
            if weight.present is not True:
                last.only_enforce_if(weight.present)

    def add_load(self, device: int, begin: Start, end: Expression) -> None:
        """Say that a device's work, less what its pairs save, takes its time.

        It follows from the rest, but no-overlap does not see it.
        """
        stages = self.problem.stages_on[device]
        work: list[cp_model.LinearExprT] = [
            way.work * chosen
            for stage in stages
            for cell in self.row(stage)
            for way, chosen in cell.ways
        ]
        for choice in self.choices.all:
            if choice.ops[0].stage in stages:
                alone = sum(duration(self.problem, op) for op in choice.ops)
                work.append((choice.time - alone) * choice.literal)
        self.cp.add(sum(work) <= end - begin)


def _candidates(problem: Problem, cells: Iterable[Cell]) -> Iterator[Candidate[Task]]:
    """All pairs that gain something, in every two modes of their members."""
    known = gains(problem)
    if not known:
        return
    tasks = [cell.tasks[part] for cell in cells for part in OPS if part in cell.tasks]
    for x, y in combinations(tasks, 2):
        for one, other in product(x.variants, y.variants):
            if (one.op[:2], other.op[:2]) in known:
                time = time_that_gains(problem, known, one.op, other.op)
                if time is not None:
                    yield Candidate((x, y), (one.op, other.op), time)
