"""Times beyond what CP-SAT can bear: rounded models say nothing false, and orders are re-timed.

The limit is set so low that the times of small problems are rounded a good deal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipesat.bounds.feasibility import sure_order
from pipesat.check.checker import check
from pipesat.compare.solve import solve
from pipesat.core.errors import BadInput
from pipesat.heuristics.list_scheduling import list_scheduling
from pipesat.problem.problem import Link, Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.metrics import memory_profiles
from pipesat.schedule.schedule import Objective, Schedule, Timed
from pipesat.schedule.timing import time_order
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.model import times
from pipesat.solver.model.model import build_model
from pipesat.solver.model.times import latest_end, model_times, rounded, unit_for
from pipesat.solver.windows.window_search import WindowSearch
from tests.support.optimum import decided, most_work, solved
from tests.support.problems import chain, document, problems, two_routes, vee

Sizes = st.sampled_from([3, 7, 20, 50])


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    before = times.LARGEST
    yield
    times.LARGEST = before


def test_the_devices_of_two_routes_end_one_after_the_other_at_the_latest() -> None:
    """Each has a span of 10, and what it waits for has come the farthest way."""
    edges = [{"src": 0, "dst": 1, "F": 1, "B": 9}]
    problem = parse_problem(document(two_routes(2, (1, 1)), comm={"default": 2, "edges": edges}))
    assert latest_end(problem, "span", 10) == 2 * (10 + 9)


def set_limit(units: int) -> None:
    times.LARGEST = units


def stretched(problem: Problem, factor: int) -> Problem:
    """All times that many times as long; also beyond what a problem file may hold."""
    stages = (
        replace(s, F=s.F * factor, B=s.B * factor, W=s.W * factor, BW=s.BW * factor)
        for s in problem.stages
    )
    links = {ends: Link(x.F * factor, x.B * factor) for ends, x in problem.links.items()}
    return replace(problem, stages=tuple(stages), links=links)


def least_value(problem: Problem, objective: Objective, upper: int, devices: set[int]) -> int:
    """The bound that the optimum of a model proves."""
    model = build_model(problem, objective, 0, upper, devices)
    solver = solved(model.cp)
    return model.bound(round(solver.objective_value))


# The unit


def test_the_unit() -> None:
    set_limit(100)
    assert [unit_for(longest) for longest in (0, 100, 101, 1000, 1001)] == [1, 1, 2, 10, 11]
    problem = chain(2, 2, F=600, B=900, W=300, comm=1500)
    fine = model_times(problem, 30_000)  # 300 is in common, and 100 of it are enough
    assert (fine.unit, fine.exact) == (300, True)
    coarse = model_times(problem, 40_000)
    assert (coarse.unit, coarse.exact) == (400, False)
    assert (coarse.duration["F"], coarse.duration["W"]) == ((1, 1), (0, 0))
    by_span = model_times(problem, 100, "span")  # a least span may be a mean: no common unit
    assert (by_span.unit, by_span.exact) == (1, True)
    assert rounded(problem, 400).stages[0].B == 2
    paired = parse_problem(
        document(problem, overlap={"pairs": [{"ops": ["0F", "0BW"], "time": 1700}]})
    )
    overlap = rounded(paired, 400).overlap
    assert overlap is not None
    assert overlap.times[(0, "F"), (0, "BW")] == 4


def test_what_rounded_numbers_say() -> None:
    set_limit(100)
    coarse = model_times(chain(2, 2, F=600, comm=1500), 40_000)
    # a makespan of 1199 is at most 1199 / 400 = 2 units; if it has 3, it is at least 1200
    assert (coarse.at_most(1199), coarse.bound(3)) == (2, 1200)
    assert coarse.at_least(1199) == 2
    # a span of 1199 may be 3 units: its ends are rounded apart; one of 3 is more than 2 units
    assert (coarse.at_most(1199, "span"), coarse.bound(3, "span")) == (3, 801)


# Bounds


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    st.one_of(problems(), problems(least_time=0)),
    st.sets(st.integers(0, 2), min_size=1),
    Sizes,
)
def test_no_rounded_bound_is_above_the_least_makespan(
    problem: Problem, devices: set[int], size: int
) -> None:
    devices = {d for d in devices if d < len(problem.devices) and problem.stages_on[d]}
    assume(devices and not problem.has_modes)
    set_limit(size)
    upper = list_scheduling(problem).makespan
    best = decided(problem)
    assert least_value(problem, "makespan", upper, devices) <= best
    # what a target below the optimum proves by having no schedule is no more than the optimum
    for target in range(best, upper + 1):
        assert least_value(problem, "makespan", target, devices) <= best


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(problems(max_stages=3, max_microbatches=2), st.sets(st.integers(0, 2), min_size=1), Sizes)
def test_no_rounded_bound_is_above_the_least_span(
    problem: Problem, devices: set[int], size: int
) -> None:
    devices = {d for d in devices if d < len(problem.devices) and problem.stages_on[d]}
    assume(devices and not problem.has_modes)
    set_limit(size)
    best = decided(problem, "span")
    assert least_value(problem, "span", best, devices) <= best
    assert least_value(problem, "span", 2 * best, devices) <= best


def test_upper_bounds_on_work_are_exact_where_floats_are_not() -> None:
    """Two densities that are one double: the knapsack takes the denser kind first."""
    thin, dense = (10**12 - 1, 10**12 - 2, 1), (10**12, 10**12 - 1, 1)
    assert thin[1] / thin[0] == dense[1] / dense[0]
    # all of the denser kind and one unit of the other: its work is below 1, and work is whole
    both = [most_work(items, 10**12 + 1) for items in ([thin, dense], [dense, thin])]
    assert both == [10**12 - 1, 10**12 - 1]


# Schedules


@settings(max_examples=5, deadline=None)
@given(problems(), st.sampled_from([10, 40]))
def test_a_solve_with_rounded_models(problem: Problem, size: int) -> None:
    set_limit(size)
    result = solve(problem, time_limit=0.1, workers=1, deterministic=True)
    best = decided(problem)
    assert result.schedule is not None
    assert check(problem, result.schedule) == []
    assert result.lower_bound is not None
    assert result.value is not None
    assert result.lower_bound <= best <= result.value
    assert not result.warnings


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_windows_on_rounded_times_improve_exact_schedules(objective: Objective) -> None:
    problem = stretched(chain(3, 6, F=2, B=3, W=2, cap=2, comm=1), 10**13 + 7)
    incumbent = Incumbent(problem, objective, Clock(600, deterministic=True))
    incumbent.offer(sure_order(problem), "one microbatch after the other")
    before = incumbent.value
    search = WindowSearch(problem, incumbent, runner=Runner(incumbent.clock), seed=1)
    assert search.rounded is not problem
    for _ in range(12):
        search.step()
    assert before is not None
    assert incumbent.value is not None
    assert incumbent.value < before
    assert incumbent.schedule is not None
    assert check(problem, incumbent.schedule) == []
    assert incumbent.value % (10**13 + 7) == 0  # as all times are
    search.refresh()
    search.runner.spent += 2.0
    assert search.idle == pytest.approx(2.0)


# To the edge of 64 bits, and beyond it


@pytest.mark.parametrize("factor", [10**18, 10**30])
def test_times_whose_sums_may_not_fit_into_64_bits_are_refused(factor: int) -> None:
    small = chain(3, 4, F=3, B=4, W=2, comm=1)
    order = list_scheduling(small).order
    with pytest.raises(BadInput, match="choose larger units"):
        time_order(stretched(small, factor), order)


@pytest.mark.parametrize("factor", [10**12, 10**15])
@pytest.mark.parametrize("problem", [chain(3, 4, F=3, B=4, W=2, comm=1), vee(2, 3)])
def test_timing_and_memory_of_large_sizes(problem: Problem, factor: int) -> None:
    large = stretched(problem, factor)
    order = list_scheduling(problem).order
    for objective in ("makespan", "span"):
        small = time_order(problem, order, objective)
        timed = time_order(large, order, objective)
        assert timed == Schedule(
            tuple(
                tuple(Timed(item, start * factor, end * factor) for item, start, end in row)
                for row in small.devices
            )
        )
        for few, many in zip(
            memory_profiles(problem, small), memory_profiles(large, timed), strict=True
        ):
            assert [int(t) for t in many.times] == [int(t) * factor for t in few.times]
            assert list(many.held) == list(few.held)
