"""Windows over time, with modes: free a part of a schedule, solve it, keep what is no worse.

What starts before a window is fixed, what starts in it is free, with its modes, what starts later
or elsewhere keeps its sequence, copies among it. Memory of the window's devices is counted over
time by cumulative constraints: intervals are half-open there, as in the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from ortools.sat.python import cp_model

from pipesat.core.checker import check
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import retime
from pipesat.solver.model.variants import Literal, Variant, place
from pipesat.solver.modes.cells import (
    COPIES,
    OPS,
    Cell,
    Holding,
    Option,
    Part,
    State,
    Task,
    ways_of,
)
from pipesat.solver.modes.over_time import OverTime, Time
from pipesat.solver.neighbourhood.choose import Windows, kinds_for
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import Runner

_BY: Final[Mapping[Part, Part]] = {"O": "F", "L": "B"}  # whose order copies keep
_WEIGHT = 4  # of the makespan, against the mean of the devices' ends


@dataclass(frozen=True)
class Window:
    """Parts that start in ``[begin, end)`` on these devices are free."""

    begin: int
    end: int
    devices: frozenset[int]


class Placed(NamedTuple):
    """A part that is not fixed, and where it is now (an absent one: at its backward)."""

    start: int
    end: int
    cell: Cell
    part: Part

    @property
    def task(self) -> Task:
        """Its variables."""
        return self.cell.tasks[self.part]

    @property
    def over(self) -> Time:
        """Its end; where it is absent, its start."""
        return _over(self.task.start, self.task.variants, self.task.present)


def _over(
    start: cp_model.IntVar, variants: Sequence[Variant], present: Literal
) -> cp_model.LinearExpr:
    lengths = {variant.length for variant in variants}
    if present is True and len(lengths) == 1:
        return start + lengths.pop()
    return start + sum(variant.length * variant.chosen for variant in variants)


class WindowModel(OverTime):
    """A window as a model; ``choose`` says whether modes may change."""

    def __init__(self, problem: Problem, state: State, window: Window, *, choose: bool) -> None:
        self.state, self.window, self.choose = state, window, choose
        super().__init__(problem, range(len(problem.stages)), state.schedule.makespan)
        self.add_dataflow()
        for device in range(len(problem.devices)):
            self._add_ops(device)
            self._add_channels(device)
            if device in window.devices:
                self.add_memory(device)
            self._add_what_copies_ask(device)
        self._add_objective()

    def ways_of(self, stage: int, microbatch: int) -> list[Option]:
        """The present way, and those that it may become; of one there is no choice."""
        now = self.state.way[stage, microbatch]
        ways = [now]
        if self._is_open(stage, microbatch):
            fixed = self.state.starts[stage, microbatch]["F"] < self.window.begin
            ways += [
                way
                for way in ways_of(self.problem, stage, microbatch)
                if way != now and not (fixed and way.amounts.F != now.amounts.F)
            ]
        if len(ways) == 1:
            return [Option(now, True)]
        literals = [self.cp.new_bool_var("") for _ in ways]
        self.cp.add_exactly_one(literals)
        for literal, way in zip(literals, ways, strict=True):
            self.cp.add_hint(literal, way == now)
        return [Option(way, literal) for way, literal in zip(ways, literals, strict=True)]

    def _is_open(self, stage: int, microbatch: int) -> bool:
        """Whether the way may change: its backward is still to come, and near enough."""
        starts, window = self.state.starts[stage, microbatch], self.window
        return (
            self.choose
            and self.problem.stages[stage].device in window.devices
            and starts["F"] < window.end
            and starts["B"] >= window.begin
            and not ("O" in starts and starts["O"] < window.begin)
        )

    def new_task(self, cell: Cell, part: Part, variants: list[Variant], present: Literal) -> Task:
        """A part, its present start a hint, or fixed; what is free has intervals."""
        begin, where = self.window.begin, self.state.starts[cell.stage, cell.microbatch]
        known = where.get(part)
        if not isinstance(present, bool):
            self.cp.add_hint(present, known is not None)
        if known is not None and known < begin:
            start = self.cp.new_constant(known)
            return Task(start, _over(start, variants, True), [], variants, present, known)
        start = self.cp.new_int_var(begin, self.latest, "")
        if known is None:  # absent now
            known = max(where["F"], begin) if part == "O" else where["B"]
        self.cp.add_hint(start, min(known, self.latest))
        if self._is_free(cell, part):
            return Task(start, *place(self.cp, start, variants, present), variants, present)
        return Task(start, _over(start, variants, present), [], variants, present)

    def _is_free(self, cell: Cell, part: Part) -> bool:
        """Whether it may change places: it starts in the window, or is a copy of its devices."""
        where = self.state.starts[cell.stage, cell.microbatch]
        inside = self.problem.stages[cell.stage].device in self.window.devices
        return inside and (part in COPIES or where.get(part, where["B"]) < self.window.end)

    def held(self, cell: Cell, holding: Holding, chosen: Literal) -> cp_model.IntervalVar | None:
        """When something is held, if its way is chosen; ``None`` where it is over by the window."""
        last = cell.tasks[holding.end].fixed
        if last is not None and chosen is True and last + holding.length <= self.window.begin:
            return None
        return super().held(cell, holding, chosen)

    def time_held(self, cell: Cell, holding: Holding) -> cp_model.IntVar:
        """A variable, what it is at present a hint."""
        between = super().time_held(cell, holding)
        known = self.state.starts[cell.stage, cell.microbatch]
        if holding.begin in known and holding.end in known:
            end = known[holding.end] + holding.length
            self.cp.add_hint(between, max(0, end - known[holding.begin] - holding.offset))
        return between

    def _parts(self, device: int, parts: Iterable[Part]) -> list[Placed]:
        """Parts of a device that are not fixed, by their present starts; absent ones at their B."""
        found = []
        for stage in self.problem.stages_on[device]:
            for cell in self.row(stage):
                known = self.state.starts[stage, cell.microbatch]
                for part in parts:
                    if part in cell.tasks and cell.tasks[part].fixed is None:
                        at = known.get(part, known["B"])
                        length = self.state.way[stage, cell.microbatch].lengths.get(part, 0)
                        found.append(Placed(at, at + length, cell, part))
        return sorted(found, key=lambda x: (x.start, x.part == "W", x.end))

    def _ends_before(self, device: int, parts: Iterable[Part]) -> int:
        """When the last of the fixed parts ends."""
        tasks = (
            cell.tasks[part]
            for stage in self.problem.stages_on[device]
            for cell in self.row(stage)
            for part in parts
            if part in cell.tasks
        )
        fixed = (task.fixed + task.variants[0].length for task in tasks if task.fixed is not None)
        return max((self.window.begin, *fixed))

    def _is_there(self, placed: Placed) -> bool:
        """Whether a part is in the present schedule."""
        return placed.part in self.state.starts[placed.cell.stage, placed.cell.microbatch]

    def _add_ops(self, device: int) -> None:
        """Free ops do not overlap; those of a stage and phase keep their order; others follow."""
        cp, begin = self.cp, self._ends_before(device, OPS)
        parts = self._parts(device, OPS)
        free = [placed for placed in parts if self._is_free(placed.cell, placed.part)]
        later = [placed for placed in parts if not self._is_free(placed.cell, placed.part)]
        cp.add_no_overlap(interval for placed in free for interval in placed.task.intervals)
        chains: dict[tuple[int, Part], Task] = {}
        for placed in free:
            task, chain = placed.task, (placed.cell.stage, placed.part)
            cp.add(task.start >= begin)
            if (before := chains.get(chain)) is not None:
                cp.add(task.start >= (before.start if placed.part == "W" else before.end))
            chains[chain] = task
        if later:
            first = later[0].task
            cp.add(first.start >= begin)
            for placed in free:
                cp.add(first.start >= placed.over)
        for one, two in pairwise(later):
            cp.add(two.task.start >= one.over)

    def _add_channels(self, device: int) -> None:
        """Copies of a channel do not overlap; those after or beside the window keep sequence.

        Copies in one direction go in the order of the F's, or backwards, that they belong to.
        """
        cp, window, inside = self.cp, self.window, device in self.window.devices
        for parts in self.channels(device):
            found, begin = self._parts(device, parts), self._ends_before(device, parts)
            for copy in found:
                cp.add(copy.task.start >= begin)
            if inside:
                cp.add_no_overlap(interval for copy in found for interval in copy.task.intervals)
            later = [
                copy
                for copy in found
                if not inside or (copy.start >= window.end and self._is_there(copy))
            ]
            for one, two in pairwise(later):
                cp.add(two.task.start >= one.over)
            for part, by in _BY.items():
                own = [copy for copy in found if copy.part == part]
                starts = self.state.starts
                own.sort(key=lambda x: starts[x.cell.stage, x.cell.microbatch][by])
                for one, two in pairwise(own):  # an absent one stands among them, of no length
                    cp.add(two.task.start >= one.over)

    def _add_what_copies_ask(self, device: int) -> None:
        """After and beside the window, copies stay where they are among the ops (contract, 9).

        An O that had ended when an op or L that takes memory starts still ends by then. An L starts
        no earlier than the op that was the last to start, and the end of the one that was the last
        to end, at or before it.
        """
        cp, window = self.cp, self.window
        after = window.end if device in window.devices else window.begin
        ops, backs = self._parts(device, OPS), self._parts(device, ("L",))
        outs = [x for x in self._parts(device, ("O",)) if self._is_there(x)]
        fixed_outs, fixed_ops = self._ends_before(device, ("O",)), self._ends_before(device, OPS)
        for placed in (*ops, *backs):
            if placed.start < after or placed.part == "W":
                continue
            if placed.start >= fixed_outs:
                cp.add(placed.task.start >= fixed_outs)
            if (ended := _last_before(outs, placed.start)) is not None:
                cp.add(placed.task.start >= ended.over)
        for placed in backs:
            if placed.start < after:
                continue
            if placed.start >= fixed_ops:
                cp.add(placed.task.start >= fixed_ops)
            begun = [x for x in ops if x.start <= placed.start]
            if begun:
                cp.add(placed.task.start >= begun[-1].task.start)
            if (ended := _last_before(ops, placed.start)) is not None:
                cp.add(placed.task.start >= ended.over)

    def _add_objective(self) -> None:
        """Minimise the objective, and with less weight the ends of all devices, or their spans."""
        cp, lasts = self.cp, []
        value = cp.new_int_var(0, self.state.value, "")
        cp.add_hint(value, self.state.value)
        for device, row in enumerate(self.state.schedule.devices):
            if not row:
                continue
            last = cp.new_int_var(0, self.latest, "")
            cp.add_hint(last, row[-1].end)
            lasts.append(last)
            first: Time = 0
            if self.state.objective == "span":
                first = self._first(device, row[0].start)
            cp.add(last - first <= value)
            for stage in self.problem.stages_on[device]:
                for cell in self.row(stage):
                    self.add_end(cell, last)
        cp.minimize(_WEIGHT * len(lasts) * value + sum(lasts))

    def _first(self, device: int, known: int) -> Time:
        """Start of a device's first op, or less."""
        if known < self.window.begin:
            return known
        first = self.cp.new_int_var(0, self.latest, "")
        self.cp.add_hint(first, known)
        for placed in self._parts(device, OPS):
            self.cp.add(first <= placed.task.start)
        return first


