"""Window search: the graph of an order, a window's model, and what it may never do."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesat.check.checker import check
from pipesat.heuristics.list_scheduling import list_schedules
from pipesat.problem.ops import Kind, Op
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.schedule import Objective
from pipesat.schedule.timing import time_order
from pipesat.solver.model.pairing import gains
from pipesat.solver.windows.choose import Chooser, WindowKind, draw_segments
from pipesat.solver.windows.graph import Graph, graph_of
from pipesat.solver.windows.window import Window, replaced
from tests.support.greedy import by_each_policy
from tests.support.optimum import decided, solved
from tests.support.problems import chain, document, problems, vee

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
PAIRS = {"pairs": [{"ops": ["0F", "0F"], "time": 3}, {"ops": ["1F", "1BW"], "time": 4}]}


def everything(graph: Graph) -> dict[int, tuple[int, int]]:
    return {d: (0, len(row)) for d, row in enumerate(graph.rows) if row}


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(problems(), st.sampled_from(OBJECTIVES))
def test_tails_and_value_agree_with_the_timing(problem: Problem, objective: Objective) -> None:
    for schedule in list(by_each_policy(problem))[::11]:
        graph = graph_of(problem, schedule.order, objective)
        timed = time_order(problem, schedule.order, objective)
        assert graph.value == timed.value(objective)
        assert graph.schedule("").devices == timed.devices
        reach = [graph.end(item) + graph.tail[item] for item in range(len(graph.tail))]
        assert max(reach, default=0) == graph.value


@pytest.mark.parametrize("weight", [0, 3])
@pytest.mark.parametrize(
    "problem",
    [
        chain(2, 3, F=2, B=3, W=2, comm=1, cap=2, backward="split"),
        chain(3, 3, F=3, B=2, W=1, cap=2, held=(1, 2), backward="split"),
        vee(2, 2, F=2, B=3, W=1, cap=3, backward="split"),
        chain(3, 3, F=3, B=2, W=2, BW=3, cap=3, held=(1, 2), backward="either"),
        chain(2, 4, F=2, B=3, W=3, BW=4, comm=2, cap=4, held=(2, 1), backward="either"),
        parse_problem(document(chain(2, 3, F=2, B=2, W=1, backward="fused"), overlap=PAIRS)),
    ],
)
def test_a_window_over_everything_finds_the_optimum(problem: Problem, weight: int) -> None:
    """From the worst policy's order, whatever the path through a device counts beside."""
    worst = max(by_each_policy(problem), key=lambda schedule: schedule.makespan)
    graph = graph_of(problem, worst.order, "makespan")
    window = Window(
        problem, graph, everything(graph), known=gains(problem), weights={0: weight, 1: 0}
    )
    order = replaced(graph.order, window.segments, window.order(solved(window.cp)))
    schedule = time_order(problem, order)
    assert check(problem, schedule) == []
    assert schedule.makespan == decided(problem)


def test_what_is_free_and_what_follows_comes_after_the_first_item_of_all() -> None:
    problem = chain(2, 3, F=2, B=3, W=2)
    graph = graph_of(problem, next(list_schedules(problem)).order, "makespan")
    first, second, *_ = graph.rows[0]
    assert (first, graph.sequence.inputs[second]) == (0, ())  # two F's, that of 2 first
    window = Window(problem, graph, {0: (1, len(graph.rows[0]))})
    assert min(slot.low for slot in window.free[0].slots) == 2
    beside = Window(problem, graph, {1: (0, len(graph.rows[1]))})
    assert beside.nodes.ready(second, [graph.end(first)], {}) == 2
    for slot in window.free[0].slots:  # the present schedule is a solution
        window.cp.add(slot.start == graph.start[slot.item or 0])
    assert window.order(solved(window.cp))[0] == [*graph.order[0][1:]]


@pytest.mark.parametrize(
    ("F", "starts", "expected"),
    [
        (2, (0, 2, 4, 8, 6, 10), "0F0 0F1 0B0 0B1 0W0 0W1"),  # one right after the other
        (0, (0, 2, 0, 4, 2, 6), "0F0 0B0 0F1 0B1 0W0 0W1"),  # 0F1 takes no time, when 0B0 ends
    ],
)
def test_a_window_reads_an_order_off_its_starts(
    F: int, starts: tuple[int, ...], expected: str
) -> None:
    problem = chain(1, 2, F=F, B=2, W=2, backward="split")
    kinds: list[Kind] = ["F", "F", "B", "W", "B", "W"]
    row = [Op(0, kind, m) for kind, m in zip(kinds, (0, 1, 0, 0, 1, 1), strict=True)]
    window = Window(problem, graph_of(problem, (tuple(row),), "makespan"), {0: (0, 6)})
    for slot in window.free[0].slots:
        window.cp.add(slot.start == starts[row.index(slot.op)])
    assert " ".join(map(str, window.order(solved(window.cp))[0])) == expected


def test_the_middle_of_a_window_lies_anywhere_in_the_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """6 of 60 items take a tenth of the time from 100 to 200: 10, half of it before its middle."""
    asked, chance = [], random.Random(0)
    monkeypatch.setattr(chance, "randint", lambda *limits: asked.append(limits) or limits[1])
    drawn = Chooser(chance, [WindowKind(0, 1.0, 6.0)]).draw([30, 30], lambda _: (100, 200))
    assert asked == [(95, 195)]
    assert (drawn.begin, drawn.end) == (195, 206)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from(OBJECTIVES), st.integers(0, 9), st.integers(1, 12))
def test_no_window_breaks_a_rule_or_makes_it_worse(
    problem: Problem, objective: Objective, seed: int, size: int
) -> None:
    rng = random.Random(seed)
    schedule = rng.choice(list(by_each_policy(problem))[:8])
    graph = graph_of(problem, schedule.order, objective)
    kind = WindowKind(rng.choice([0, 1, 2]), 1.0, float(size))
    _, segments = draw_segments(Chooser(rng, [kind]), graph)
    if not segments:
        return
    window = Window(problem, graph, segments)
    solver = solved(window.cp)
    order = replaced(graph.order, segments, window.order(solver))
    timed = time_order(problem, order, objective)
    assert check(problem, timed) == check(problem, graph.schedule(""))
    assert max(timed.value(objective), solver.value(window.value)) <= graph.value
    if objective == "makespan":  # what passes the window takes no longer than its model says
        new = graph_of(problem, order, objective)
        for device, (low, high) in segments.items():
            more = len(new.rows[device]) - len(graph.rows[device])
            for item in new.rows[device][low : high + more]:
                assert new.end(item) + new.tail[item] <= solver.value(window.value)


def test_a_window_leaves_all_else_in_place() -> None:
    problem = chain(3, 6, F=2, B=3, W=2, comm=1, cap=3)
    schedule = next(iter(list_schedules(problem)))
    graph = graph_of(problem, schedule.order, "makespan")
    segments = {1: (4, 9)}
    window = Window(problem, graph, segments)
    order = replaced(graph.order, segments, window.order(solved(window.cp)))
    assert (order[0], order[2]) == (graph.order[0], graph.order[2])
    assert order[1][:4] == graph.order[1][:4]
    assert order[1][9:] == graph.order[1][9:]
    assert sorted(order[1]) == sorted(graph.order[1])
    # ops of other devices are modelled only if they lie between two free ones
    modelled = len(window.nodes.of) + len(window.nodes.of_item)
    assert modelled < len(graph.sequence.item) / 2
