"""Windows that choose memory modes by order: valid, exact in what they count, never worse."""

from __future__ import annotations

import random

import pytest

from pipesat.bounds.feasibility import sure_order
from pipesat.core.checker import check
from pipesat.core.errors import Infeasible
from pipesat.core.problem import Problem
from pipesat.core.timing import retime, time_order
from pipesat.solver.model.pairing import gains
from pipesat.solver.modes.cells import State
from pipesat.solver.modes.window import Window as TimeWindow
from pipesat.solver.modes.window import WindowModel
from pipesat.solver.neighbourhood.choose import Chooser, WindowKind, draw_segments
from pipesat.solver.neighbourhood.graph import graph_of
from pipesat.solver.neighbourhood.window import Window, replaced
from tests.oracle.exact import optimum
from tests.support.optimum import solved
from tests.support.problems import of


def drawn(seed: int, *, paired: bool) -> Problem:
    """A tiny problem whose modes recompute; with ``paired`` any F and BW may run as one."""
    more = {"pairs": ("FB",)} if paired else {}
    return of("modes", seed, modes=("recompute",), zeros=(0.0, 0.0, 0.3), **more)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_windows_count_what_the_rules_count(seed: int, paired: bool) -> None:
    problem, chance = drawn(seed, paired=paired), random.Random(seed)
    try:
        order = sure_order(problem)
    except Infeasible:
        return
    kinds = [WindowKind(0, 1.0, 1000), WindowKind(1, 1.0, 6), WindowKind(0, 1.0, 6)]
    for number in range(4):
        graph = graph_of(problem, order, "makespan")
        _, segments = draw_segments(Chooser(chance, kinds[: 1 if not number else 3]), graph)
        window = Window(problem, graph, segments, known=gains(problem))
        solver = solved(window.cp)
        order = replaced(order, segments, window.order(solver))
        timed = time_order(problem, order)
        assert check(problem, timed) == []
        assert timed.makespan <= graph.value
        if not number:  # a window over everything sees every path
            assert timed.makespan == solver.value(window.value)
    if not paired:
        best = optimum(problem.document)
        assert best is not None
        assert timed.makespan >= best


@pytest.mark.parametrize("seed", range(12))
def test_a_window_over_time_holds_the_present_schedule_and_times_ops_as_the_rules_do(
    seed: int,
) -> None:
    problem = of("modes", seed)
    try:
        timed = time_order(problem, sure_order(problem))
    except Infeasible:
        return
    everywhere, half = frozenset(range(len(problem.devices))), timed.makespan // 2
    choose = problem.mode_choice == "microbatch"
    for begin, end, devices in (
        (0, timed.makespan + 1, everywhere),
        (0, half, everywhere),
        (half, timed.makespan + 1, frozenset([0])),
    ):
        state = State(problem, timed)
        model = WindowModel(problem, state, TimeWindow(begin, end, devices), choose=choose)
        found = model.schedule(solved(model.cp), "window")
        assert check(problem, found) == []
        assert found.makespan <= timed.makespan
        timed = retime(problem, found, "makespan", "window")
