"""Windows that choose variants: valid, exact in what they count, never worse."""

from __future__ import annotations

import random

import pytest

from pipesat.bounds.feasibility import sure_order
from pipesat.check.checker import check
from pipesat.core.errors import Infeasible
from pipesat.problem.problem import Problem
from pipesat.schedule.timing import retime, time_order
from pipesat.solver.model.pairing import gains
from pipesat.solver.windows.choose import Chooser, WindowKind, draw_segments
from pipesat.solver.windows.graph import graph_of
from pipesat.solver.windows.window import Window, replaced
from tests.oracle.exact import optimum
from tests.support.optimum import solved
from tests.support.problems import of


def drawn(seed: int, *, paired: bool, copies: bool) -> Problem:
    """A tiny problem with modes, without ``copies`` only such as recompute; any F and BW may pair.

    Memory over time does not see instants: with copies, nothing takes no time.
    """
    more = {"pairs": ("FB",)} if paired else {}
    modes = ("offload", "recompute and offload") if copies else ("recompute",)
    return of("modes", seed, modes=modes, zeros=(0.0,) if copies else (0.0, 0.0, 0.3), **more)


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_windows_count_what_the_rules_count(seed: int, paired: bool, copies: bool) -> None:
    problem, chance = drawn(seed, paired=paired, copies=copies), random.Random(seed)
    try:
        timed = time_order(problem, sure_order(problem))
    except Infeasible:
        return
    kinds = [WindowKind(0, 1.0, 1000), WindowKind(1, 1.0, 6), WindowKind(0, 1.0, 6)]
    for number in range(4):
        made = timed if problem.has_copies else timed.order
        graph = graph_of(problem, made, "makespan")
        assert graph.value == timed.makespan
        _, segments = draw_segments(Chooser(chance, kinds[: 1 if not number else 3]), graph)
        window = Window(problem, graph, segments, known=gains(problem))
        solver = solved(window.cp)
        if problem.has_copies:
            found = window.schedule(solver, "window")
            assert check(problem, found) == []
            timed = retime(problem, found)
        else:
            timed = time_order(problem, replaced(graph.order, segments, window.order(solver)))
        assert check(problem, timed) == []
        assert timed.makespan <= graph.value
        if not number:  # a window over everything sees every path
            assert timed.makespan == solver.value(window.value)
    if not paired:
        best = optimum(problem.document)
        assert best is not None
        assert timed.makespan >= best
