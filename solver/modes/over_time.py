"""Models with memory over time: of the whole problem, of one device alone, of windows (window.py).

They are made of cells of some stages, pairs, order, devices and their channels; what may be ordered
without loss stands in docs/proofs/search.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product
from typing import Final, TypeAlias, cast
from typing import Literal as OneOf

from ortools.sat.python import cp_model

from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, duration
from pipesat.core.schedule import Schedule
from pipesat.solver.model.pairing import Gains, gains, time_that_gains
from pipesat.solver.model.turns import Turns, add_turns, classes_of
from pipesat.solver.model.variants import (
    Candidate,
    Literal,
    PairChoices,
    Variant,
    add_pair_choices,
    place,
)
from pipesat.solver.modes.assign import Cell as Key
from pipesat.solver.modes.cells import (
    OPS,
    TRIP,
    Cell,
    Holding,
    Option,
    Part,
    Task,
    Way,
    schedule_from,
    variants_of,
    ways_of,
)

Time: TypeAlias = cp_model.LinearExpr | int
"""A sum of variables, or a time that is known."""

PARTS: Final[tuple[Part, ...]] = ("F", "O", "L", "B", "W")
BY_RULE: Final[tuple[OneOf["F"], OneOf["B"]]] = ("F", "B")


class OverTime:
    """Cells of some stages, all parts within ``[0, latest]``; ``choices`` are the pairs."""

    def __init__(self, problem: Problem, stages: Collection[int], latest: int) -> None:
        self.problem, self.latest = problem, latest
        self.cp = cp_model.CpModel()
        self.known = gains(problem)
        self.cells = {
            (stage, m): self._new_cell(Cell(stage, m, self.ways_of(stage, m)))
            for stage in stages
            for m in range(problem.microbatches[stage])
        }
        tasks = [task for cell in self.cells.values() for task in cell.tasks.values()]
        candidates = _candidates(problem, self.known, self.cells.values())
        self.choices: PairChoices[Task] = add_pair_choices(
            self.cp, candidates, tasks, lambda _: latest
        )
        for cell in self.cells.values():
            self._add_sequence(cell.tasks)
        self.turns = Turns()

    def ways_of(self, stage: int, microbatch: int) -> list[Option]:
        """All ways that a (stage, microbatch) may run in, one of them chosen."""
        ways = ways_of(self.problem, stage, microbatch, self.known)
        literals = [(way, self.cp.new_bool_var("")) for way in ways]
        self.cp.add_exactly_one([chosen for _, chosen in literals])
        return [Option(way, chosen) for way, chosen in literals]

    def _new_cell(self, cell: Cell) -> Cell:
        for part, variants, present in variants_of(self.cp, self.problem, cell):
            cell.tasks[part] = self.new_task(cell, part, variants, present)
        return cell

    def new_task(
        self,
        cell: Cell,  # noqa: ARG002
        part: Part,  # noqa: ARG002
        variants: list[Variant],
        present: Literal,
    ) -> Task:
        """A part of a cell, free to start at any time."""
        start = self.cp.new_int_var(0, self.latest, "")
        return Task(start, *place(self.cp, start, variants, present), variants, present)

    def _add_sequence(self, tasks: Mapping[Part, Task]) -> None:
        """F, the copies, the backward and W run one after the other, as far as they are there."""
        if "W" in tasks:
            self.add_after(tasks["W"], tasks["B"].end)
        if "O" in tasks:
            for one, two in pairwise(TRIP):
                self.add_after(tasks[two], tasks[one].end, tasks["O"].present)

    def add_after(self, task: Task, time: Time, *conditions: Literal) -> None:
        """Let a task, unless it is fixed, start at a time or later, where the conditions hold."""
        if task.fixed is None:
            later = self.cp.add(task.start >= time)
            if literals := [literal for literal in conditions if literal is not True]:
                later.only_enforce_if(*literals)

    def add_dataflow(self) -> None:
        """Every F and backward waits for its input and the input's travel."""
        for (stage, microbatch), cell in self.cells.items():
            for kind in BY_RULE:
                task = cell.tasks[kind]
                need = awaited(self.problem, Op(stage, kind, microbatch))
                if need is not None and task.fixed is None:
                    source = self.cells[need.event[0], microbatch].tasks[need.event[1]]
                    self.add_after(task, source.end + need.delay)

    def add_rules(self, stages: Iterable[int]) -> None:
        """The file's rules for the order of microbatches, and for one mode per stage."""
        self.turns = add_turns(self.cp, self.problem)
        for stage in stages:
            self._add_rule(stage)
            if self.problem.mode_choice == "stage":
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
        for part in BY_RULE:
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
                if (length := x.ways[number].way.lengths.get(part)) is not None:
                    self._add_before(x.tasks[part], y.tasks[part], *chosen, length=length)

    def channels(self, device: int) -> list[tuple[Part, ...]]:
        """What each copy channel of a device runs."""
        return [("O", "L")] if self.problem.devices[device].copy_channels == 1 else [("O",), ("L",)]

    def add_device(self, device: int) -> None:
        """Let a device run one item at a time, each channel one copy, within memory over time."""
        cells = [cell for stage in self.problem.stages_on[device] for cell in self.row(stage)]
        for parts in (OPS, *self.channels(device)):
            tasks = [cell.tasks[part] for cell in cells for part in parts if part in cell.tasks]
            self.cp.add_no_overlap(interval for task in tasks for interval in task.intervals)
        self.add_memory(device)

    def add_memory(self, device: int) -> None:
        """Memory of a device stays within its capacity, over time."""
        room = self.problem.devices[device].room
        if room is None:
            return
        intervals, amounts = [], []
        for stage in self.problem.stages_on[device]:
            for cell in self.row(stage):
                for way, chosen in cell.ways:
                    for holding in way.holdings:
                        if (held := self.held(cell, holding, chosen)) is not None:
                            intervals.append(held)
                            amounts.append(holding.amount)
        self.cp.add_cumulative(intervals, amounts, room)

    def held(self, cell: Cell, holding: Holding, chosen: Literal) -> cp_model.IntervalVar | None:
        """What is held from a part's start, or B's end until W's, to a part's end, in a way."""
        begin, end = cell.tasks[holding.begin], cell.tasks[holding.end]
        low: Time = begin.start
        if holding.end == "W":
            low = self._end(begin, holding.offset)
        if begin is end and not self.choices.partners(begin):
            return self.cp.new_optional_fixed_size_interval_var(low, holding.length, chosen, "")
        between, high = self.time_held(cell, holding), self._end(end, holding.length)
        return self.cp.new_optional_interval_var(low, between, high, chosen, "")

    def time_held(self, cell: Cell, holding: Holding) -> cp_model.IntVar:  # noqa: ARG002
        """How long something is held, a variable."""
        return self.cp.new_int_var(0, self.latest, "")

    def _end(self, task: Task, length: int) -> Time:
        """End of a part in a way in which it has this length alone."""
        return task.end if self.choices.partners(task) else task.start + length

    def add_end(self, cell: Cell, end: Time) -> None:
        """Let nothing of a cell end later."""
        self.cp.add(cell.tasks["B"].end <= end)
        if (weight := cell.tasks.get("W")) is not None:
            last = self.cp.add(weight.end <= end)
            if weight.present is not True:
                last.only_enforce_if(weight.present)

    def add_load(self, device: int, begin: Time, end: Time) -> None:
        """Say that a device's work, less what its pairs save, takes its time.

        It follows from the rest, but no-overlap does not see it.
        """
        stages = self.problem.stages_on[device]
        work: list[Time] = [
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

    def schedule(self, solver: cp_model.CpSolver, source: str) -> Schedule:
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
        return schedule_from(self.problem, starts, ways, source, pairs, rank)

    def _rank(self, solver: cp_model.CpSolver, key: Key) -> int:
        """How many microbatches come before, by the one order of all stages or by number."""
        stage, m = key
        rank = m
        for one, other, first in self.turns.of(self.problem.route_of[stage]):
            before = solver.boolean_value(first)
            rank += (m == other and before) - (m == other)
            rank += m == one and not before
        return rank


def _candidates(problem: Problem, known: Gains, cells: Iterable[Cell]) -> Iterator[Candidate[Task]]:
    """All pairs that gain something, in every two modes of their members."""
    if not known:
        return
    tasks = [cell.tasks[part] for cell in cells for part in OPS if part in cell.tasks]
    for x, y in combinations(tasks, 2):
        for one, other in product(x.variants, y.variants):
            if (one.op[:2], other.op[:2]) in known:
                time = time_that_gains(problem, known, one.op, other.op)
                if time is not None:
                    yield (x, y), (one.op, other.op), time
