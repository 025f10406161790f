"""Pairs that the search makes: the whole model, windows, and solves of hand-made problems."""

from __future__ import annotations

from typing import Any

import pytest

from pipesat.bounds.feasibility import sure_order
from pipesat.check.checker import check
from pipesat.problem.ops import Op, Pair
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.timing import time_order
from pipesat.solver import SolveOptions, solve
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.model.model import Model, build_model
from pipesat.solver.model.pairing import gains, useful_variants
from pipesat.solver.windows.graph import graph_of
from pipesat.solver.windows.window import Window, replaced
from pipesat.solver.windows.window_search import WindowSearch
from tests.oracle.generator import FIT, ONE_ROUTE
from tests.support.optimum import solved
from tests.support.paths import ROOT
from tests.support.problems import of

BENCH = ROOT / "bench" / "beyond" / "problems"


def one_stage(pairs: dict[tuple[str, str], int], m: int, **device: int) -> Problem:
    """F 3, B 2, W 2 on a single device; each held microbatch takes 1."""
    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "microbatches": m,
        "devices": [device],
        "stages": [{"device": 0, "F": 3, "B": 2, "W": 2, "held_after_F": 1}],
        "overlap": {"pairs": [{"ops": [*ops], "time": time} for ops, time in pairs.items()]},
    }
    return parse_problem(document)


CASES = [
    # F0, F1 with BW0, F2 with BW1, BW2: a pair may be as short as its BW
    ({("0F", "0BW"): 4}, 3, {}, 3 + 4 + 4 + 4),
    # memory for one microbatch only: F1 would have to be held beside microbatch 0
    ({("0F", "0BW"): 4}, 3, {"memory": 1}, 3 * 7),
    # a pair that takes as long as its members gains nothing
    ({("0F", "0BW"): 7}, 2, {}, 2 * 7),
    # both F in one pair, which is shorter than one of them, then both backwards
    ({("0F", "0F"): 2}, 2, {}, 2 + 4 + 4),
    ({("0F", "0F"): 2}, 2, {"memory": 1}, 2 * 7),
    # F0, F1, B0, W0 with B1 in 1, W1; or W0 with F1
    ({("0W", "0B"): 1}, 2, {}, 3 + 3 + 2 + 1 + 2),
    # two W in one pair, and of three W only two
    ({("0W", "0W"): 1}, 3, {}, 3 * 5 + 1 + 2),
]


@pytest.mark.parametrize(("pairs", "m", "device", "optimum"), CASES)
def test_the_model_makes_pairs(
    pairs: dict[tuple[str, str], int], m: int, device: dict[str, int], optimum: int
) -> None:
    problem = one_stage(pairs, m, **device)
    model = build_model(problem, "makespan", 0, 100)
    solver = solved(model.cp)
    schedule = time_order(problem, model.order(solver.value))
    assert check(problem, schedule) == []
    assert schedule.makespan == solver.objective_value * model.unit == optimum


# F0, B0 and F1 until F2 comes at 12; F2 with BW1 in 5, B2 until 21, W0 with W2 in 3
LATE_FORWARD = {
    "devices": [{}, {}],
    "stages": [
        {"device": 0, "F": 4, "B": 1, "W": 0, "backward": "fused"},
        {"device": 1, "F": 1, "B": 4, "W": 3},
    ],
}
MET_ELSEWHERE = {
    # device busy 5 + 2 + 5 + 2 + 3, F1 of the frozen stage beside BW0: F0 holds nothing any more
    "a stage without a backward": (
        {
            "devices": [{"memory": 9}],
            "stages": [
                {"device": 0, "F": 5, "B": 0, "W": 0, "held_after_F": 5, "backward": "none"},
                {"device": 0, "F": 2, "B": 3, "W": 0, "held_after_F": 2},
            ],
            "overlap": {"FB": [2, 5]},
            "microbatches": 2,
        },
        17,
    ),
    # four F of 3, then slices 1 and 3 in one pair of 6, slices 0 and 2 in another
    "slices": (
        {
            "devices": [{}],
            "stages": [{"device": 0, "F": 3, "B": 2, "W": 3, "backward": "fused"}],
            "overlap": {"pairs": [{"ops": ["0BW", "0BW"], "time": 6}]},
            "routes": [{"stages": [0], "microbatches": 4, "slices": 2}],
        },
        24,
    ),
    # the work is 2 (1 + 1 + 3 + 3), and BW0 of stage 0 beside F1 of stage 1 saves 1 within 3
    "stages without a path between them": (
        {
            "devices": [{"memory": 3}],
            "stages": [
                {"device": 0, "F": 1, "B": 1, "W": 0, "held_after_F": 1, "backward": "fused"},
                {"device": 0, "F": 3, "B": 3, "W": 0, "held_after_F": 2, "backward": "fused"},
                {"device": 0, "F": 0, "B": 0, "W": 0, "backward": "fused"},
            ],
            "overlap": {"pairs": [{"ops": ["0BW", "1F"], "time": 3}]},
            "routes": [{"stages": [0, 1, 2], "edges": [[0, 2], [1, 2]], "microbatches": 2}],
        },
        15,
    ),
    "weight gradients around a fused backward": (
        {
            **LATE_FORWARD,
            "overlap": {
                "pairs": [{"ops": ["1W"] * 2, "time": 3}, {"ops": ["1F", "1BW"], "time": 5}]
            },
            "microbatches": 3,
        },
        24,
    ),
    "weight gradients of a list around a fused backward": (
        {
            **LATE_FORWARD,
            "overlap": {
                "pairs": [
                    {"ops": ["1W", "1W"], "factor": [1, 2]},
                    {"ops": ["1F", "1BW"], "factor": [5, 8]},
                ]
            },
            "microbatches": [{"name": "a", "count": 3}],
            "order": "given",
        },
        24,
    ),
}