def _last_before(parts: Iterable[Placed], time: int) -> Placed | None:
    """The one of those over by a time that ends last."""
    return max((x for x in parts if x.end <= time), key=lambda x: x.end, default=None)


_LIMIT = 0.6  # seconds per window


class ModeWindows(Windows):
    """Improves an incumbent window by window; ``state`` may drift among schedules as good."""

    source = "windows with modes"

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, runner: Runner, seed: int
    ) -> None:
        kinds = kinds_for(len(problem.devices), modes=True)
        super().__init__(problem, incumbent, runner=runner, seed=seed, kinds=kinds, limit=_LIMIT)
        self.state: State | None = None

    def step(self) -> bool:
        """Solve one window; there is always another."""
        state = self._current()
        rows = state.schedule.devices
        kind, devices, begin, end = self.chooser.draw(
            list(map(len, rows)), lambda d: (rows[d][0].start, rows[d][-1].end)
        )
        window = Window(begin, end, frozenset(devices))
        choose = self.problem.mode_choice == "microbatch"
        model = WindowModel(self.problem, state, window, choose=choose)
        solver = self.solve(model.cp, kind, most=self.problem.op_count, harder=True, presolve=False)
        if solver is not None:
            self._take(state, model.schedule(solver, self.source))
        return True

    def _current(self) -> State:
        """What to work on: our own state, or the incumbent if that has become better."""
        incumbent = self.incumbent
        with incumbent.lock:
            schedule, value = incumbent.schedule, incumbent.value
        if schedule is None or value is None:
            raise ValueError("windows need a schedule to start from")
        if self.state is None or value < self.state.value:
            self.state = State(self.problem, schedule, incumbent.objective)
        return self.state

    def _take(self, state: State, found: Schedule) -> None:
        """Go on from a schedule that is no worse; offer what is better."""
        incumbent = self.incumbent
        found = retime(self.problem, found, incumbent.objective, self.source)
        value = found.value(incumbent.objective)
        if value > state.value or check(self.problem, found):
            return
        self.state = State(self.problem, found, incumbent.objective)
        if incumbent.value is not None and value < incumbent.value:
            self.improvements += 1
            incumbent.offer_timed(found)
