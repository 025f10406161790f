"""Windows with modes: free a part of a schedule, solve it, keep what is no worse, repeat."""

from __future__ import annotations

import random

from ortools.sat.python import cp_model

from pipesat.core.checker import check
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import retime
from pipesat.solver.model.times import LARGEST
from pipesat.solver.modes.frame import Window
from pipesat.solver.modes.model import Model
from pipesat.solver.modes.state import State
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import FOUND, Runner

SOURCE = "windows with modes"
_LIMIT = 3.0  # seconds per window
_FIRST_SIZE, _LEAST_SIZE = 50.0, 6.0  # ops in a window
_GROW, _SHRINK = 1.2, 0.8
_QUICK = 0.33  # of the limit: then the next one may be larger
_GROUPS = (1, 2, 4)  # of neighbouring devices, beside all


def windows_over_time_apply(problem: Problem, incumbent: Incumbent) -> bool:
    """Whether CP-SAT can be relied on for such times, and the model knows all that there is."""
    schedule = incumbent.schedule
    return problem.overlap is None and schedule is not None and schedule.makespan <= LARGEST


class ModeWindows:
    """Improves an incumbent window by window; ``state`` may drift among schedules as good."""

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, runner: Runner, seed: int
    ) -> None:
        self.problem, self.incumbent, self.runner = problem, incumbent, runner
        self.rng = random.Random(seed)  # noqa: S311
        busy = sum(map(bool, problem.stages_on))
        self.sizes = {min(n, busy): _FIRST_SIZE for n in (*_GROUPS, busy)}
        self.state: State | None = None
        self.windows = self.improvements = 0

    @property
    def report(self) -> str:
        """What it did, in a few words."""
        return f"{SOURCE}: {self.windows} windows, {self.improvements} improvements"

    def step(self) -> bool:
        """Solve one window; there is always another."""
        state = self._current()
        kind = self.rng.choice(sorted(self.sizes))
        window = self._window(state, kind)
        choose = self.problem.mode_choice == "microbatch"
        model = Model(self.problem, state, window, choose=choose)
        limit, spent = min(_LIMIT, self.incumbent.clock.left), self.runner.spent
        seed = self.rng.randrange(1 << 30)
        solver, status = self.runner.solve(
            model.cp, limit=limit, seed=seed, strong=True, linear=False
        )
        self.windows += 1
        self._learn(kind, status, (self.runner.spent - spent) / _LIMIT)
        if status in FOUND:
            self._take(model.schedule(solver, SOURCE))
        return True

    def _learn(self, kind: int, status: cp_model.CpSolverStatus, share: float) -> None:
        """Larger windows while they are settled quickly, smaller ones when they are not."""
        settled = status == cp_model.OPTIMAL
        factor = _SHRINK if not settled else _GROW if share < _QUICK else 1.0
        most = max(_FIRST_SIZE, float(self.problem.op_count))
        self.sizes[kind] = max(_LEAST_SIZE, min(self.sizes[kind] * factor, most))

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

    def _window(self, state: State, count: int) -> Window:
        rows = state.schedule.devices
        devices = [d for d, row in enumerate(rows) if row]
        if count < len(devices):
            first = self.rng.randint(0, len(devices) - count)
            devices = devices[first : first + count]
        begin = min(rows[d][0].start for d in devices)
        end = max(rows[d][-1].end for d in devices)
        share = self.sizes[count] / sum(len(rows[d]) for d in devices)
        if share >= 1:
            return Window(begin, end + 1, frozenset(devices))
        width = max(1, int((end - begin) * share))
        low = self.rng.randint(begin - width // 2, max(begin, end - width // 2))
        return Window(max(begin, low), low + width + 1, frozenset(devices))

    def _take(self, found: Schedule) -> None:
        """Go on from a schedule that is no worse; offer what is better."""
        incumbent = self.incumbent
        state = self.state
        found = retime(self.problem, found, incumbent.objective, SOURCE)
        value = found.value(incumbent.objective)
        if state is None or value > state.value or check(self.problem, found):
            return
        self.state = State(self.problem, found, incumbent.objective)
        if incumbent.value is not None and value < incumbent.value:
            self.improvements += 1
            incumbent.offer_timed(found)