@pytest.mark.parametrize("case", MET_ELSEWHERE)
def test_pairs_meet_beyond_chains(case: str) -> None:
    document, optimum = MET_ELSEWHERE[case]
    problem = parse_problem({"format": "pipesat.problem/1", **document})
    model = build_model(problem, "makespan", 0, 100)
    solver = solved(model.cp)
    schedule = time_order(problem, model.order(solver.value))
    assert check(problem, schedule) == []
    assert schedule.makespan == solver.objective_value * model.unit == optimum


@pytest.mark.parametrize(("pairs", "m", "device", "optimum"), CASES)
def test_a_window_over_everything_makes_pairs(
    pairs: dict[tuple[str, str], int], m: int, device: dict[str, int], optimum: int
) -> None:
    problem = one_stage(pairs, m, **device)
    graph = graph_of(problem, _split(sure_order(problem)), "makespan")
    window = Window(problem, graph, {0: (0, 3 * m)}, known=gains(problem))
    solver = solved(window.cp)
    schedule = time_order(problem, replaced(graph.order, window.segments, window.order(solver)))
    assert check(problem, schedule) == []
    assert schedule.makespan == optimum


def test_a_window_opens_a_pair_that_costs_time() -> None:
    problem = one_stage({("0F", "0BW"): 9}, 2)
    pair = Pair(Op(0, "F", 1), Op(0, "BW", 0))
    order = ((Op(0, "F", 0), pair, Op(0, "BW", 1)),)
    graph = graph_of(problem, order, "makespan")
    assert graph.value == 3 + 9 + 4
    window = Window(problem, graph, {0: (0, 3)}, known=gains(problem))
    solver = solved(window.cp)
    new = replaced(graph.order, window.segments, window.order(solver))
    assert time_order(problem, new).makespan == 3 + 3 + 4 + 4


def test_windows_apart_leave_the_incumbent_alone_until_they_beat_it() -> None:
    problem = one_stage({("0F", "0BW"): 4}, 3)
    clock = Clock(600, deterministic=True)
    incumbent = Incumbent(problem, "makespan", clock)
    pair = Pair(Op(0, "F", 1), Op(0, "BW", 0))
    rest = (Op(0, "BW", 1), Op(0, "F", 2), Op(0, "BW", 2))
    assert incumbent.offer(((Op(0, "F", 0), pair, *rest),), "one pair") == 3 + 4 + 4 + 3 + 4
    search = WindowSearch(problem, incumbent, runner=Runner(clock), seed=0)
    start = time_order(problem, sure_order(problem))
    search.begin_apart(start)
    assert (search.apart, search.value) == (True, 3 * 7)
    search.rejoin()
    assert not search.apart
    search.begin_apart(start)
    for _ in range(50):
        search.step()
        if not search.apart:
            break
        assert search.value >= incumbent.value == 18
    assert incumbent.value == search.value < 18


def test_fusing_pays_only_where_a_pair_of_bw_gains() -> None:
    for time, pays in ((6, True), (7, False)):
        problem = one_stage({("0F", "0BW"): time}, 2)
        fused = [one for one in useful_variants(problem, 0, 0, gains(problem)) if not one.split]
        assert bool(fused) is pays


@pytest.mark.parametrize(("pairs", "m", "device", "optimum"), CASES)
def test_a_solve_proves_it(
    pairs: dict[tuple[str, str], int], m: int, device: dict[str, int], optimum: int
) -> None:
    result = solve(
        one_stage(pairs, m, **device),
        SolveOptions(deterministic=True, time_limit=5, starts="none"),
    )
    assert (result.status, result.value) == ("optimal", optimum)


def _split(order: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
    """Every backward split."""
    return tuple(
        tuple(
            part
            for op in row
            for part in (
                (op._replace(kind="B"), op._replace(kind="W")) if op.kind == "BW" else (op,)
            )
        )
        for row in order
    )


def optimum_of(model: Model) -> int:
    solver = solved(model.cp)
    return model.bound(round(solver.objective_value))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_relaxations_never_exceed_the_optimum(seed: int) -> None:
    """The whole model, which is held against the oracle above, says what the optimum is."""
    more = {"shapes": ONE_ROUTE, "stages": 3, "ops": 27, "microbatches": (3, 3), "memory": FIT}
    problem = of("pairs", seed, **more)
    upper = time_order(problem, sure_order(problem)).makespan
    best = optimum_of(build_model(problem, "makespan", 0, upper))
    for device, stages in enumerate(problem.stages_on):
        if stages:
            assert optimum_of(build_model(problem, "makespan", 0, best, [device])) <= best
