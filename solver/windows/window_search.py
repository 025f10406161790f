"""Large-neighbourhood search: free a window, solve it, keep what is no worse, repeat."""

from __future__ import annotations

import random

from ortools.sat.python import cp_model

from pipesat.check.checker import check
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Order, Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.lanes.clock import WINDOW_OPS_PER_SECOND
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import FOUND, Runner
from pipesat.solver.model.pairing import gains
from pipesat.solver.model.times import rounded, unit_for
from pipesat.solver.windows.choose import Chooser, WindowKind, draw_segments, kinds_for
from pipesat.solver.windows.graph import Graph, graph_of
from pipesat.solver.windows.slots import Freedom
from pipesat.solver.windows.window import Window, replaced

# of the windows may change what is split and what fused, all where ops may pair: these are harder
_FREE_SPLITS = 0.5
_FREE_MODES = 0.6
_APART = 0.2  # of the time: most that windows spend on another schedule at once
_LIMIT, _LIMIT_OF_HARDER = 0.8, 0.7  # seconds per window
_WEIGHTS = (0, 0, 1, 2, 3)  # of the longest path through a device, where they are drawn


def windows_apply(problem: Problem, incumbent: Incumbent) -> bool:
    """Whether there is time for a few windows."""
    return problem.op_count < WINDOW_OPS_PER_SECOND * incumbent.clock.left


class WindowSearch:
    """Improves an incumbent window by window.

    Where times are too large for CP-SAT, ``graph`` has them rounded; ``value`` is always exact.

    With ``wanders``, every window draws what the longest path through each device counts. What is
    as long as before may then be another schedule, from which other windows lead further.
    """

    source = "window search"

    def __init__(
        self,
        problem: Problem,
        incumbent: Incumbent,
        *,
        runner: Runner,
        seed: int,
        wanders: bool = False,
    ) -> None:
        self.problem, self.incumbent, self.runner = problem, incumbent, runner
        self.rounded = rounded(problem, unit_for(incumbent.latest))
        self.gains = gains(self.rounded)
        self.harder = bool(self.gains) or problem.has_modes  # they have optional intervals
        self.limit = _LIMIT_OF_HARDER if self.harder else _LIMIT
        self.rng = random.Random(seed)  # noqa: S311
        kinds = kinds_for(len(problem.devices), pairs=bool(self.gains), modes=problem.has_modes)
        self.chooser = Chooser(self.rng, kinds)
        self.wanders, self.copies = wanders, problem.has_copies
        self.graph: Graph | None = None
        self.value = 0  # of the graph's order
        self.apart = False  # whether on a schedule of its own that is not as good as the incumbent
        self.last_success = self.began = 0.0

    @property
    def idle(self) -> float:
        """Time spent since the last improvement; more than any where it has been apart too long."""
        if self.apart and self.runner.spent - self.began > _APART * self.incumbent.clock.limit:
            return float("inf")
        return self.runner.spent - self.last_success

    def refresh(self) -> None:
        """Count idle time from now on."""
        self.last_success = self.runner.spent

    def begin_apart(self, schedule: Schedule) -> None:
        """Improve another schedule, until it beats the incumbent or :meth:`rejoin` ends it.

        Where windows on one schedule lead no further, those on another one may.
        """
        self.graph = self._graph(schedule)
        self.value, self.apart = schedule.value(self.incumbent.objective), True
        self.refresh()
        self.began = self.runner.spent

    def rejoin(self) -> None:
        """Work on the incumbent again."""
        if self.apart:
            self.graph, self.apart = None, False
            self.refresh()

    def step(self) -> bool:
        """Solve one window; there is always another."""
        graph = self._current()
        kind, segments = draw_segments(self.chooser, graph)
        if segments:
            splits = self.rng.random() < _FREE_SPLITS or bool(self.gains)
            modes = self.problem.has_modes and self.rng.random() < _FREE_MODES
            weights = {d: self.rng.choice(_WEIGHTS) for d in segments} if self.wanders else {}
            window = Window(
                self.rounded, graph, segments, Freedom(splits, modes), self.gains, weights
            )
            solver = self._solve(window.cp, kind, most=len(graph.sequence.item))
            if solver is not None:
                made: Order | Schedule
                if self.copies:
                    made = window.schedule(solver, self.source)
                else:
                    made = replaced(graph.order, segments, window.order(solver))
                self._take(made)
        return True

    def _solve(
        self, cp: cp_model.CpModel, kind: WindowKind, *, most: int
    ) -> cp_model.CpSolver | None:
        """Solve a window's model; return the solver if it has found something.

        ``most`` is how large a window may get, in items. Presolve pays where there are many pairs.
        """
        seed, spent = self.rng.randrange(1 << 30), self.runner.spent
        most_time = self.limit * self.runner.slowness  # else a busy machine would make them small
        limit, presolve = min(most_time, self.incumbent.clock.left), bool(self.gains)
        solver, status = self.runner.solve(
            cp, limit=limit, seed=seed, strong=self.harder, linear=False, presolve=presolve
        )
        settled, share = status == cp_model.OPTIMAL, (self.runner.spent - spent) / most_time
        kind.learn(settled=settled, share=share, most=most)
        return solver if status in FOUND else None

    def _current(self) -> Graph:
        """The graph to work on: our own, or the incumbent's if that has become better."""
        incumbent = self.incumbent
        if incumbent.schedule is None or incumbent.value is None:
            raise ValueError("window search needs a schedule to start from")
        if self.graph is None or (incumbent.value < self.value and not self.apart):
            self.value = incumbent.value
            self.graph = self._graph(incumbent.schedule)
        return self.graph

    def _graph(self, schedule: Schedule) -> Graph:
        made = schedule if self.copies else schedule.order
        return graph_of(self.rounded, made, self.incumbent.objective)

    def _take(self, made: Order | Schedule) -> None:
        """Go on from what is no worse; what is better is checked and offered.

        Copies at one instant may ask for more than times say, so with them everything is checked.
        """
        incumbent = self.incumbent
        if isinstance(made, Schedule) and check(self.problem, made):
            return
        graph = graph_of(self.rounded, made, incumbent.objective)
        if self.graph is None or graph.value > self.graph.value:
            return
        timed, value = None, graph.value
        if self.rounded is not self.problem and not isinstance(made, Schedule):
            timed = time_order(self.problem, made, incumbent.objective, self.source)
            value = timed.value(incumbent.objective)
        if self.apart and value < self.value:
            self.refresh()
        self.graph, self.value = graph, value
        if incumbent.value is not None and value < incumbent.value:
            self.apart = False
            self.refresh()
            if incumbent.offer_timed(timed or graph.schedule(self.source)) is None:
                self.graph = None  # it breaks a rule: start again from what was checked
