"""Windows over time, with modes: free a part of a schedule, solve it, keep what is no worse."""

from __future__ import annotations

from pipesat.core.checker import check
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import retime
from pipesat.solver.model.times import LARGEST
from pipesat.solver.modes.state import State
from pipesat.solver.modes.window import Window, WindowModel
from pipesat.solver.neighbourhood.choose import Windows, kinds_for
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import Runner

_LIMIT = 3.0  # seconds per window


def windows_over_time_apply(problem: Problem, incumbent: Incumbent) -> bool:
    """Whether CP-SAT can be relied on for such times, and the model knows all that there is."""
    schedule = incumbent.schedule
    return problem.overlap is None and schedule is not None and schedule.makespan <= LARGEST


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
        solver = self.solve(model.cp, kind, most=self.problem.op_count, harder=True)
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
